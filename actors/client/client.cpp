#include "actors/client/client.hpp"

#include "actors/protocol/messenger.hpp"

namespace troupe::actors {

namespace {

/// The network may lose either the request or the reply, so requests are repeated. Each has a
/// number by which the controller recognizes a repetition.
constexpr double retry_after_s = 0.5;

template <class T>
concept numbered = requires(T m) {
  m.request;
};

/// The number of a request or reply; 0 for other messages.
std::uint64_t number_of(const message& m) {
  return std::visit(
      []<class T>(const T& x) -> std::uint64_t {
        if constexpr (numbered<T>)
          return x.request;
        else
          return 0;
      },
      m);
}

void set_number(message& m, std::uint64_t n) {
  std::visit(
      [n]<class T>(T& x) {
        if constexpr (numbered<T>) x.request = n;
      },
      m);
}

}  // namespace

void client_state::start(client_actor::pointer self, runtime::host h) {
  self_ = self;
  host_ = std::move(h);
}

caf::result<answer> client_state::on(const ask& a) {
  auto promise = self_->make_response_promise<answer>();
  auto request = a.request;
  // A caller that repeats a request in its next life chooses the number itself. Odd, hence never 0,
  // which means "no number".
  if (number_of(request) == 0) set_number(request, host_.random.next() | 1);
  send_message(host_, controller_address, request);
  pending_[number_of(request)] = {std::move(request), host_.clock->now_s() + a.patience_s, promise};
  // One timer for all requests; none while there are none.
  if (!std::exchange(ticking_, true)) send_later(self_, retry_after_s, tick{});
  return promise;
}

/// The credit is returned after the reply was handled, so that its sender cannot fill this mailbox.
void client_state::on(const arrived& a) {
  on_frame(a.what);
  host_.net->handled(a.what);
}

void client_state::on_frame(const frame& f) {
  auto decoded = decode(f.header.bytes());
  if (!decoded) return;
  auto it = pending_.find(number_of(decoded->second));
  if (it == pending_.end()) return;  // a second reply to a repeated request
  it->second.promise.deliver(answer{std::pair{std::move(decoded->second), f.body}});
  pending_.erase(it);
}

void client_state::on(const tick&) {
  ticking_ = false;
  for (auto it = pending_.begin(); it != pending_.end();) {
    auto& p = it->second;
    if (host_.clock->now_s() >= p.until_s) {
      // The request may have been carried out all the same: only its answer is missing.
      p.promise.deliver(
          answer{refuse(reason::kind::unavailable, "the controller does not respond")});
      it = pending_.erase(it);
      continue;
    }
    send_message(host_, controller_address, p.request);
    ++it;
  }
  if (pending_.empty()) return;
  ticking_ = true;
  send_later(self_, retry_after_s, tick{});
}

}  // namespace troupe::actors
