#include "actors/training/stage/stage_tensors.hpp"

#include <algorithm>
#include <utility>

#include "actors/protocol/actor_state.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"
#include "runtime/host/transport.hpp"

namespace troupe::actors {

namespace {

/// A sum waits for a stage of this node, which loses nothing, before it waits for others.
constexpr double own_node_s = request_timeout::min_s;

/// The path of tensors that do not leave the datacenter.
wan_path inside_datacenter() {
  wan_path p;
  p.pairs = 0;
  return p;
}

}  // namespace

void stage_tensors::begin(owner o) {
  owner_ = std::move(o);
  received_.begin(setup(), owner_.training->iteration());
}

address stage_tensors::address_of(std::uint32_t pipeline, std::uint32_t stage) const {
  const auto& s = setup();
  TROUPE_INVARIANT(pipeline != s.name.pipeline || stage < s.neighbours.size(),
                   "a neighbour is a stage of the pipeline");
  TROUPE_INVARIANT(pipeline == s.name.pipeline || pipeline < s.peers.size(),
                   "a peer is a pipeline of the training");
  return pipeline == s.name.pipeline ? s.neighbours[stage] : s.peers[pipeline];
}

bool stage_tensors::accept(const tensor& t) {
  if (t.term != setup().incarnation) return false;
  if (!received_.accepts(t.iteration) || received_.is_duplicate(t)) return false;
  sent_.on_received(t);
  const double now_s = owner_.reports->training_time_s();
  // The clock offset is unknown before the first run.
  if (owner_.training->has_begun()) timeout_.add_sample(t.what, now_s - t.sent_s);
  if (t.path.pairs > 0) received_.add_transfer(t, now_s);
  return true;
}

// Tensors inside a node are never lost, and those of a simulated device may take time there.
expected<void> stage_tensors::send(tensor t, payload body) {
  TROUPE_INVARIANT(executor_ != nullptr, "a tensor is sent after the stage has its device");
  auto& training = *owner_.training;
  if (t.path.pairs > 0) training.report().sent_bytes += t.bytes;
  if (body.bytes().size() > runtime::largest_tensor_bytes)
    return refuse(reason::kind::infeasible,
                  "a tensor of {} bytes exceeds the network's limit of {}: give the "
                  "job more pipelines or more stages",
                  body.bytes().size(), runtime::largest_tensor_bytes);
  t.from = training.name();
  t.iteration = training.iteration();
  t.term = setup().incarnation;
  t.sent_s = owner_.reports->training_time_s();
  t.flows = owner_.options->flows;
  const bool word = t.what == tensor::kind::ready || t.what == tensor::kind::commit;
  if (word && setup().view.value_or(0) > 0) t.view = setup().view;
  const auto to = address_of(t.to_pipeline, t.to_stage);
  const bool inside_node = to == host().self();
  if (inside_node && executor_->carry({t.from.lease, t.to_pipeline, t.to_stage}, t.bytes,
                                      [this, to, t, body] { host().send(to, t, body); }))
    return {};
  const bool sent = host().send(to, t, body);
  if (!inside_node) sent_.keep(t, std::move(body), host().now_s(), !sent);
  return {};
}

void stage_tensors::give(tensor t, payload body) {
  t.from = setup().name;
  t.term = setup().incarnation;
  t.sent_s = owner_.reports->training_time_s();
  t.flows = owner_.options->flows;
  t.view = setup().view;
  t.path = inside_datacenter();
  const auto to = address_of(t.to_pipeline, t.to_stage);
  if (to != host().self() || !executor_->carry({t.from.lease, t.to_pipeline, t.to_stage}, t.bytes,
                                               [this, to, t, body] { host().send(to, t, body); }))
    host().send(to, t, std::move(body));
}

wan_path stage_tensors::path_of(const gradient_all_reduce::outgoing& g) const {
  const auto& s = setup();
  if (g.what == tensor::kind::ready || g.what == tensor::kind::commit) {
    if (g.to_stage < s.name.stage) return s.backward;
    if (g.to_stage > s.name.stage) return s.forward;
    if (!s.sites || s.sites->datacenters[g.to_pipeline] == s.sites->datacenters[s.name.pipeline])
      return inside_datacenter();
    return s.sites->forward.pairs > 0 ? s.sites->forward : s.sites->backward;
  }
  if (g.what == tensor::kind::running && s.sites) return s.sites->forward;
  if (g.what == tensor::kind::running_sum && s.sites) return s.sites->backward;
  return g.to_stage == s.name.stage ? inside_datacenter() : s.tied;
}

expected<void> stage_tensors::send(gradient_exchange::outgoing gradients) {
  for (auto& g : gradients) {
    tensor t;
    t.what = g.what;
    t.to_pipeline = g.to_pipeline;
    t.to_stage = g.to_stage;
    t.microbatch = g.chunk;
    t.bytes = g.bytes;
    t.path = path_of(g);
    if (!g.records.empty()) t.records = std::move(g.records);
    if (auto ok = send(std::move(t), std::move(g.body)); !ok) return ok;
  }
  return {};
}

void stage_tensors::resend(const tensor_request& r) {
  for (auto& resent : sent_.take_due(r, host().now_s())) {
    auto& t = resent.header;
    t.sent_s = owner_.reports->training_time_s();
    if (owner_.options->marks_resent) t.resent = true;
    if (t.path.pairs > 0) owner_.training->report().sent_bytes += t.bytes;
    host().resend(address_of(t.to_pipeline, t.to_stage), t, std::move(resent.body));
  }
}

/// How long to wait for a tensor before requesting it: by the cost model until one was measured.
double stage_tensors::request_after_s(tensor::kind k) const {
  const auto& costs = setup().costs;
  const bool one_microbatch = k == tensor::kind::activation || k == tensor::kind::gradient;
  const bool between_peers = k == tensor::kind::partial || k == tensor::kind::sum || is_chunk(k);
  const auto bytes = one_microbatch  ? costs.activation_bytes
                     : between_peers ? costs.gradient_bytes
                                     : costs.tied_bytes;
  return timeout_.after_s(k, std::max(costs.wan_s, executor_->expected_transfer_s(bytes)));
}

void stage_tensors::await(std::size_t at, const stage_step* next) {
  const std::pair where{owner_.training->iteration(), at};
  if (std::exchange(awaited_, where) == where) return;
  std::optional<double> after_s;
  if (next)
    after_s = request_after_s(next->what == stage_step::kind::forward ? tensor::kind::activation
                                                                      : tensor::kind::gradient);
  else
    for (const auto& r : missing())
      after_s = std::min(after_s.value_or(r.older_than_s), r.older_than_s);
  waiting_since_s_ = host().now_s();
  check_at(waiting_since_s_ + after_s.value_or(own_node_s));
}

/// There is one timer, for the earliest time; when it fires, it is set for the next one. A timer
/// that was set for a later time fires without effect.
void stage_tensors::check_at(double at_s) {
  request_at_s_ = at_s;
  if (timer_at_s_ <= at_s) return;
  TROUPE_INVARIANT(owner_.self, "a stage waits for tensors after it has begun");
  timer_at_s_ = at_s;
  send_later(owner_.self, at_s - host().now_s(), call_now{[this, at_s] {
               if (timer_at_s_ != at_s) return;
               timer_at_s_ = never;
               request_missing();
             }});
}

void stage_tensors::request_missing() {
  const auto requests = missing();
  const double now_s = host().now_s();
  if (requests.empty()) {
    if (owner_.waits_for() == wait::sums) check_at(now_s + own_node_s);
    return;
  }
  if (now_s + timer_rounding_s < request_at_s_) return check_at(request_at_s_);
  double retry_s = requests.front().older_than_s / 2;
  for (const auto& r : requests) {
    host().send(address_of(r.to_pipeline, r.to_stage), r);
    retry_s = std::min(retry_s, r.older_than_s / 2);
  }
  // After a long wait the cause is usually a slow stage, not a lost tensor: request less often.
  check_at(now_s + std::max(retry_s, (now_s - waiting_since_s_) / 8));
}

/// A request to each stage on another host that has tensors which this one waits for.
std::vector<tensor_request> stage_tensors::missing() const {
  std::vector<tensor_request> result;
  const auto& me = setup().name;
  const auto add = [&](tensor::kind what, std::uint32_t pipeline, std::uint32_t stage,
                       std::vector<std::uint32_t> microbatches) {
    if (address_of(pipeline, stage) == host().self()) return;
    result.push_back({what, me, pipeline, stage, owner_.training->iteration(),
                      std::move(microbatches), request_after_s(what)});
  };
  switch (owner_.waits_for()) {
    case wait::none:
      break;
    case wait::input:
      if (auto all = received_.missing(tensor::kind::activation); !all.empty())
        add(tensor::kind::activation, me.pipeline, me.stage - 1, std::move(all));
      if (auto all = received_.missing(tensor::kind::gradient); !all.empty())
        add(tensor::kind::gradient, me.pipeline, me.stage + 1, std::move(all));
      break;
    case wait::sums:
      for (const auto& m : owner_.training->gradients().missing())
        add(m.what, m.from_pipeline, m.from_stage,
            is_chunk(m.what) ? std::vector{m.chunk} : std::vector<std::uint32_t>{});
      break;
  }
  return result;
}

void stage_tensors::restart_iteration() {
  const auto iteration = owner_.training->iteration();
  received_.begin(setup(), iteration);
  sent_.forget_from(iteration);
  await_anew();
}

/// Where a stage asks has changed.
void stage_tensors::await_anew() {
  awaited_ = {~std::uint64_t{0}, 0};
}

void stage_tensors::end_iteration() {
  received_.end_iteration();
  TROUPE_INVARIANT(received_.accepts(owner_.training->iteration()),
                   "a stage keeps tensors of the iteration that it does");
  sent_.begin_iteration(owner_.training->iteration());
  timeout_.next_iteration();
}

}  // namespace troupe::actors
