#pragma once

#include <functional>

#include "messages/base/reason.hpp"
#include "messages/wire/message.hpp"

namespace troupe::web {

/// Sends a request to the controller and returns its reply, or, before long, why there is none. It
/// is called on one thread.
using controller_source = std::function<expected<message>(message request)>;

}  // namespace troupe::web
