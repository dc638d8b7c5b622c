#include "web/http/cors.hpp"

#include <algorithm>
#include <utility>

namespace troupe::web {

namespace {

// Adds fields to every kind of head, so that handlers do not know of CORS.
class extended_reply final : public http_reply {
 public:
  extended_reply(std::shared_ptr<http_reply> to, http_fields fields)
      : to_{std::move(to)}, fields_{std::move(fields)} {}

  void whole(http_answer a) override { to_->whole(extended(std::move(a))); }
  void promise_stream(http_answer a) override { to_->promise_stream(extended(std::move(a))); }
  void begin_stream(http_answer a) override { to_->begin_stream(extended(std::move(a))); }
  void fail(http_answer a, std::string last_piece) override {
    to_->fail(extended(std::move(a)), std::move(last_piece));
  }
  void piece(std::string bytes) override { to_->piece(std::move(bytes)); }
  void end(bool complete) override { to_->end(complete); }
  void when_gone(std::function<void()> gone) override { to_->when_gone(std::move(gone)); }

 private:
  http_answer extended(http_answer a) const {
    a.fields.insert(a.fields.end(), fields_.begin(), fields_.end());
    return a;
  }

  const std::shared_ptr<http_reply> to_;
  const http_fields fields_;
};

}  // namespace

http_fields cors_policy::fields_for(const http_request& r) const {
  if (r.origin.empty() || origins_.empty()) return {};
  const bool every = std::ranges::count(origins_, "*") > 0;
  if (!every && std::ranges::count(origins_, r.origin) == 0) return {};
  // Caches keep one answer for each origin.
  return {{"Access-Control-Allow-Origin", every ? "*" : r.origin},
          {"Access-Control-Expose-Headers", "X-Request-Id, X-Troupe-Where, Retry-After"},
          {"Vary", "Origin"}};
}

http_fields cors_policy::preflight_fields_for(const http_request& r) const {
  // Without an allowed origin the preflight gets no fields, and the browser does not send the
  // request.
  auto fields = fields_for(r);
  if (fields.empty()) return fields;
  fields.emplace_back("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
  fields.emplace_back("Access-Control-Allow-Headers",
                      r.asked_fields.empty() ? "Authorization, Content-Type" : r.asked_fields);
  fields.emplace_back("Access-Control-Max-Age", "600");
  return fields;
}

std::shared_ptr<http_reply> with_fields(std::shared_ptr<http_reply> to, http_fields fields) {
  if (fields.empty()) return to;
  return std::make_shared<extended_reply>(std::move(to), std::move(fields));
}

}  // namespace troupe::web
