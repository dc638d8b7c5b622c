#pragma once

#include <utility>

#include "messages/frame.hpp"
#include "messages/message.hpp"

// What a program asks a controller, without the headers of the actor library: the command line
// needs no more than this.

namespace troupe::actors {

/// A client's request. The client actor repeats it until it is answered or patience_s is over.
struct ask {
  message request;
  double patience_s = 0;
};
struct answer {
  expected<std::pair<message, payload>> reply = refuse(reason::kind::unavailable, "");
};

}  // namespace troupe::actors
