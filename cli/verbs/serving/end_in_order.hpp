#pragma once

#include "cli/output/output.hpp"
#include "web/http/http_server.hpp"
#include "web/openai/service.hpp"

namespace troupe::cli {

/// The end of a server after a signal: it takes no new requests, and answers those that it has for
/// at most `grace_s`, or until a second signal; the clients of the rest get an error. Returns when
/// what could be written is.
void end_in_order(const output& out, web::service& s, web::http_server& server, double grace_s);

}  // namespace troupe::cli
