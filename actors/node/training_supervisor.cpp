#include "actors/node/training_supervisor.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "actors/training/device/stage_backend.hpp"
#include "actors/training/stage/stage_checks.hpp"
#include "actors/training/trainer/trainer.hpp"
#include "messages/base/find_in.hpp"
#include "messages/base/refuse.hpp"
#include "runtime/host/freed_memory.hpp"

namespace troupe::actors {

namespace {

constexpr double one_mib = 1 << 20;

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
  t.sites = s.sites;
  t.view = s.view;
  return t;
}

/// To a stage or a trainer.
template <class Actor, class T>
void pass_on(const Actor& to, address from, T& m, const payload& body) {
  caf::anon_send(to, inbound<T>{from, std::move(m), body, {}});
}

}  // namespace

void training_supervisor::begin(const work_order& w) {
  stop(w.lease);
  auto& p = parts_[w.lease];
  p.order = w;
  if (w.train->part != 0) return;
  trainer_options o{.cluster = node_.options.cluster,
                    .lease = w.lease,
                    .job = w.job,
                    .order = *w.train,
                    // A lease does not outlive its first node's incarnation.
                    .incarnation = ++trainers_,
                    .backend = node_.options.backend,
                    .messenger = node_.messenger()};
  // Planning takes seconds.
  p.trainer = node_.spawn<trainer_state>(!is_simulated(node_.options.backend), std::move(o));
}

void training_supervisor::stop(lease_id lease) {
  auto* p = find_in(parts_, lease);
  if (!p) return;
  for (auto& [name, s] : p->stages) node_.kill(s.actor);
  for (auto& [name, s] : p->standing) node_.kill(s.actor);
  if (p->trainer) node_.kill(p->trainer);
  guests_.stop(lease);
  end_workers(lease);
  parts_.erase(lease);
  return_memory_soon();
}

void training_supervisor::release(lease_id lease) {
  auto* p = find_in(parts_, lease);
  if (!p) return;
  for (auto& [name, s] : p->stages) caf::anon_send(s.actor, release_device{});
  for (auto& [name, s] : std::exchange(p->standing, {})) node_.kill(s.actor);
  for (const auto& [name, kept] : p->kept) kept->clear();
  guests_.stop(lease);
  end_workers(lease);
  if (p->trainer) node_.kill(std::exchange(p->trainer, {}));
  p->released_s = node_.host.clock->now_s();
  return_memory_soon();
}

/// Those of stages that are waiting for theirs to start, too: nothing else would end that.
void training_supervisor::end_workers(lease_id lease) {
  if (const auto& runner = node_.options.process_runner) runner->end_workers(lease);
}

void training_supervisor::remove_released() {
  std::vector<lease_id> old;
  for (const auto& [lease, p] : parts_)
    if (p.released_s && node_.host.clock->now_s() - *p.released_s > linger_s) old.push_back(lease);
  for (const auto lease : old) stop(lease);
}

void training_supervisor::return_memory_soon() {
  if (!is_simulated(node_.options.backend)) trim_at_s_ = node_.host.clock->now_s() + end_s;
}

// Each of malloc's arenas keeps what the threads of a part have freed. The next part has other
// threads, and without this the process would grow with each part until all arenas are as large.
// An arena's unused end remains, so large temporary memory is worth avoiding.
void training_supervisor::return_memory() {
  if (!trim_at_s_ || node_.host.clock->now_s() < *trim_at_s_) return;
  trim_at_s_.reset();
  runtime::return_freed_memory();
}

void training_supervisor::stop_gracefully(lease_id lease) {
  if (const auto* p = find_in(parts_, lease); p && p->trainer)
    caf::anon_send(p->trainer, stop_training{});
}

training_supervisor::part::entry* training_supervisor::stage_of(const stage_name& who) {
  auto* p = find_in(parts_, who.lease);
  return p ? find_in(p->stages, who) : nullptr;
}

void training_supervisor::on_message(address from, message& m, const payload& body) {
  std::visit(
      [&](auto& what) {
        if constexpr (requires { this->on(from, what, body); })
          this->on(from, what, body);
        else
          guests_.on_message(from, m, body);
      },
      m);
}

void training_supervisor::on(address from, stage_setup& s, const payload&) {
  if (const auto* p = find_in(parts_, s.name.lease);
      p && is_trainer(node_.cluster(), p->order, from))
    s.standby ? stand_by(from, std::move(s)) : set_up(from, std::move(s));
}

void training_supervisor::on(address from, stage_run& r, const payload& body) {
  auto* p = find_in(parts_, r.name.lease);
  if (!p || !is_trainer(node_.cluster(), p->order, from)) return;
  if (r.begin && (r.begin->takes || r.begin->restores)) join(*p, r.name);
  auto* to = stage_of(r.name);
  if (!to || (r.begin && r.begin->takes && !to->standby)) return;
  if (r.begin && !follow_view(to->topology, *r.begin)) return;
  if (r.begin) end_left(*p, *to, r.begin->pipelines);
  pass_on(to->actor, from, r, body);
}

/// The stage that stands by takes the place of one that has run here instead.
void training_supervisor::join(part& p, const stage_name& who) {
  const auto at = p.standing.find(who);
  if (at == p.standing.end()) return;
  auto& e = p.stages[who];
  if (e.actor) node_.kill(e.actor);
  e = std::move(at->second);
  p.standing.erase(at);
}

/// In this view stages of other pipelines share these weights no more.
void training_supervisor::end_left(part& p, const part::entry& of,
                                   const std::vector<std::uint32_t>& pipelines) {
  if (!of.replica) return;
  std::erase_if(p.stages, [&](auto& one) {
    auto& [name, e] = one;
    const bool left = &e != &of && e.replica == of.replica &&
                      !std::ranges::binary_search(pipelines, name.pipeline);
    if (left && e.actor) node_.kill(e.actor);
    return left;
  });
}

/// The device's own stage, and those that shared it. True: there was one.
bool training_supervisor::end_lost(part& p, const stage_name& who) {
  const auto* own = find_in(p.stages, who);
  if (!own || own->devices == 0) return false;
  const auto replica = own->replica;
  std::erase_if(p.stages, [&](auto& one) {
    auto& [name, e] = one;
    const bool lost = name == who || (replica && e.replica == replica);
    if (lost && e.actor) node_.kill(e.actor);
    return lost;
  });
  return true;
}

void training_supervisor::on(address from, stage_report& r, const payload&) {
  const auto* p = find_in(parts_, r.name.lease);
  if (p && p->trainer && is_lease_node(node_.cluster(), p->order, from))
    pass_on(p->trainer, from, r, {});
}

void training_supervisor::on(address from, tensor& t, const payload& body) {
  const auto* to = stage_of({t.from.lease, t.to_pipeline, t.to_stage});
  if (to && comes_from_its_stage(to->topology, t, from)) pass_on(to->actor, from, t, body);
}

void training_supervisor::on(address from, tensor_request& r, const payload& body) {
  const auto* to = stage_of({r.from.lease, r.to_pipeline, r.to_stage});
  if (to && is_asked_by_its_stage(to->topology, r, from)) pass_on(to->actor, from, r, body);
}

void training_supervisor::on(address from, training_report_ack& a, const payload&) {
  if (const auto* p = find_in(parts_, a.lease); p && p->trainer) pass_on(p->trainer, from, a, {});
}

void training_supervisor::set_up(address trainer, stage_setup s) {
  auto* p = find_in(parts_, s.name.lease);
  if (!p || p->released_s) return;
  if (auto ok = check_setup(s, p->order); !ok) return report(trainer, s, ok.error());
  if (s.shares_with)
    if (const auto* with = stage_of({s.name.lease, *s.shares_with, s.name.stage});
        !with || !with->replica)
      return report(trainer, s,
                    because(reason::kind::unavailable, "pipeline {} has no stage {} on this node",
                            *s.shares_with, s.name.stage));
  auto [it, fresh] = p->stages.try_emplace(s.name);
  auto& e = it->second;
  // One that a later view sets up anew had not begun.
  const bool again = s.shares_with && s.view.value_or(0) > e.topology.view.value_or(0);
  if (!fresh && s.incarnation <= e.incarnation && !again) {
    if (!e.actor || s.incarnation < e.incarnation) return;
    return repeat(e, trainer, s);
  }
  if (e.actor) node_.kill(e.actor);
  begin_stage(*p, e, trainer, std::move(s));
}

/// The setup was repeated: has the stage repeat its report.
void training_supervisor::repeat(const part::entry& e, address trainer, const stage_setup& s) {
  if (e.created && !*e.created) return report(trainer, s, {});
  stage_run again{s.name, 0, 0, {}, {}, {}};
  pass_on(e.actor, trainer, again, {});
}

/// A device that was lost is free of what ran on it before it is made ready again.
void training_supervisor::stand_by(address trainer, stage_setup s) {
  auto* p = find_in(parts_, s.name.lease);
  if (!p || p->released_s) return;
  if (auto ok = check_setup(s, p->order); !ok) return report(trainer, s, ok.error());
  if (const auto* own = find_in(p->stages, s.name); own && own->standby >= *s.standby) return;
  auto& e = p->standing[s.name];
  if (e.actor && e.standby >= *s.standby) return repeat(e, trainer, s);
  if (e.actor) node_.kill(std::exchange(e.actor, {}));
  if (end_lost(*p, s.name)) return report(trainer, s, {});
  begin_stage(*p, e, trainer, std::move(s));
}

void training_supervisor::begin_stage(part& p, part::entry& e, address trainer, stage_setup s) {
  e = {};
  e.incarnation = s.incarnation;
  e.standby = s.standby.value_or(0);
  e.devices = s.shares_with ? 0 : s.devices.size();
  e.topology = topology_of(s);
  if (s.view)
    e.replica = s.shares_with ? stage_of({s.name.lease, *s.shares_with, s.name.stage})->replica
                              : std::make_shared<stage_replica>(s.name.pipeline, s.first_iteration);
  const auto& c = node_.cluster();
  const auto me = node_.index();
  stage_options o;
  o.trainer = trainer;
  o.messenger = node_.messenger();
  o.slowdown = node_.options.slowdown;
  o.on_weights = node_.options.on_weights;
  o.start_s = p.order.start_s;
  o.received_s = node_.host.clock->now_s();
  const auto gpus = std::max<std::uint32_t>(1, static_cast<std::uint32_t>(s.devices.size()));
  o.same_node = link_cost_between(c, me, me, gpus);
  for (node_index n = 0; n < c.nodes.size(); ++n)
    if (n != me && c.nodes[n].datacenter == c.nodes[me].datacenter)
      o.slowest_lan =
          std::max(o.slowest_lan, link_cost_between(c, n, me, gpus),
                   [](auto& a, auto& b) { return a.alone_s(one_mib) < b.alone_s(one_mib); });
  if (gpus > 1 && has_flow_rates(c)) o.flows = gpus;
  o.marks_resent = prices_traffic(c);
  const bool computes = !is_simulated(s.backend);
  o.executor = guests_.set_up(s);
  o.gateway = node_.gateway();
  if (computes) {
    o.create = [s, make_cuda = node_.options.make_cuda, executor = o.executor,
                start = workers_of(s, p.order), replica = e.replica] {
      return s.shares_with ? share_backend(s, replica->backend())
                           : make_backend(s, executor, make_cuda, start);
    };
    if (!s.how.checkpoint.empty() && !writer_) writer_ = gpu::make_checkpoint_writer();
    o.writer = writer_;
    o.created = e.created = std::make_shared<std::atomic<bool>>(false);
  }
  if (computes && s.keeps) {
    auto& kept = p.kept[s.name];
    if (!kept || !s.standby) kept = std::make_shared<kept_states>();
    o.kept = kept;
  }
  o.replica = e.replica;
  o.setup = std::move(s);
  e.actor = node_.spawn<stage_state>(computes, std::move(o));
}

/// With the order's environment. Null: this node starts none.
gpu::worker_starter training_supervisor::workers_of(const stage_setup& s,
                                                    const work_order& order) const {
  const auto& runner = node_.options.process_runner;
  auto start = runner && s.how.program ? runner->workers(s.name.lease) : nullptr;
  if (!start) return nullptr;
  std::vector<std::pair<std::string, std::string>> variables;
  for (const auto& v : order.environment)
    if (const auto equals = v.find('='); equals != std::string::npos)
      variables.emplace_back(v.substr(0, equals), v.substr(equals + 1));
  return [start = std::move(start), variables = std::move(variables)](gpu::worker_launch what) {
    // The job's come first: what the worker depends on takes the place of theirs.
    what.environment.insert(what.environment.begin(), variables.begin(), variables.end());
    return start(what);
  };
}

/// For a stage that cannot be set up; without a reason, for one whose device is not ready yet.
void training_supervisor::report(address trainer, const stage_setup& s, const reason& why) const {
  stage_report r;
  r.name = s.name;
  r.incarnation = s.incarnation;
  r.why = why;
  r.starting = why.text.empty();
  r.standby = s.standby;
  node_.messenger().send(trainer, r);
}

bool training_supervisor::on_training_over(training_over& over) {
  auto* p = find_in(parts_, over.lease);
  if (!p) return false;
  if (is_lost_device(over)) return true;
  if (over.trainer) {
    p->trainer_over = true;
    p->peak_bytes = over.peak_bytes;
  }
  // A stage has thrown.
  if (over.how != part_report::state::succeeded) return true;
  if (auto* s = over.trainer ? nullptr : find_in(p->stages, over.who)) s->over = true;
  // Every device of a part belongs to one stage.
  std::size_t over_devices = 0;
  bool all = true;  // those that share others' devices, too
  for (const auto& [name, s] : p->stages) {
    if (s.over) over_devices += s.devices;
    all = all && s.over;
  }
  all = all && over_devices == p->order.devices.size();
  over.how = part_report::state::succeeded;
  over.peak_bytes = p->peak_bytes;
  // A trainer outlives the stages of its training; what is left then has been left behind.
  return p->trainer ? p->trainer_over : all;
}

}  // namespace troupe::actors
