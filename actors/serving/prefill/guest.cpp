#include "actors/serving/prefill/guest.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "messages/base/refuse.hpp"
#include "messages/base/time.hpp"
#include "runtime/host/log.hpp"

namespace troupe::actors {

void guest_state::start(guest_actor::pointer self, guest_options o) {
  self_ = self;
  o_ = std::move(o);
  if (o_.executor) open();
  prompts_.emplace(o_.shape);
  if (o_.refused.text.empty()) return;
  runtime::log(runtime::log_level::warn, "guest", "lends no bubbles",
               {{"stage", fmt::format("{}.{}.{}", o_.shape.setup.place.stage.lease,
                                      o_.shape.setup.place.stage.pipeline,
                                      o_.shape.setup.place.stage.stage)},
                {"why", o_.refused.text}});
}

// A model takes up to minutes to open, on this actor's own thread; orders meanwhile wait in its
// mailbox. A failure concerns prompts alone: the training goes on, and the guest declines every
// order with this reason.
void guest_state::open() {
  const auto listener = [me = guest_actor{self_}, this](guest_tile_result r) {
    caf::anon_send(me, call_now{[this, r = std::move(r)] { on_result(r); }});
  };
  if (!o_.create) {
    engine_ = std::make_shared<simulated_guest>([m = o_.messenger] { return m.now_s(); }, listener);
  } else {
    expected<std::shared_ptr<guest_engine>> made = refuse(reason::kind::unavailable, "");
    try {
      made = std::exchange(o_.create, nullptr)(o_.shape, listener);
    } catch (const std::exception& e) {
      made = refuse(reason::kind::unavailable, "the model was not opened: {}", e.what());
    }
    if (!made) return void(o_.refused = made.error());
    engine_ = std::move(*made);
  }
  o_.loan->begin(engine_);
}

/// The reason to decline prompts; empty: they are taken.
reason guest_state::refusal() const {
  if (!o_.refused.text.empty()) return o_.refused;
  if (o_.executor->paused())
    return {reason::kind::unavailable,
            fmt::format("{}: the training was delayed too often", paused_by_delay_budget)};
  return {};
}

// guest_prompts decides, and this actor carries out: it is the only part with threads, timers and a
// network.
void guest_state::on(const guest_message& m) {
  guest_prompts::changes c;
  const double now_s = o_.messenger.now_s();
  if (const auto* o = std::get_if<prefill_order>(&m.what))
    prompts_->on_order(m.from, *o, m.body, refusal(), now_s, c);
  else if (const auto* b = std::get_if<prefill_block>(&m.what))
    prompts_->on_block(m.from, *b, m.body, c);
  else if (const auto* r = std::get_if<blocks_received>(&m.what))
    prompts_->on_received(m.from, *r, now_s, c);
  else if (const auto* n = std::get_if<cancel_prefill>(&m.what))
    prompts_->on_cancel(m.from, n->name, c);
  carry_out(std::move(c));
}

void guest_state::on_result(guest_tile_result r) {
  guest_prompts::changes c;
  prompts_->on_result(std::move(r), o_.messenger.now_s(), c);
  carry_out(std::move(c));
}

// Forgotten prompts first, so that the engine does not begin their tiles; the executor is woken
// only for new tiles, since it looks for work by itself when an operation ends.
void guest_state::carry_out(guest_prompts::changes c) {
  for (const auto& name : c.forget) engine_->forget(name);
  for (auto& t : c.compute) engine_->add(std::move(t));
  if (!c.compute.empty()) o_.executor->wake();
  for (auto& m : c.send) o_.messenger.send(m.to, m.what, std::move(m.body));
  set_timer();
}

/// There is one timer; a later one replaces it only when it has fired.
void guest_state::set_timer() {
  const double at_s = prompts_->next_s();
  if (at_s == never || (timer_at_s_ > 0 && timer_at_s_ <= at_s)) return;
  timer_at_s_ = at_s;
  send_later(self_, std::max(0.0, at_s - o_.messenger.now_s()), call_now{[this, at_s] {
               if (timer_at_s_ != at_s) return;
               timer_at_s_ = 0;
               guest_prompts::changes c;
               prompts_->on_time(o_.messenger.now_s(), c);
               carry_out(std::move(c));
             }});
}

}  // namespace troupe::actors
