#include "gpu/cpu/device.hpp"

#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

#include "gpu/device/clock.hpp"
#include "gpu/model/digest.hpp"
#include "gpu/tensor_parallel/shared_stage.hpp"

namespace troupe::gpu {

expected<std::unique_ptr<stage_device>> make_cpu_device(const stage_spec& s) {
  return make_cpu_device_on(nullptr, s);
}

expected<std::unique_ptr<stage_device>> make_cpu_device_on(std::shared_ptr<device_thread> thread,
                                                           const stage_spec& s) {
  if (auto ok = check(s); !ok) return refuse(ok.error());
  return std::make_unique<cpu::device>(s, nullptr, std::move(thread));
}

expected<std::unique_ptr<stage_device>> make_shared_cpu_device(const stage_spec& s,
                                                               std::uint32_t shards) {
  if (shards == 1) return make_cpu_device(s);
  if (auto ok = check(shard_of(s, 0, shards)); !ok) return refuse(ok.error());
  const auto tensor_group = make_group(shards);
  shared_stage::devices members;
  for (std::uint32_t m = 0; m < shards; ++m)
    members.push_back(std::make_unique<cpu::device>(shard_of(s, m, shards), tensor_group[m]));
  return std::make_unique<shared_stage>(
      s, std::move(members),
      [tensor_group](const std::string& why) { tensor_group[0]->abort(why); });
}

namespace cpu {

device::device(const stage_spec& s, std::shared_ptr<thread_communicator> tensor_group,
               std::shared_ptr<device_thread> thread, const kernels<float>& set)
    : spec_{s},
      maths_{s, std::move(tensor_group), set},
      queue_{prepare_thread, std::move(thread)} {}

void device::submit(operation o, done d) {
  queue_.submit(
      std::move(o), std::move(d),
      [this](const auto& what, const operation&, done completed) { time(what, completed); });
}

void device::submit_values(done d) {
  queue_.submit([this](const done& completed) { time(operations::values{}, completed); },
                std::move(d));
}

// Order and payloads are checked before anything changes: a refused operation leaves the device as
// it was. The end includes the sleep of an emulated slower device, so measured durations are those
// of the machine that is emulated.
template <class What>
void device::time(const What& o, const done& completed) {
  const auto begin = now_s(), worked = thread_cpu_s();
  auto ok = progress_.check(o);
  if (ok) ok = check_payloads(spec_, o, false);
  result made = ok ? result{} : refuse(ok.error());
  try {
    if (ok) made = perform(o);
  } catch (const std::runtime_error& e) {  // other members of the tensor group have failed
    made = refuse(reason::kind::unavailable, e.what());
  }
  if (spec_.emulate_speed < 1) {
    // By CPU time: waiting for a processor is not part of a slower machine's work.
    const double lasts_s = (thread_cpu_s() - worked) / spec_.emulate_speed;
    std::this_thread::sleep_for(std::chrono::duration<double>{begin + lasts_s - now_s()});
  }
  completed(made ? expected<outcome>{{std::move(*made), begin, now_s()}} : refuse(made.error()));
}

template <class Collective>
device::result device::perform(const Collective&) {
  static_assert(operations::is_collective<Collective>);
  return refuse(reason::kind::unavailable,
                "the CPU device has no collectives; use host all-reduce");
}

// A stage takes tokens or an activation, and with a head also the targets.
stage_input<float> device::input_of(const operations::forward& o) {
  stage_input<float> in;
  if (spec_.has_embedding)
    in.tokens = values_of<std::uint32_t>(o.input, maths_.memory());
  else
    in.activation = values_of<float>(o.input, maths_.memory());
  if (spec_.has_head) in.targets = values_of<std::uint32_t>(o.targets, maths_.memory());
  return in;
}

// The input is always held until backward; the activations only if the schedule keeps them,
// otherwise recompute makes them again from the input.
device::result device::perform(const operations::forward& o) {
  auto& m = held_[o.microbatch];
  m.in = input_of(o);
  progress_.went_forward(o.microbatch, o.keep);
  const auto made = maths_.forward(m.in, o.keep ? &m.kept : nullptr);
  operations::forward::result out;
  out.loss = made.loss;
  if (made.activation)
    out.activation = as_payload(made.activation, tokens_of(spec_) * spec_.model.hidden);
  return out;
}

device::result device::perform(const operations::recompute& o) {
  auto& m = held_.at(o.microbatch);
  if (!progress_.kept(o.microbatch)) maths_.forward(m.in, &m.kept);
  progress_.went_forward(o.microbatch, true);
  return {};
}

device::result device::perform(const operations::backward& o) {
  buffer<const float> gradient;
  if (!spec_.has_head) gradient = values_of<float>(o.gradient, maths_.memory());
  const auto found = held_.find(o.microbatch);
  const auto& m = found->second;
  const auto made = maths_.backward(m.in, m.kept, gradient.get());
  held_.erase(found);
  progress_.forget(o.microbatch);
  operations::backward::result out;
  if (made) out.gradient = as_payload(made, tokens_of(spec_) * spec_.model.hidden);
  return out;
}

device::result device::perform(const operations::gradients& o) {
  const auto sums = maths_.memory().take<float>(maths_.own() + maths_.tied());
  maths_.copy_gradients(sums.get());
  if (o.take) maths_.clear_gradients();
  return both(sums);
}

device::result device::perform(const operations::reset&) {
  forget_passes();
  return {};
}

void device::forget_passes() {
  held_.clear();
  progress_.clear();
  maths_.clear_gradients();
}

device::result device::perform(const operations::update& o) {
  if (!o.sums.empty())
    maths_.replace_gradients(values_of<float>(o.sums.own, maths_.memory()).get(),
                             values_of<float>(o.sums.tied, maths_.memory()).get());
  return operations::update::result{maths_.update(o.scale)};
}

device::result device::perform(const operations::weights&) {
  return both(copy_of(maths_.weights()));
}

device::result device::perform(const operations::digest&) {
  return operations::digest::result{digest_of(std::as_bytes(maths_.weights()))};
}

device::result device::perform(const operations::values&) {
  const auto all = [this](std::span<const float> from) {
    return as_payload(copy_of(from), from.size());
  };
  return operations::values::result{all(maths_.weights()), all(maths_.first_moments()),
                                    all(maths_.second_moments()), maths_.steps};
}

// The weights and sums change while a message is on its way.
buffer<float> device::copy_of(std::span<const float> values) {
  const auto copy = maths_.memory().take<float>(values.size());
  std::copy(values.begin(), values.end(), copy.get());
  return copy;
}

// Two payloads of one array, which both keep alive; nothing is copied.
own_and_tied device::both(const buffer<float>& values) const {
  const buffer<float> tied{values, values.get() + maths_.own()};
  return {as_payload(values, maths_.own()), as_payload(tied, maths_.tied())};
}

stage_values device::values() {
  return {maths_.parameters(), maths_.own(), maths_.weights(), maths_.first_moments(),
          maths_.second_moments()};
}

device::result device::perform(const operations::save& o) {
  if (auto ok = save_values(o.path, spec_, maths_.steps, values(), o.whole); !ok)
    return refuse(ok.error());
  return {};
}

// Micro-batches in flight and partial gradients belong to weights that are gone.
device::result device::perform(const operations::load& o) {
  const auto steps = load_values(o.path, spec_, values());
  if (!steps) return refuse(steps.error());
  maths_.steps = *steps;
  forget_passes();
  return {};
}

}  // namespace cpu

}  // namespace troupe::gpu
