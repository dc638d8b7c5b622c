#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "messages/base/reason.hpp"
#include "web/http/http_server.hpp"

namespace troupe::web {

/// Where a server is: http://HOST[:PORT][/PREFIX].
struct server_place {
  std::string host;  // name or address
  std::uint16_t port = 80;
  std::string prefix;  // of all paths; without a slash at its end
};
/// Refuses other schemes and what is no URL.
expected<server_place> parse_url(const std::string& url);

struct client_request {
  std::string method = "GET", path;
  std::string body;         // JSON; empty: none
  std::string key;          // API key; empty: none
  double patience_s = 600;  // without any byte
};

struct client_answer {
  int status = 0;
  std::string content_type;
  std::string body;  // what was not taken by `piece`
  http_fields fields;
};

/// Asks a server and waits for its answer. `piece`, if given, gets the body of an answer of status
/// 200 in parts, as they come; false: no more is wanted. Fails (unavailable) if the server cannot
/// be reached, falls silent, or ends the connection before the answer's end.
expected<client_answer> ask(const server_place& at, const client_request& r,
                            const std::function<bool(std::string_view)>& piece = {});

}  // namespace troupe::web
