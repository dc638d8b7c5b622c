// A stage's gradients at the end of an iteration: summed with its peers', by the hosts or by their
// devices, and its update.
#include <span>
#include <utility>
#include <vector>

#include "actors/training/stage.hpp"

namespace troupe::actors {

namespace {

using operation_kind = gpu::operation::kind;

}  // namespace

/// GPUs of several pipelines may sum their gradients among themselves: the trainer hears if this
/// one can, and tells all of a stage's peers what they meet by if all can.
void stage_state::meet() {
  const bool alone = o_.setup.pipelines == 1 && o_.setup.devices.size() <= 1;
  if (simulated_ || o_.setup.backend != "cuda" || alone) return say_ready();
  phase_ = phase::group_id;
  gpu::operation o;
  o.what = operation_kind::meet;
  o.rank = o_.setup.name.pipeline;
  o.size = o_.setup.pipelines;
  submit(std::move(o));
}

void stage_state::join(const stage_run& r) {
  phase_ = phase::joining;
  joined_ = true;
  gpu::operation o;
  o.what = operation_kind::join;
  o.rank = o_.setup.name.pipeline;
  o.size = o_.setup.pipelines;
  const auto bytes = std::as_bytes(std::span{r.group_id});
  o.in = {payload{std::vector<std::byte>{bytes.begin(), bytes.end()}}};
  submit(std::move(o));
}

void stage_state::begin_gradients() {
  const bool alone = !gradient_all_reduce::needed(o_.setup);
  if (alone || (simulated_ && o_.setup.costs.gradient_bytes == 0)) return update({}, {});
  if (joined_) {
    phase_ = phase::exchange;
    exchange_began_s_ = o_.via.now_s();
    return look_at_exchange();
  }
  phase_ = phase::gradients;
  gpu::operation o;
  o.what = operation_kind::gradients;
  submit(std::move(o));
}

void stage_state::exchange(gpu::outcome o) {
  phase_ = phase::exchange;
  exchange_began_s_ = o_.via.now_s();
  payload own, tied;
  if (!simulated_) {
    own = std::move(o.out[0]), tied = std::move(o.out[1]);
    own_bytes_ = own.bytes().size(), tied_bytes_ = tied.bytes().size();
  }
  send_parcels(current().sum.begin(std::move(own), own_bytes_, std::move(tied), tied_bytes_));
  look_at_exchange();
}

void stage_state::look_at_exchange() {
  if (joined_) return look_at_devices();
  if (broken_) return;
  if (const auto& mistake = current().sum.mistake(); !mistake.empty())
    return give_up({reason::kind::malformed, mistake});
  if (!current().sum.complete()) return await_tensors();
  note(reduce_task, 0, o_.via.now_s() - exchange_began_s_);
  auto [own, tied] = current().sum.result();
  update(std::move(own), std::move(tied));
}

void stage_state::look_at_devices() {
  if (busy_ || broken_) return;
  auto& sum = current().among_devices;
  if (sum.may_sum()) {
    gpu::operation o;
    o.what = operation_kind::sum;
    o.in = sum.in();
    return submit(std::move(o));
  }
  if (!sum.complete()) return await_tensors();
  note(reduce_task, 0, o_.via.now_s() - exchange_began_s_);
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

void stage_state::send_parcels(std::vector<gradient_all_reduce::parcel> parcels) {
  wan_share inside;
  inside.pairs = 0;
  for (auto& p : parcels) {
    const bool to_peer = p.to_stage == o_.setup.name.stage;
    send(p.what, p.to_pipeline, p.to_stage, 0, std::move(p.body), p.bytes,
         to_peer ? inside : o_.setup.tied);
  }
}

}  // namespace troupe::actors
