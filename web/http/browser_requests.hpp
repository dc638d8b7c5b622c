#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "web/http/http_server.hpp"

// Requests that a browser makes for a web site that the user visits. A server without API keys
// trusts everybody on its machine, and so would trust those pages, too.

namespace troupe::web {

/// The name or address in a Host field ("localhost:8000", "[::1]:80"), in lower case and without
/// brackets, port and final dot; nothing if the field has another form.
std::optional<std::string> name_in_host(std::string_view host);

/// Whether a Host field is a loopback address or "localhost". A page whose owner lets its own name
/// resolve to 127.0.0.1 (DNS rebinding) sends that name. Also true of an empty field: browsers send
/// one, other clients of HTTP/1.0 may not.
bool is_local_host(std::string_view host);

/// Does a page of another origin make the request, by Sec-Fetch-Site or
/// Origin. Clients that are no browsers send neither.
bool is_cross_origin(const http_request& r);

}  // namespace troupe::web
