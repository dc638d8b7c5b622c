#pragma once

#include <string>
#include <string_view>

#include "messages/base/reason.hpp"

namespace troupe::web {

/// The target of a request line.
struct request_target {
  std::string path;       // decoded; begins with '/', or is "*"
  std::string query;      // as it was sent
  std::string authority;  // host and port; empty: the target has none
};

/// Reads origin form (/path?query), absolute form (http://host:port/path?query) or "*" (RFC
/// 9112, 3.2). Refuses (malformed) what is neither, wrong percent-encoding, control characters, and
/// dot segments, which clients resolve before they send.
expected<request_target> parse_target(std::string_view target);

}  // namespace troupe::web
