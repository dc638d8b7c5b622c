#include "web/http/access_log.hpp"

#include <atomic>
#include <string>
#include <utility>

#include "runtime/host/log.hpp"

namespace troupe::web {

namespace {

/// One request's line, which is written once.
class access_line {
 public:
  access_line(const http_request& r, const runtime::clock& clock)
      : what_{r.method + " " + r.path}, id_{r.request_id}, clock_{clock}, begin_s_{clock.now_s()} {}

  void status(int s) { status_ = s; }
  void write(const char* end = "") {
    if (written_.exchange(true)) return;
    const int status = status_;
    runtime::log(runtime::log_level::info, "http", what_ + end,
                 {{"status", status}, {"s", clock_.now_s() - begin_s_}, {"id", id_}});
  }

 private:
  const std::string what_, id_;
  const runtime::clock& clock_;
  const double begin_s_;
  std::atomic<int> status_{0};
  std::atomic<bool> written_{false};
};

class logged_reply final : public http_reply {
 public:
  logged_reply(std::shared_ptr<http_reply> to, std::shared_ptr<access_line> line)
      : to_{std::move(to)}, line_{std::move(line)} {}

  void whole(http_answer a) override {
    line_->status(a.status);
    line_->write();
    to_->whole(std::move(a));
  }
  void promise_stream(http_answer a) override { to_->promise_stream(std::move(a)); }
  void begin_stream(http_answer a) override {
    line_->status(a.status);
    to_->begin_stream(std::move(a));
  }
  void fail(http_answer a, std::string last_piece) override {
    line_->status(a.status);
    line_->write(", failed");
    to_->fail(std::move(a), std::move(last_piece));
  }
  void piece(std::string bytes) override { to_->piece(std::move(bytes)); }
  void end(bool complete) override {
    line_->write(complete ? "" : ", cut");
    to_->end(complete);
  }
  void when_gone(std::function<void()> gone) override {
    to_->when_gone([line = line_, gone = std::move(gone)] {
      line->write(", its client has left");
      gone();
    });
  }

 private:
  const std::shared_ptr<http_reply> to_;
  const std::shared_ptr<access_line> line_;
};

}  // namespace

std::shared_ptr<http_reply> with_access_log(std::shared_ptr<http_reply> to, const http_request& r,
                                            const runtime::clock& clock) {
  return std::make_shared<logged_reply>(std::move(to), std::make_shared<access_line>(r, clock));
}

}  // namespace troupe::web
