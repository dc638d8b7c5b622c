#pragma once

#include <memory>
#include <string>
#include <vector>

#include "web/http/http_server.hpp"

namespace troupe::web {

/// Which pages of other origins may read answers in a browser (Cross-Origin Resource Sharing).
class cors_policy {
 public:
  /// origins: as browsers send them (https://chat.example), or "*": every page.
  explicit cors_policy(std::vector<std::string> origins) : origins_{std::move(origins)} {}

  /// The fields of answers to this request; none: its page may not read them.
  http_fields fields_for(const http_request& r) const;
  /// Fields of the answer to the request that a browser sends before the page's own.
  http_fields preflight_fields_for(const http_request& r) const;

 private:
  std::vector<std::string> origins_;
};

/// The same reply, whose answers have further fields.
std::shared_ptr<http_reply> with_fields(std::shared_ptr<http_reply> to, http_fields fields);

}  // namespace troupe::web
