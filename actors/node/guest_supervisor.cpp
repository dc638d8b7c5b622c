#include "actors/node/guest_supervisor.hpp"

#include <utility>

#include "actors/serving/prefill/guest_device.hpp"
#include "gpu/device/simulated_executor.hpp"
#include "messages/base/find_in.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::actors {

namespace {

using timer_actor = actor_of<call_now>;

timer_actor::behavior_type late_calls(timer_actor::pointer) {
  return {[](const call_now& c) { c.what(); }};
}

/// May the guest go on, with its weights, beside the stage that is set up now?
bool same_guest(const guest_setup& a, const guest_setup& b) {
  return a.how == b.how && a.place.first_layer == b.place.first_layer &&
         a.place.layers == b.place.layers;
}

/// Can the stage's device have a guest?
expected<void> can_lend(const stage_setup& s) {
  if (!facts_of_device(s.backend).lends_to_guests)
    return refuse(reason::kind::infeasible, "devices of kind {} have no guests yet; use kind {}",
                  s.backend, real_devices(&device_facts::lends_to_guests));
  if (s.devices.size() != 1)
    return refuse(reason::kind::infeasible,
                  "a stage on {} devices has no guest; use one without tensor parallelism",
                  s.devices.size());
  return {};
}

}  // namespace

// One executor for each device, shared by the stage and its guest, because it is what gives the
// training its precedence. It stays when a stage is replaced. The timers of simulated ones run in
// an actor of their own.
std::shared_ptr<gpu::device_executor> guest_supervisor::executor_of(const stage_setup& s) {
  auto& known = devices_[s.devices.front()];
  if (known) return known;
  const auto* type = gpu::type_of(*device_kind_of(s.backend));  // can_lend() knows the kind
  if (type) return known = type->make_executor();
  if (!timers_) timers_ = node_.self->spawn<caf::linked>(late_calls);
  return known = std::make_shared<gpu::simulated_executor>(
             [clock = node_.host.clock] { return clock->now_s(); },
             [self = node_.self, to = timers_](double after_s, std::function<void()> what) {
               self->delayed_send(to, nanoseconds_of(after_s), call_now{std::move(what)});
             });
}

// A re-planned training sets its stages up again, often with the same guests. Reading a model again
// takes longer than many bubbles, so a guest with the same layers and device goes on with its
// prompts. A stage whose device cannot have a guest gets one that declines: the trainer's plan is
// not wrong for the training.
std::shared_ptr<gpu::device_executor> guest_supervisor::set_up(const stage_setup& s) {
  auto at = guests_.find(s.name);
  if (at != guests_.end()) {
    if (s.guest && same_guest(*s.guest, at->second.setup) && !s.devices.empty() &&
        s.devices.front() == at->second.device)
      return at->second.executor;
    end(at->second);
    guests_.erase(at);
  }
  if (!s.guest) return nullptr;
  auto& e = guests_[s.name];
  e.setup = *s.guest;
  e.device = s.devices.empty() ? 0 : s.devices.front();
  reason refused;
  if (const auto ok = can_lend(s); !ok) refused = ok.error();
  spawn(e, s, std::move(refused));
  return e.executor;
}

void guest_supervisor::spawn(entry& e, const stage_setup& s, reason refused) {
  guest_options o;
  o.messenger = node_.messenger();
  auto shape = shape_of(e.setup, node_.host.self);
  if (!shape) {
    refused = shape.error();
    o.shape.setup = e.setup;
    o.shape.node = node_.host.self;
  } else {
    o.shape = std::move(*shape);
  }
  const bool computes = !is_simulated(s.backend);
  if (refused.text.empty()) {
    o.executor = e.executor = executor_of(s);
    o.loan = e.loan = std::make_shared<device_loan>(e.executor);
  }
  o.refused = std::move(refused);
  if (computes)
    o.create = [kind = s.backend](guest_shape& on, guest_engine::listener done) {
      return open_guest_device(on, std::move(done), kind);
    };
  e.actor = node_.spawn<guest_state>(computes, std::move(o));
}

// The guest may be inside a call that takes minutes, on its own thread. The loan ends at once, from
// here: the device goes back to the training, and a model that is opened later does not get it.
void guest_supervisor::end(const entry& e) const {
  node_.kill(e.actor);
  if (e.loan) e.loan->end();
}

void guest_supervisor::stop(lease_id lease) {
  std::erase_if(guests_, [&](const auto& guest) {
    if (guest.first.lease != lease) return false;
    end(guest.second);
    return true;
  });
}

// An order names its guest by the stage; without that stage here, the answer spares the controller
// its limit.
void guest_supervisor::on_order(address from, const prefill_order& o, const payload& body) {
  const auto& group = o.group.guests;
  const auto* e = o.guest < group.size() ? find_in(guests_, group[o.guest].stage) : nullptr;
  if (e) return caf::anon_send(e->actor, guest_message{from, o, body});
  send_message(
      node_.host, from,
      prefill_progress{.name = o.name,
                       .guest = o.guest,
                       .now = prefill_progress::state::gone,
                       .why = {reason::kind::unavailable, "the stage of this guest is not here"}});
}

void guest_supervisor::on_message(address from, const message& m, const payload& body) {
  const bool of_gateway =
      std::holds_alternative<prefill_order>(m) || std::holds_alternative<cancel_prefill>(m);
  if (of_gateway && from != node_.gateway()) return;
  if (const auto* o = std::get_if<prefill_order>(&m)) return on_order(from, *o, body);
  if (!of_gateway && !std::holds_alternative<prefill_block>(m) &&
      !std::holds_alternative<blocks_received>(m))
    return;
  // A node has few guests; each knows its prompts.
  for (auto& [name, e] : guests_) caf::anon_send(e.actor, guest_message{from, m, body});
}

}  // namespace troupe::actors
