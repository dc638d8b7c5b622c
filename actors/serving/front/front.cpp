#include "actors/serving/front/front.hpp"

#include <algorithm>
#include <utility>

#include "actors/protocol/follow_cluster.hpp"
#include "actors/protocol/messenger.hpp"

namespace troupe::actors {

void front_state::start(front_actor::pointer self, runtime::host h, shared_cluster c,
                        completions local, std::function<void()> on_removed) {
  self_ = self;
  on_removed_ = std::move(on_removed);
  host_ = std::move(h);
  cluster_ = c;
  guard_ = frame_guard{host_, c};
  requests_ = front_requests{host_, std::move(c)};
  local_ = std::move(local);
  publish();
  // The handle may outlive the actor: a strong reference would keep it alive.
  const auto weak = caf::weak_actor_ptr{self->ctrl()};
  const auto post = [weak](std::function<void()> call) {
    if (const auto strong = weak.lock())
      caf::anon_send(caf::actor_cast<front_actor>(strong), call_now{std::move(call)});
  };
  local_.connect({[this, post](std::uint64_t n, model_prompt p, completion_listener l) {
                    post([this, n, p = std::move(p), l = std::move(l)] {
                      requests_.submit(n, p, l);
                      set_timer();
                    });
                  },
                  [this, post](std::uint64_t n, bool enough) {
                    post([this, n, enough] { requests_.cancel(n, enough); });
                  }});
  report();
  set_timer();
}

void front_state::on(const arrived& a) {
  on_frame(a.what);
  host_.net->handled(a.what);
}

// A frame from a host that may not send it, to another host, or that cannot be decoded counts as
// lost: its sender repeats what matters.
void front_state::on_frame(const frame& f) {
  const auto envelope = peek(f.header.bytes());
  if (!envelope || !guard_.admits(*envelope) || envelope->to != host_.self) return;
  const auto decoded = decode(f.header.bytes());
  if (!decoded) return;
  if (const auto* changed = std::get_if<cluster_update>(&decoded->second)) {
    if (follow_cluster(cluster_, changed->cluster, host_.self)) report_at_s_ = 0, report();
    return;
  }
  requests_.on_message(envelope->from, decoded->second);
  const auto& m = decoded->second;
  if (std::holds_alternative<decoder_state>(m) || std::holds_alternative<serving_leases>(m))
    publish();
}

void front_state::on(const tick&) {
  if (host_.clock->now_s() < tick_at_s_ - timer_rounding_s) return;
  tick_at_s_ = 0;
  requests_.on_tick();
  end_if_removed();
  publish();
  report();
  set_timer();
}

// A front that is no longer in the cluster's file finishes its requests, but not for longer than
// programs have to save their state.
void front_state::end_if_removed() {
  if (!on_removed_ || !cluster_->fronts[front_of(host_.self)].removed) return;
  const auto now_s = host_.clock->now_s();
  if (removed_s_ == 0) removed_s_ = now_s;
  if (requests_.size() == 0 || now_s - removed_s_ >= cluster_->settings.grace_s) on_removed_();
}

/// For display; the controller bases no decision on it.
void front_state::report() {
  const auto now_s = host_.clock->now_s();
  if (now_s < report_at_s_ - timer_rounding_s) return;
  report_at_s_ = now_s + cluster_->settings.heartbeat_s;
  auto r = requests_.report();
  r.incarnation = host_.incarnation;
  r.sequence = ++reports_;
  if (cluster_->version > 0) r.cluster = cluster_->version;
  send_message(host_, controller_address, r);
}

/// Slower while there is nothing to repeat: then only silent decoders are looked for.
void front_state::set_timer() {
  const auto in_s = requests_.is_busy() ? front_requests::tick_s : cluster_->settings.heartbeat_s;
  const auto at_s = host_.clock->now_s() + in_s;
  if (tick_at_s_ > 0 && tick_at_s_ <= at_s) return;
  tick_at_s_ = at_s;
  send_later(self_, in_s, tick{});
}

// HTTP threads must not wait for this actor: they read a copy, in which a model's decoders are
// summed up. It is renewed with each description of a decoder.
void front_state::publish() {
  front_view now;
  now.requests = requests_.size();
  now.has_statement = requests_.decoders().has_statement();
  for (const auto& m : requests_.decoders().statement().models) now.served.insert(m.name);
  for (const auto& [name, d] : requests_.decoders().all()) {
    auto& m = now.models[d.state.model];
    m.folder = d.state.folder;
    m.files = d.state.files;
    ++m.decoders;
    m.context = std::max(m.context, d.state.context);
    m.pages += d.state.pages;
    m.free_pages += d.state.free_pages;
    m.running += d.state.running;
    m.waiting += d.state.waiting;
    m.max_sequences += d.state.max_sequences;
    m.cached_pages += d.state.cached_pages.value_or(0);
    if (d.state.adapters) m.adapters.insert(d.state.adapters->begin(), d.state.adapters->end());
  }
  for (auto& [name, m] : now.models) {
    const auto n = requests_.decoders().counts_of(name);
    m.set_back = n.set_back;
    m.computed_prompt = n.computed_prompt;
    m.cached_prompt = n.cached_prompt;
  }
  local_.publish(std::move(now));
}

}  // namespace troupe::actors
