#pragma once

#include <memory>

#include "runtime/host/clock.hpp"
#include "web/http/http_server.hpp"

namespace troupe::web {

/// The same reply, whose end is a line of the log: method, path, status, time and the request's id.
/// clock: it must outlive the reply.
std::shared_ptr<http_reply> with_access_log(std::shared_ptr<http_reply> to, const http_request& r,
                                            const runtime::clock& clock);

}  // namespace troupe::web
