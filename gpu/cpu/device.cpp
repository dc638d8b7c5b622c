#include "gpu/cpu/device.hpp"

#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

#include "gpu/device/clock.hpp"
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
               std::shared_ptr<device_thread> thread)
    : spec_{s},
      maths_{s, std::move(tensor_group)},
      queue_{[this](const operation& o, const done& completed) { time(o, completed); },
             prepare_thread, std::move(thread)} {}

void device::submit(operation o, done d) {
  queue_.submit(std::move(o), std::move(d));
}

// The end includes the sleep of an emulated slower device, so measured durations are those of the
// machine that is emulated.
void device::time(const operation& o, const done& completed) {
  const auto begin = now_s(), worked = thread_cpu_s();
  auto result = run_all_the_same(o);
  if (spec_.emulate_speed < 1) {
    // By CPU time: waiting for a processor is not part of a slower machine's work.
    const double lasts_s = (thread_cpu_s() - worked) / spec_.emulate_speed;
    std::this_thread::sleep_for(std::chrono::duration<double>{begin + lasts_s - now_s()});
  }
  if (result) {
    result->begin_s = begin;
    result->end_s = now_s();
  }
  completed(std::move(result));
}

expected<outcome> device::run_all_the_same(const operation& o) {
  try {
    return run(o);
  } catch (const std::runtime_error& e) {  // other members of the tensor group have failed
    return refuse(reason::kind::unavailable, e.what());
  }
}

// Order and payloads are checked before anything changes: a refused operation leaves the device as
// it was. Results are copies, since the weights and sums change while a message is on its way.
expected<outcome> device::run(const operation& o) {
  using kind = operation::kind;
  if (auto ok = progress_.check(o); !ok) return refuse(ok.error());
  if (auto ok = check_payloads(spec_, o); !ok) return refuse(ok.error());
  switch (o.what) {
    case kind::forward:
      return forward(o);
    case kind::recompute:
      return recompute(o);
    case kind::backward:
      return backward(o);
    case kind::gradients: {
      const auto sums = maths_.memory().take<float>(maths_.own() + maths_.tied());
      maths_.copy_gradients(sums.get());
      return both(sums);
    }
    case kind::update:
      return update(o);
    case kind::save:
      return save(o);
    case kind::load:
      return load(o);
    case kind::weights: {
      const auto w = maths_.weights();
      const auto copy = maths_.memory().take<float>(w.size());
      std::copy(w.begin(), w.end(), copy.get());
      return both(copy);
    }
    case kind::values: {
      outcome out;
      for (const auto from : {maths_.weights(), maths_.first_moments(), maths_.second_moments()}) {
        const auto copy = maths_.memory().take<float>(from.size());
        std::copy(from.begin(), from.end(), copy.get());
        out.out.push_back(as_payload(copy, from.size()));
      }
      out.steps = maths_.steps;
      return out;
    }
    case kind::make_communicator_id:
    case kind::join_communicator:
    case kind::sum:
      return refuse(reason::kind::unavailable,
                    "the CPU device has no collectives; use host all-reduce");
    case kind::norms:
      break;
  }
  return refuse(reason::kind::invalid, "unsupported operation");
}

std::uint64_t device::activation_bytes() const {
  return tokens_of(spec_) * spec_.model.hidden * sizeof(float);
}

// A stage takes tokens or an activation, and with a head also the targets.
stage_input<float> device::input_of(const operation& o) {
  stage_input<float> in;
  if (spec_.has_embedding)
    in.tokens = values_of<std::uint32_t>(o.in[0], maths_.memory());
  else
    in.activation = values_of<float>(o.in[0], maths_.memory());
  if (spec_.has_head) in.targets = values_of<std::uint32_t>(o.in[1], maths_.memory());
  return in;
}

// The input is always held until backward; the activations only if the schedule keeps them,
// otherwise recompute makes them again from the input.
outcome device::forward(const operation& o) {
  auto& m = held_[o.microbatch];
  m.in = input_of(o);
  progress_.went_forward(o.microbatch, o.keep);
  const auto made = maths_.forward(m.in, o.keep ? &m.kept : nullptr);
  outcome out;
  out.loss = made.loss;
  if (made.activation) out.out = {as_payload(made.activation, activation_bytes() / sizeof(float))};
  return out;
}

outcome device::recompute(const operation& o) {
  auto& m = held_.at(o.microbatch);
  outcome out;
  if (!progress_.kept(o.microbatch)) out.loss = maths_.forward(m.in, &m.kept).loss;
  progress_.went_forward(o.microbatch, true);
  return out;
}

outcome device::backward(const operation& o) {
  buffer<const float> gradient;
  if (!spec_.has_head) gradient = values_of<float>(o.in[0], maths_.memory());
  const auto found = held_.find(o.microbatch);
  const auto& m = found->second;
  const auto made = maths_.backward(m.in, m.kept, gradient.get());
  held_.erase(found);
  progress_.forget(o.microbatch);
  outcome out;
  if (made) out.out = {as_payload(made, activation_bytes() / sizeof(float))};
  return out;
}

outcome device::update(const operation& o) {
  if (!o.in.empty())
    maths_.replace_gradients(values_of<float>(o.in[0], maths_.memory()).get(),
                             values_of<float>(o.in[1], maths_.memory()).get());
  outcome out;
  out.squared_norm = maths_.update(o.scale);
  return out;
}

// Two payloads of one array, which both keep alive; nothing is copied.
outcome device::both(const buffer<float>& values) const {
  outcome out;
  const buffer<float> tied{values, values.get() + maths_.own()};
  out.out = {as_payload(values, maths_.own()), as_payload(tied, maths_.tied())};
  return out;
}

stage_values device::values() {
  return {maths_.parameters(), maths_.own(), maths_.weights(), maths_.first_moments(),
          maths_.second_moments()};
}

expected<outcome> device::save(const operation& o) {
  if (auto ok = save_values(o.path, spec_, maths_.steps, values()); !ok) return refuse(ok.error());
  return outcome{};
}

// Micro-batches in flight and partial gradients belong to weights that are gone.
expected<outcome> device::load(const operation& o) {
  const auto steps = load_values(o.path, spec_, values());
  if (!steps) return refuse(steps.error());
  maths_.steps = *steps;
  held_.clear();
  progress_.clear();
  maths_.clear_gradients();
  return outcome{};
}

}  // namespace cpu

}  // namespace troupe::gpu
