#include "gpu/cpu/device.hpp"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "gpu/checkpoint.hpp"

namespace troupe::gpu {

expected<std::unique_ptr<stage_device>> make_cpu_device(const stage_spec& s) {
  if (auto why = check(s); !why.text.empty()) return tl::unexpected(std::move(why));
  return std::make_unique<cpu::device>(s);
}

namespace cpu {

namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

tl::unexpected<reason> no(std::string text) {
  return refuse(reason::kind::invalid, std::move(text));
}

}  // namespace

device::device(const stage_spec& s) : spec_{s}, maths_{s}, thread_{[this] { work(); }} {}

device::~device() {
  std::deque<std::pair<operation, done>> unheard;
  {
    std::lock_guard lock{guard_};
    closing_ = true;
    unheard.swap(waiting_);
  }
  wake_.notify_one();
  thread_.join();
  for (auto& [o, d] : unheard)
    if (d) d(refuse(reason::kind::unavailable, "the device was closed before this was its turn"));
}

void device::submit(operation o, done d) {
  {
    std::lock_guard lock{guard_};
    waiting_.emplace_back(std::move(o), std::move(d));
  }
  wake_.notify_one();
}

void device::work() {
  prepare_thread();
  for (;;) {
    std::pair<operation, done> next;
    {
      std::unique_lock lock{guard_};
      wake_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
      if (closing_) return;
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    const auto begin = now_s();
    auto result = run(next.first);
    if (result) {
      result->begin_s = begin;
      result->end_s = now_s();
    }
    if (next.second) next.second(std::move(result));
  }
}

expected<outcome> device::run(const operation& o) {
  using kind = operation::kind;
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
  }
  return no("the device does not know this operation");
}

std::uint64_t device::activation_bytes() const {
  return gpu::tokens_of(spec_) * spec_.model.hidden * sizeof(float);
}

expected<buffer<const std::uint32_t>> device::tokens_of(const payload& p) {
  const auto count = gpu::tokens_of(spec_);
  if (p.bytes().size() != count * sizeof(std::uint32_t))
    return no(fmt::format("a micro-batch has {} tokens of 4 bytes; {} bytes came", count,
                          p.bytes().size()));
  auto tokens = values_of<std::uint32_t>(p, maths_.memory());
  for (std::size_t i = 0; i < count; ++i)
    if (tokens.get()[i] >= spec_.model.vocabulary)
      return no(fmt::format("token {} is not in a vocabulary of {}", tokens.get()[i],
                            spec_.model.vocabulary));
  return tokens;
}

expected<stage_input<float>> device::input_of(const operation& o) {
  const std::size_t wanted = spec_.predicts ? 2 : 1;
  if (o.in.size() != wanted)
    return no(fmt::format("forward on this stage takes {} payloads, not {}", wanted, o.in.size()));
  stage_input<float> in;
  if (spec_.embeds) {
    auto tokens = tokens_of(o.in[0]);
    if (!tokens) return tl::unexpected(tokens.error());
    in.tokens = std::move(*tokens);
  } else {
    if (o.in[0].bytes().size() != activation_bytes())
      return no(fmt::format("an activation has {} bytes; {} came", activation_bytes(),
                            o.in[0].bytes().size()));
    in.activation = values_of<float>(o.in[0], maths_.memory());
  }
  if (spec_.predicts) {
    auto targets = tokens_of(o.in[1]);
    if (!targets) return tl::unexpected(targets.error());
    in.targets = std::move(*targets);
  }
  return in;
}

expected<outcome> device::forward(const operation& o) {
  if (held_.contains(o.microbatch))
    return no(fmt::format("micro-batch {} went forward already", o.microbatch));
  auto in = input_of(o);
  if (!in) return tl::unexpected(in.error());
  auto& m = held_[o.microbatch];
  m.in = std::move(*in);
  m.complete = o.keep;
  const auto made = maths_.forward(m.in, o.keep ? &m.kept : nullptr);
  outcome out;
  out.loss = made.loss;
  if (made.activation) out.out = {as_payload(made.activation, activation_bytes() / sizeof(float))};
  return out;
}

expected<outcome> device::recompute(const operation& o) {
  const auto found = held_.find(o.microbatch);
  if (found == held_.end())
    return no(fmt::format("micro-batch {} did not go forward yet", o.microbatch));
  auto& m = found->second;
  outcome out;
  if (!m.complete) out.loss = maths_.forward(m.in, &m.kept).loss;
  m.complete = true;
  return out;
}

expected<outcome> device::backward(const operation& o) {
  const auto found = held_.find(o.microbatch);
  if (found == held_.end() || !found->second.complete)
    return no(
        fmt::format("what micro-batch {} needs to go backward was not kept; it goes forward "
                    "with keep, or is recomputed, before",
                    o.microbatch));
  buffer<const float> gradient;
  if (!spec_.predicts) {
    if (o.in.size() != 1 || o.in[0].bytes().size() != activation_bytes())
      return no(
          fmt::format("backward takes one payload, a gradient of {} bytes", activation_bytes()));
    gradient = values_of<float>(o.in[0], maths_.memory());
  }
  const auto& m = found->second;
  const auto made = maths_.backward(m.in, m.kept, gradient.get());
  held_.erase(found);
  outcome out;
  if (made) out.out = {as_payload(made, activation_bytes() / sizeof(float))};
  return out;
}

expected<outcome> device::update(const operation& o) {
  if (o.in.empty()) {
    if (maths_.tied() > 0 && !(spec_.embeds && spec_.predicts))
      return no(
          "an embedding that is the head too, in two stages, is updated with the sum of both "
          "stages' gradients");
  } else {
    if (o.in.size() != 2 || o.in[0].bytes().size() != maths_.own() * sizeof(float) ||
        o.in[1].bytes().size() != maths_.tied() * sizeof(float))
      return no(fmt::format("update takes nothing, or gradients of {} own and {} tied parameters",
                            maths_.own(), maths_.tied()));
    maths_.replace_gradients(values_of<float>(o.in[0], maths_.memory()).get(),
                             values_of<float>(o.in[1], maths_.memory()).get());
  }
  outcome out;
  out.squared_norm = maths_.update(o.scale);
  return out;
}

outcome device::both(const buffer<float>& values) const {
  outcome out;
  const buffer<float> tied{values, values.get() + maths_.own()};
  out.out = {as_payload(values, maths_.own()), as_payload(tied, maths_.tied())};
  return out;
}

expected<outcome> device::save(const operation& o) {
  std::vector<saved_values> all;
  for (const auto& p : maths_.parameters()) {
    if (p.tied && !spec_.embeds) continue;  // the first stage's file has it
    const auto at = maths_.position(p), n = p.values();
    all.push_back({&p, maths_.weights().subspan(at, n), maths_.first_moments().subspan(at, n),
                   maths_.second_moments().subspan(at, n)});
  }
  if (auto why = save_stage(o.path, spec_, maths_.steps, all); !why.text.empty())
    return tl::unexpected(std::move(why));
  return outcome{};
}

expected<outcome> device::load(const operation& o) {
  const auto from = checkpoint::open(o.path);
  if (!from) return tl::unexpected(from.error());
  for (const auto& p : maths_.parameters()) {
    const auto at = maths_.position(p), n = p.values();
    auto why = from->read(p, maths_.weights().subspan(at, n), maths_.first_moments().subspan(at, n),
                          maths_.second_moments().subspan(at, n));
    if (!why.text.empty()) return tl::unexpected(std::move(why));
  }
  maths_.steps = from->iteration();
  held_.clear();
  maths_.clear_gradients();
  return outcome{};
}

}  // namespace cpu

}  // namespace troupe::gpu
