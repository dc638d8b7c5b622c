// A device and its peers in other pipelines: how they meet, and when they sum.
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "gpu/cuda/host/device.hpp"

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
    throw std::runtime_error("joining a group needs a group id and a rank");
  rehearse();
  auto member = std::make_unique<communicator>(*with, o.in[0].bytes(), o.rank, o.size, patience_,
                                               [this] { return leaving_.load(); });
  auto joined = std::make_shared<gpu_team>(machine_, std::move(member));
  std::lock_guard lock{guard_};
  peers_ = std::move(joined);
}

/// Does for nothing, and with nobody, what an iteration will do. So all memory is there, all
/// kernels are loaded and all products planned before GPUs wait for each other's sums: CUDA may let
/// any of these wait for what other GPUs of the program are at, and if that is a sum that waits for
/// this GPU, neither goes on. Weights stay as they are.
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
  std::deque<pending> answered;  // results that are not sent yet have host memory
  constexpr std::size_t unsent = 4;
  for (const auto& one : passes) {
    operation o{.microbatch = one.microbatch, .keep = one.what == pass::forward_kept};
    if (one.what == pass::backward) {
      o.what = operation::kind::backward;
      o.in = {values};
    } else if (one.what == pass::recompute) {
      o.what = operation::kind::recompute;
    } else {
      o.in = {spec_.has_embedding ? words : values};
      if (spec_.has_head) o.in.push_back(words);
    }
    if (!progress_.check(o).text.empty()) continue;  // it will be refused when it is asked for
    auto& p = answered.emplace_back();
    perform(o, p);
    machine_->wait(machine_->record_event());
    p.held.clear();
    if (answered.size() > unsent) answered.pop_front();
  }
  // What an update and the sums' ends need besides.
  const auto norm = stage_.copied().take<double>(1), norm_here = stage_.host().take<double>(1);
  const auto tied = stage_.copied().take<float>(stage_.tied()),
             others = stage_.copied().take<float>(stage_.tied()),
             tied_here = stage_.host().take<float>(stage_.tied()),
             others_here = stage_.host().take<float>(stage_.tied());
  stage_.clear_gradients();
  machine_->wait(machine_->record_event());
}

void device::sum(const operation& o, pending& p) {
  const auto with = peers();
  if (!with) throw std::runtime_error("this device has not joined an all-reduce group");
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
std::shared_ptr<device_group> device::beside_backward() {
  const auto* wish = std::getenv("TROUPE_CUDA_OVERLAP");
  const bool off = tensor_group_ || (wish && std::string_view{wish} == "0");
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
  return {reason::kind::invalid, "gradient all-reduce already started; expected sum or load"};
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
