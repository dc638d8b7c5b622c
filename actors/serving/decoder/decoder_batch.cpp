// The decoder's batch: what its device executes, and the times at which something is due.

#include <algorithm>
#include <utility>

#include "actors/protocol/timing.hpp"
#include "actors/serving/decoder/decoder.hpp"
#include "messages/base/invariant.hpp"

namespace troupe::actors {

namespace {

// Checks are not closer to each other than this.
constexpr double shortest_wait_s = 0.005;

}  // namespace

void decoder_behavior::open() {
  // The executor calls back on its own thread.
  o_.executor->open([this, to = decoder_actor{self_}](expected<decoder_model> m) {
    caf::anon_send(to, call_now{[this, m = std::move(m)] { on_open(m); }});
  });
}

void decoder_behavior::on_open(const expected<decoder_model>& m) {
  if (over_) return;
  if (!m) return fail(m.error());
  model_ = *m;
  context_ = o_.what.context == 0 ? m->positions : std::min(o_.what.context, m->positions);
  queue_.emplace(gpu::batch_queue::limits{std::max(o_.what.max_running, 1u)}, m->pages);
  send_state();
}

/// The decoder is over, and with it all requests; each front hears it at least once.
void decoder_behavior::fail(const reason& why) {
  over_ = true;
  send_state();
  for (auto& [k, r] : requests_) {
    if (!r.output.ended()) finish(r, generated::ending::failed, why);
    send(r.output.state());
  }
  requests_.clear();
  changed_.clear();
  caf::anon_send(o_.messenger.node(), serving_over{o_.lease, why.text});
}

/// Tells the fronts what is new, admits requests, and lets the device begin its next round.
void decoder_behavior::go_on() {
  if (!queue_ || over_) return;
  // One that ends at once makes room for others.
  for (auto fresh = queue_->admit(); !fresh.empty(); fresh = queue_->admit())
    for (const auto s : fresh) {
      auto& r = *find(s);
      r.admitted_s = now();
      if (prefills_in_bubbles(r.about.what)) begin_prefill(r);
    }
  for (const auto& k : std::exchange(changed_, {})) {
    auto& output = requests_.at(k).output;
    while (const auto update = output.take_update(now())) send(*update);
    wake_at(output.next_due_s());
  }
  if (busy_ || queue_->idle()) return;
  busy_ = true;
  o_.executor->execute(queue_->next(), [this, to = decoder_actor{self_}](
                                           expected<std::vector<gpu::batch_result>> all) {
    caf::anon_send(to, call_now{[this, all = std::move(all)] { on_round(all); }});
  });
}

void decoder_behavior::on_round(const expected<std::vector<gpu::batch_result>>& all) {
  busy_ = false;
  if (over_) return;
  if (!all) return fail(all.error());
  for (const auto& x : *all)
    if (auto* r = find(x.sequence)) take(*r, x);
  go_on();
}

void decoder_behavior::take(request& r, const gpu::batch_result& x) {
  if (x.failed) return finish(r, generated::ending::failed, *x.failed);
  for (const auto& t : x.scored)
    if (++r.scored > r.about.replay) add(r, t);
  if (x.next) {
    queue_->took(x.sequence, x.next->chosen.token);
    add(r, *x.next);
    const auto& last = r.about.what.last_tokens;
    if (std::count(last.begin(), last.end(), x.next->chosen.token) > 0)
      return finish(r, generated::ending::stop);
  }
  if (r.output.tokens() >= r.about.what.answer_tokens()) finish(r, generated::ending::length);
}

/// A token of the answer that its front does not have.
void decoder_behavior::add(request& r, const generated_token& t) {
  if (r.output.tokens() == r.about.replay) {
    if (!r.where.bubbles) r.where.prefill_s = now() - r.admitted_s;
    r.output.set_where(r.where);
  }
  r.output.add(t);
  changed_.insert(key_of(r.about.name));
}

/// Does what is due, and has itself called for the rest.
void decoder_behavior::check_times() {
  if (over_) return;
  double next_s = repeat_cancels();
  for (auto& [k, r] : requests_) {
    if (const auto due = r.output.take_due(now())) send(*due);
    check_prefill(r);
    next_s = std::min({next_s, r.output.next_due_s(), r.prefill ? r.prefill->next_due_s() : never});
  }
  go_on();
  wake_at(next_s);
}

void decoder_behavior::wake_at(double at_s) {
  if (at_s >= wake_at_s_) return;
  wake_at_s_ = std::max(at_s, now() + shortest_wait_s);
  self_->delayed_send(decoder_actor{self_}, nanoseconds_of(wake_at_s_ - now()),
                      call_now{[this, at_s = wake_at_s_] {
                        if (at_s != wake_at_s_) return;  // an earlier one has taken its place
                        wake_at_s_ = never;
                        check_times();
                      }});
}

}  // namespace troupe::actors
