#include "gpu/worker/worker_session.hpp"

#include <chrono>
#include <thread>

#include "gpu/device/clock.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::gpu::python {

expected<worker_hello> worker_session::greet(std::string_view token, double limit_s) {
  auto first = connection_.receive(limit_s);
  if (!first) return refuse(end(first.error()));
  if (first->header.kind == message_kind::error) {  // its interpreter lacks PyTorch
    const auto why = read_error(first->body);
    end(why);
    return refuse(why);
  }
  if (first->header.kind != message_kind::hello)
    return refuse(end(because(reason::kind::malformed,
                              "the worker's first message is {}, expected "
                              "hello",
                              name_of(first->header.kind))));
  auto hello = read_hello(first->body);
  if (!hello) return refuse(end(hello.error()));
  if (hello->token != token)
    return refuse(end(because(reason::kind::refused, "the worker's token is not its node's")));
  return hello;
}

expected<reply> worker_session::ask(request_header& request, std::string_view body, int file) {
  if (over_) return refuse(*over_);
  request.sequence = ++sequence_;
  doing_ = name_of(request.kind);
  if (auto ok = connection_.send(encode(request, body), file); !ok)
    return refuse(ok.error().code == reason::kind::invalid ? ok.error() : end(ok.error()));
  auto r = receive(request);
  if (!r) return refuse(end(r.error()));
  if (r->header.kind == message_kind::error) {
    const auto why = read_error(r->body);
    if (why.code == reason::kind::out_of_memory) return refuse(lacked_memory(why));
    return refuse(why.code == reason::kind::malformed ? end(why) : why);
  }
  return r;
}

// A save has a reply when the parameters may change again, and another one when its files are
// durable. Nothing here uses the first.
expected<reply> worker_session::receive(const request_header& request) {
  for (int replies = 0; replies < 2; ++replies) {
    auto r = connection_.receive();
    if (!r) return r;
    if (auto ok = check_reply(*r, request); !ok) return refuse(ok.error());
    if ((r->header.flags & reply_flag::more) == 0) return r;
  }
  return refuse(reason::kind::malformed, "the worker replied to {} more than twice",
                name_of(request.kind));
}

void worker_session::close() {
  closing_ = true;
  connection_.close();
}

// A worker that cannot be trusted may not use the device any longer, either.
reason worker_session::end(const reason& why) {
  if (over_) return *over_;
  if (closing_)
    over_ = reason{reason::kind::unavailable, "the device was closed during this operation"};
  else if (why.code == reason::kind::unavailable)
    over_ = because(reason::kind::worker_lost, "the worker {} during {}", ending(), doing_);
  else
    over_ = because(why.code, "{}, during {}", why.text, doing_);
  process_->kill();
  connection_.close();
  return *over_;
}

// The next attempt may begin as soon as the reason is known, and have the same device: its memory
// is free when this returns.
reason worker_session::lacked_memory(const reason& why) {
  TROUPE_INVARIANT(!over_, "the reason for which a worker ended is the first one");
  constexpr double wait_s = 5;  // a keeper kills at once; more is a machine in trouble
  over_ = why;
  process_->kill();
  connection_.close();
  wait_for_end(wait_s);
  return why;
}

/// The process's end follows that of its connection, or never comes.
std::string worker_session::ending() {
  constexpr double wait_s = 0.5;
  return wait_for_end(wait_s).value_or("closed its connection");
}

std::optional<std::string> worker_session::wait_for_end(double limit_s) {
  const double until_s = now_s() + limit_s;
  while (!closing_ && now_s() < until_s) {
    if (auto how = process_->ended()) return how;
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
  return {};
}

}  // namespace troupe::gpu::python
