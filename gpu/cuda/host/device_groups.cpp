// A device and its peers in other pipelines: joining the group, and the all-reduce.
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "gpu/cuda/host/device.hpp"

namespace troupe::gpu::cuda {

// Only rank 0 makes an id; the others answer with nothing, which shows that they have collectives.
void device::perform(const operations::make_communicator_id& o, pending& p) {
  std::string why;
  const auto* with = collectives_of(*machine_, why);
  if (!with)
    p.result = refuse(reason::kind::unavailable, why);
  else
    p.result->what = operations::make_communicator_id::result{
        o.rank == 0 && o.size > 1 ? payload{make_communicator_id(*with)} : payload{}};
}

// The rehearsal comes before joining: afterwards peers may already wait in an all-reduce.
void device::perform(const operations::join_communicator& o, pending&) {
  std::string why;
  const auto* with = collectives_of(*machine_, why);
  if (!with) throw std::runtime_error(why);
  if (o.id.empty() || o.rank >= o.size)
    throw std::runtime_error("joining a group needs a group id and a rank");
  rehearse();
  auto member = std::make_unique<communicator>(*with, o.id.bytes(), o.rank, o.size, patience_,
                                               [this] { return leaving_.load(); });
  auto joined = std::make_shared<nccl_communicator>(machine_, std::move(member));
  std::lock_guard lock{guard_};
  peers_ = std::move(joined);
}

/// Executes an iteration's operations without effect and without peers. So all memory is allocated,
/// all kernels are loaded and all products planned before GPUs wait for each other's all-reduces:
/// CUDA may make any of these wait for other GPUs of the program, and if one of those is in an
/// all-reduce that waits for this GPU, both deadlock. Weights do not change.
void device::rehearse() {
  if (went_back_ || !held_.empty()) return;
  using pass = stage_spec::pass::kind;
  const auto tokens = static_cast<std::size_t>(tokens_of(spec_));
  const auto words = payload{std::vector<std::byte>(tokens * sizeof(std::uint32_t))};
  const auto values = payload{std::vector<std::byte>(tokens * spec_.model.hidden * sizeof(float))};
  auto passes = spec_.iteration;
  if (passes.empty()) passes = {{pass::forward_kept, 0}, {pass::backward, 0}};
  const std::shared_ptr<void> ends{&stage_, [this](void*) {
                                     stage_.alone = went_back_ = false;
                                     held_.clear();
                                     progress_.clear();
                                   }};
  stage_.alone = true;
  std::deque<pending> answered;  // unsent results hold host memory
  const std::shared_ptr<void> settled{this, [this](void*) { settle(); }};  // before these are gone
  constexpr std::size_t unsent = 4;
  const auto go = [&](const auto& o) {
    if (!progress_.check(o)) return;  // it will be rejected when it is requested
    auto& p = answered.emplace_back();
    perform(o, p);
    machine_->wait(machine_->record_event());
    p.held.clear();
    if (answered.size() > unsent) answered.pop_front();
  };
  for (const auto& one : passes)
    if (one.what == pass::backward)
      go(operations::backward{one.microbatch, values});
    else if (one.what == pass::recompute)
      go(operations::recompute{one.microbatch});
    else
      go(operations::forward{one.microbatch, one.what == pass::forward_kept,
                             spec_.has_embedding ? words : values,
                             spec_.has_head ? words : payload{}});
  // Memory for an update and the end of the all-reduce.
  const auto norm = stage_.copied().take<double>(1), norm_here = stage_.host().take<double>(1);
  const auto tied = stage_.copied().take<float>(stage_.tied()),
             others = stage_.copied().take<float>(stage_.tied()),
             tied_here = stage_.host().take<float>(stage_.tied()),
             others_here = stage_.host().take<float>(stage_.tied());
  stage_.clear_gradients();
  machine_->wait(machine_->record_event());
}

// The tied matrix's gradient of the last stage arrives as a payload and its sum returns as a
// result.
void device::perform(const operations::sum& o, pending& p) {
  const auto with = peers();
  if (!with) throw std::runtime_error("this device has not joined an all-reduce group");
  p.with = with;
  buffer<float> others;
  if (o.tied) others = bring_floats(*o.tied, p);
  auto& sums = p.result->what.emplace<operations::sum::result>();
  const auto tied = stage_.sum_gradients(*with, others.get());
  if (tied) sums.tied = take_out(tied, stage_.tied(), p);
  summed_ = true;
  sums_begun_ = false;
}

/// The group with which gradients are all-reduced during backward; null: only afterwards. Devices
/// of a tensor group all-reduce within the backward pass, and NCCL advises against using two
/// communicators concurrently on one GPU. TROUPE_CUDA_OVERLAP=0 disables it; peers need not agree.
std::shared_ptr<device_communicator> device::beside_backward() {
  const auto* wish = std::getenv("TROUPE_CUDA_OVERLAP");
  const bool off = tensor_group_ || (wish && std::string_view{wish} == "0");
  const auto with = off ? nullptr : peers();
  sums_begun_ = with != nullptr;
  return with;
}

/// Waits for peers' all-reduces end with an error. The group must be joined anew.
void device::end_group(const std::string& why) {
  const auto with = peers();
  if (!with) return;
  with->abort(why);
  std::lock_guard lock{guard_};
  peers_.reset();
}

}  // namespace troupe::gpu::cuda
