// A device and its peers in other pipelines: how they meet, and when they sum.
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "gpu/cuda/device.hpp"

namespace troupe::gpu::cuda {

void device::meet(const operation& o, pending& p) {
  std::string why;
  const auto* with = collectives_of(*machine_, why);
  if (!with)
    p.result = refuse(reason::kind::unavailable, why);
  else
    p.result->out = {o.rank == 0 && o.size > 1 ? payload{make_group_id(*with)} : payload{}};
}

void device::join(const operation& o) {
  std::string why;
  const auto* with = collectives_of(*machine_, why);
  if (!with) throw std::runtime_error(why);
  if (o.in.size() != 1 || o.rank >= o.size)
    throw std::runtime_error("a group is joined with what its members meet by, and a rank in it");
  auto member = std::make_unique<communicator>(*with, o.in[0].bytes(), o.rank, o.size, patience_,
                                               [this] { return leaving_.load(); });
  auto joined = std::make_shared<gpu_team>(machine_, std::move(member));
  std::lock_guard lock{guard_};
  peers_ = std::move(joined);
}

void device::sum(const operation& o, pending& p) {
  const auto with = peers();
  if (!with) throw std::runtime_error("this device has joined no group to sum with");
  p.with = with;
  buffer<float> others;
  if (!o.in.empty()) others = bring_floats(o.in[0], p);
  const auto tied = stage_.sum_gradients(*with, others.get());
  if (tied) p.result->out = {take_out(tied, stage_.tied(), p)};
  summed_ = true;
  sums_begun_ = false;
}

/// With whom backward's gradients are summed while it is at work; null: only later. Devices that
/// share a stage sum in the middle of it with each other: two communicators at work at once on one
/// GPU is what NCCL advises against. TROUPE_CUDA_OVERLAP=0 switches it off; peers need not agree.
std::shared_ptr<team> device::beside_backward() {
  const auto* wish = std::getenv("TROUPE_CUDA_OVERLAP");
  const bool off = fellows_ || (wish && std::string_view{wish} == "0");
  const auto with = off ? nullptr : peers();
  sums_begun_ = with != nullptr;
  return with;
}

/// Some gradients are sums over all members, some are not: only `sum` knows what to do with them.
reason device::check_sums(const operation& o) const {
  using kind = operation::kind;
  const bool other = o.what == kind::backward || o.what == kind::gradients ||
                     o.what == kind::update || o.what == kind::join;
  if (!sums_begun_ || !other) return {};
  return {reason::kind::invalid,
          "the device has begun to sum its gradients with its peers': sum comes next, or load"};
}

/// Whoever waits for a sum of its peers' waits no longer. They are met anew.
void device::end_group(const std::string& why) {
  const auto with = peers();
  if (!with) return;
  with->abort(why);
  std::lock_guard lock{guard_};
  peers_.reset();
}

}  // namespace troupe::gpu::cuda
