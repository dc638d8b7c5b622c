// The end of an iteration at a stage: the all-reduce of its gradients with its peers, by the hosts
// or by the devices, and the optimizer step.
#include <span>
#include <utility>
#include <vector>

#include "actors/training/stage.hpp"

namespace troupe::actors {

namespace {

using operation_kind = gpu::operation::kind;

}  // namespace

void stage_state::clear(inbox& box, std::uint64_t iteration) {
  box.iteration = iteration;
  box.activation.assign(o_.setup.microbatches, {});
  box.gradient.assign(o_.setup.microbatches, {});
  box.host_sum = gradient_all_reduce{o_.setup};
  box.device_sum.begin(o_.setup);
  box.hops = {};
}

/// GPUs of several pipelines may all-reduce their gradients directly. The stage reports whether its
/// device can; if all peers' devices can, the trainer sends them pipeline 0's group id.
void stage_state::request_group_id() {
  const bool alone = o_.setup.pipelines == 1 && o_.setup.devices.size() <= 1;
  if (alone || !executor_->may_join_group()) return report_ready();
  phase_ = phase::group_id;
  gpu::operation o;
  o.what = operation_kind::make_group_id;
  o.rank = o_.setup.name.pipeline;
  o.size = o_.setup.pipelines;
  submit(std::move(o));
}

void stage_state::join_group(const stage_run& r) {
  phase_ = phase::joining;
  joined_ = true;
  gpu::operation o;
  o.what = operation_kind::join_group;
  o.rank = o_.setup.name.pipeline;
  o.size = o_.setup.pipelines;
  const auto bytes = std::as_bytes(std::span{r.group_id});
  o.in = {payload{std::vector<std::byte>{bytes.begin(), bytes.end()}}};
  submit(std::move(o));
}

void stage_state::begin_gradients() {
  const bool alone = !gradient_all_reduce::needed(o_.setup);
  if (alone || !executor_->has_gradients()) return update({}, {});
  if (joined_) {
    phase_ = phase::exchange;
    exchange_began_s_ = o_.messenger.now_s();
    return advance_exchange();
  }
  phase_ = phase::gradients;
  gpu::operation o;
  o.what = operation_kind::gradients;
  submit(std::move(o));
}

void stage_state::begin_exchange(gpu::outcome o) {
  phase_ = phase::exchange;
  exchange_began_s_ = o_.messenger.now_s();
  auto g = executor_->take_gradients(o);
  own_bytes_ = g.own_bytes, tied_bytes_ = g.tied_bytes;
  send_all(current().host_sum.begin(std::move(g.own), own_bytes_, std::move(g.tied), tied_bytes_));
  advance_exchange();
}

void stage_state::advance_exchange() {
  if (joined_) return advance_device_exchange();
  if (failed_) return;
  if (const auto& error = current().host_sum.error(); !error.empty())
    return fail({reason::kind::malformed, error});
  if (!current().host_sum.complete()) {
    lend(o_.setup.order.size() + 1);
    return await_tensors();
  }
  record_task(task_kind::reduce, 0, o_.messenger.now_s() - exchange_began_s_);
  auto [own, tied] = current().host_sum.result();
  update(std::move(own), std::move(tied));
}

void stage_state::advance_device_exchange() {
  if (busy_ || failed_) return;
  auto& sum = current().device_sum;
  if (sum.can_start()) {
    gpu::operation o;
    o.what = operation_kind::sum;
    o.in = sum.start();
    return submit(std::move(o));
  }
  if (!sum.complete()) return await_tensors();
  record_task(task_kind::reduce, 0, o_.messenger.now_s() - exchange_began_s_);
  update({}, sum.result());
}

void stage_state::update(payload own, payload tied) {
  phase_ = phase::update;
  gpu::operation o;
  o.what = operation_kind::update;
  if (!own.bytes().empty() || !tied.bytes().empty()) o.in = {std::move(own), std::move(tied)};
  o.scale = 1.0 / (static_cast<double>(o_.setup.microbatches) * o_.setup.pipelines);
  submit(std::move(o));
}

void stage_state::send_all(std::vector<gradient_all_reduce::outgoing> tensors) {
  wan_path inside;
  inside.pairs = 0;
  for (auto& t : tensors) {
    const bool to_peer = t.to_stage == o_.setup.name.stage;
    send(t.what, t.to_pipeline, t.to_stage, 0, std::move(t.body), t.bytes,
         to_peer ? inside : o_.setup.tied);
  }
}

}  // namespace troupe::actors
