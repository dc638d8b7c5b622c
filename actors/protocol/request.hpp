#pragma once

#include <utility>

#include "messages/wire/frame.hpp"
#include "messages/wire/message.hpp"

// Requests to the controller, without the headers of the actor library: all that the command line
// needs.

namespace troupe::actors {

/// A client's request. The client actor repeats it until it is answered or patience_s has passed.
struct ask {
  message request;
  double patience_s = 0;
};
struct answer {
  expected<std::pair<message, payload>> reply = refuse(reason::kind::unavailable, "");
};

}  // namespace troupe::actors
