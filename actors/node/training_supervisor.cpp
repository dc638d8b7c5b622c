#include "actors/node/training_supervisor.hpp"

#include <malloc.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "actors/training/stage_backend.hpp"
#include "actors/training/stage_checks.hpp"
#include "actors/training/trainer.hpp"
#include "messages/domain/device_kind.hpp"

namespace troupe::actors {

namespace {

/// How long the stages of a part that is over remain, to resend their last tensors.
constexpr double linger_s = 60;
/// How long the actors of a part may take to end and free their memory.
constexpr double end_s = 2;

/// The fields of a setup that determine which hosts may send its tensors, without order and model.
stage_setup topology_of(const stage_setup& s) {
  stage_setup t;
  t.name = s.name;
  t.stages = s.stages;
  t.pipelines = s.pipelines;
  t.microbatches = s.microbatches;
  t.neighbours = s.neighbours;
  t.peers = s.peers;
  return t;
}

}  // namespace

void training_supervisor::start(node_actor::pointer self, runtime::host h, shared_cluster c,
                                std::string backend, gpu::cuda_device_maker make_cuda) {
  self_ = self;
  host_ = std::move(h);
  cluster_ = std::move(c);
  backend_ = std::move(backend);
  make_cuda_ = std::move(make_cuda);
  guests_.start(self_, host_, cluster_);
}

void training_supervisor::begin(const work_order& w, std::function<double()> slowdown) {
  stop(w.lease);
  auto& p = parts_[w.lease];
  p.order = w;
  p.slowdown = std::move(slowdown);
  if (w.train->part != 0) return;
  trainer_options o;
  o.cluster = cluster_;
  o.lease = w.lease;
  o.job = w.job;
  o.order = *w.train;
  o.incarnation = ++trainers_;  // a lease does not outlive its first node's incarnation
  o.backend = backend_;
  o.messenger = messenger{host_, node_actor{self_}};
  if (is_simulated(backend_))
    p.trainer = spawn_actor<trainer_state, caf::linked>(*self_, std::move(o));
  else  // planning takes seconds
    p.trainer = spawn_actor<trainer_state, caf::linked + caf::detached>(*self_, std::move(o));
}

void training_supervisor::stop(lease_id lease) {
  const auto it = parts_.find(lease);
  if (it == parts_.end()) return;
  auto& p = it->second;
  const auto end = [this](const auto& actor) {
    self_->unlink_from(actor->address());
    caf::anon_send_exit(actor, caf::exit_reason::kill);
  };
  for (auto& [name, s] : p.stages) end(s.actor);
  if (p.trainer) end(p.trainer);
  guests_.stop(lease);
  parts_.erase(it);
  return_memory_soon();
}

void training_supervisor::release(lease_id lease) {
  auto* p = part_of(lease);
  if (!p) return;
  for (auto& [name, s] : p->stages) caf::anon_send(s.actor, release_device{});
  guests_.stop(lease);
  if (p->trainer) {
    self_->unlink_from(p->trainer->address());
    caf::anon_send_exit(std::exchange(p->trainer, {}), caf::exit_reason::kill);
  }
  p->released_s = host_.clock->now_s();
  return_memory_soon();
}

void training_supervisor::remove_released() {
  std::vector<lease_id> old;
  for (const auto& [lease, p] : parts_)
    if (p.released_s && host_.clock->now_s() - *p.released_s > linger_s) old.push_back(lease);
  for (const auto lease : old) stop(lease);
}

void training_supervisor::return_memory_soon() {
  if (!is_simulated(backend_)) trim_at_s_ = host_.clock->now_s() + end_s;
}

// Each of malloc's arenas keeps what the threads of a part have freed. The next part has other
// threads, and without this the process would grow with each part until all arenas are as large.
// An arena's unused end remains, so large temporary memory is worth avoiding.
void training_supervisor::return_memory() {
  if (!trim_at_s_ || host_.clock->now_s() < *trim_at_s_) return;
  trim_at_s_.reset();
  ::malloc_trim(0);
}

void training_supervisor::stop_gracefully(lease_id lease) {
  if (const auto* p = part_of(lease); p && p->trainer) caf::anon_send(p->trainer, stop_training{});
}

training_supervisor::part* training_supervisor::part_of(lease_id lease) {
  const auto it = parts_.find(lease);
  return it == parts_.end() ? nullptr : &it->second;
}

/// Is this a host that may send this message in its lease? Messages from others are dropped.
bool training_supervisor::may_send(address from, const message& m) {
  const auto order = [this](lease_id lease) -> const work_order* {
    const auto* p = part_of(lease);
    return p ? &p->order : nullptr;
  };
  if (const auto* s = std::get_if<stage_setup>(&m)) {
    const auto* o = order(s->name.lease);
    return o && is_trainer(*cluster_, *o, from);
  }
  if (const auto* r = std::get_if<stage_run>(&m)) {
    const auto* o = order(r->name.lease);
    return o && is_trainer(*cluster_, *o, from);
  }
  if (const auto* r = std::get_if<stage_report>(&m)) {
    const auto* o = order(r->name.lease);
    return o && is_lease_node(*cluster_, *o, from);
  }
  const auto topology = [this](lease_id lease, std::uint32_t pipeline,
                               std::uint32_t stage) -> const stage_setup* {
    auto* p = part_of(lease);
    if (!p) return nullptr;
    const auto at = p->stages.find({lease, pipeline, stage});
    return at == p->stages.end() ? nullptr : &at->second.topology;
  };
  if (const auto* t = std::get_if<tensor>(&m)) {
    const auto* to = topology(t->from.lease, t->to_pipeline, t->to_stage);
    return to && comes_from_its_stage(*to, *t, from);
  }
  if (const auto* r = std::get_if<tensor_request>(&m)) {
    const auto* to = topology(r->from.lease, r->to_pipeline, r->to_stage);
    return to && is_asked_by_its_stage(*to, *r, from);
  }
  return true;
}

void training_supervisor::on_message(address from, message& m, const payload& body) {
  if (!may_send(from, m)) return;
  if (auto* s = std::get_if<stage_setup>(&m)) {
    on_stage_setup(from, std::move(*s));
  } else if (auto* r = std::get_if<stage_run>(&m)) {
    to_stage(r->name, from, *r, body);
  } else if (auto* t = std::get_if<tensor>(&m)) {
    to_stage({t->from.lease, t->to_pipeline, t->to_stage}, from, *t, body);
  } else if (auto* request = std::get_if<tensor_request>(&m)) {
    to_stage({request->from.lease, request->to_pipeline, request->to_stage}, from, *request, body);
  } else if (auto* report = std::get_if<stage_report>(&m)) {
    if (auto* p = part_of(report->name.lease); p && p->trainer)
      caf::anon_send(p->trainer, inbound<stage_report>{from, std::move(*report), {}, {}});
  } else if (auto* ack = std::get_if<training_report_ack>(&m)) {
    if (auto* p = part_of(ack->lease); p && p->trainer)
      caf::anon_send(p->trainer, inbound<training_report_ack>{from, *ack, {}, {}});
  } else {
    guests_.on_message(from, m, body);
  }
}

template <class T>
void training_supervisor::to_stage(const stage_name& who, address from, T& m, const payload& body) {
  auto* p = part_of(who.lease);
  if (!p) return;
  if (const auto it = p->stages.find(who); it != p->stages.end())
    caf::anon_send(it->second.actor, inbound<T>{from, std::move(m), body, {}});
}

void training_supervisor::on_stage_setup(address trainer, stage_setup s) {
  auto* p = part_of(s.name.lease);
  if (!p || p->released_s) return;
  if (auto ok = check_setup(s, p->order); !ok) return report_failure(trainer, s, ok.error());
  auto [it, fresh] = p->stages.try_emplace(s.name);
  auto& e = it->second;
  if (!fresh && s.incarnation <= e.incarnation) {
    if (!e.actor || s.incarnation < e.incarnation) return;
    if (e.created && !*e.created) return report_starting(trainer, s);
    // The setup was repeated: have the stage repeat its report.
    caf::anon_send(e.actor, inbound<stage_run>{trainer, {s.name, 0, 0, {}, {}, {}}, {}, {}});
    return;
  }
  if (e.actor) {
    self_->unlink_from(e.actor->address());
    caf::anon_send_exit(e.actor, caf::exit_reason::kill);
  }
  e = {};
  e.incarnation = s.incarnation;
  e.devices = s.devices.size();
  e.topology = topology_of(s);
  stage_options o;
  o.trainer = trainer;
  o.messenger = messenger{host_, node_actor{self_}};
  o.slowdown = p->slowdown;
  o.start_s = p->order.start_s;
  o.received_s = host_.clock->now_s();
  const auto me = node_of(host_.self);
  o.same_node = link_cost_between(*cluster_, me, me);
  for (node_index n = 0; n < cluster_->nodes.size(); ++n)
    if (n != me && cluster_->nodes[n].datacenter == cluster_->nodes[me].datacenter)
      o.slowest_lan = std::max(o.slowest_lan, link_cost_between(*cluster_, n, me),
                               [](auto& a, auto& b) { return a.s_per_byte < b.s_per_byte; });
  const bool computes = !is_simulated(s.backend);
  o.executor = guests_.set_up(s);
  o.gateway = gateway_address(cluster_->nodes[me].datacenter);
  if (computes) {
    o.create = [s, make_cuda = make_cuda_, executor = o.executor] {
      return make_backend(s, executor, make_cuda);
    };
    o.created = e.created = std::make_shared<std::atomic<bool>>(false);
  }
  o.setup = std::move(s);
  if (computes)
    e.actor = spawn_actor<stage_state, caf::linked + caf::detached>(*self_, std::move(o));
  else
    e.actor = spawn_actor<stage_state, caf::linked>(*self_, std::move(o));
}

void training_supervisor::report_starting(address trainer, const stage_setup& s) {
  stage_report r;
  r.name = s.name;
  r.incarnation = s.incarnation;
  r.starting = true;
  messenger{host_, node_actor{self_}}.send(trainer, r);
}

void training_supervisor::report_failure(address trainer, const stage_setup& s, const reason& why) {
  stage_report r;
  r.name = s.name;
  r.incarnation = s.incarnation;
  r.why = why;
  messenger{host_, node_actor{self_}}.send(trainer, r);
}

bool training_supervisor::on_training_over(training_over& over) {
  auto* p = part_of(over.lease);
  if (!p) return false;
  if (is_lost_device(over)) return true;
  if (over.trainer) {
    p->trainer_over = true;
    if (over.how != part_report::state::succeeded) return true;
  } else if (const auto it = p->stages.find(over.who); it != p->stages.end()) {
    it->second.over = true;
  }
  // Every device of a part belongs to one stage.
  std::size_t over_devices = 0;
  for (const auto& [name, s] : p->stages)
    if (s.over) over_devices += s.devices;
  const bool all = over_devices == p->order.devices.size();
  over.how = part_report::state::succeeded;
  return all && (!p->trainer || p->trainer_over);
}

}  // namespace troupe::actors
