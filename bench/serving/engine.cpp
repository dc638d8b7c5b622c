#include "serving/engine.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "harness/clock.hpp"
#include "harness/tokens.hpp"

namespace troupe::bench {

namespace {

constexpr gpu::sequence_id alone = 1;

template <class T>
T value_of(expected<T> e) {
  if (e) return std::move(*e);
  fmt::print(stderr, "{}\n", e.error().text);
  std::exit(2);
}
void check(const expected<void>& e) {
  if (e) return;
  fmt::print(stderr, "{}\n", e.error().text);
  std::exit(2);
}

double now_s() {
  return clock_s(CLOCK_MONOTONIC);
}

void wait(pause p) {
  constexpr double pause_s = 1e-3;
  const double until_s = now_s() + pause_s;
  if (p == pause::asleep) std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
  while (p == pause::busy && now_s() < until_s) {
  }
}

payload payload_of(const std::vector<std::uint32_t>& tokens) {
  std::vector<std::byte> raw(tokens.size() * sizeof(std::uint32_t));
  std::memcpy(raw.data(), tokens.data(), raw.size());
  return payload{std::move(raw)};
}

/// The last row of hidden states.
payload last_row(const payload& hidden, std::size_t bytes) {
  const auto all = hidden.bytes();
  return payload{std::vector<std::byte>{all.end() - static_cast<std::ptrdiff_t>(bytes), all.end()}};
}

}  // namespace

std::vector<std::uint32_t> prompt_of(std::size_t tokens, std::uint32_t vocabulary,
                                     std::uint64_t seed) {
  std::vector<std::uint32_t> all(tokens);
  const auto raw = random_tokens(tokens, vocabulary, seed);
  std::memcpy(all.data(), raw.bytes().data(), raw.bytes().size());
  return all;
}

engine::engine(const gpu::inference_spec& s)
    : device_{value_of(gpu::make_cpu_inference_device(s))} {}

payload engine::hidden_of(gpu::sequence_id s, const std::vector<std::uint32_t>& tokens,
                          const gpu::adapter_ref& adapter) {
  check(device_->reserve(s, static_cast<std::uint32_t>(tokens.size())));
  return gpu::finish(*value_of(device_->prefill(s, 0, payload_of(tokens), adapter)));
}

std::uint32_t engine::most_probable(const payload& hidden) {
  const auto logits = gpu::finish(*value_of(device_->head(hidden)));
  const std::span values{reinterpret_cast<const float*>(logits.bytes().data()),
                         device_->spec().model.vocabulary};
  return static_cast<std::uint32_t>(std::ranges::max_element(values) - values.begin());
}

double engine::prefill(const std::vector<std::uint32_t>& tokens) {
  device_->release(alone);
  const double begin_s = now_s();
  const auto hidden = hidden_of(alone, tokens);
  last_ = most_probable(last_row(hidden, device_->spec().model.hidden * sizeof(float)));
  length_ = static_cast<std::uint32_t>(tokens.size());
  return now_s() - begin_s;
}

std::vector<std::uint32_t> engine::step(const std::vector<gpu::decode_row>& rows) {
  const auto hidden = gpu::finish(*value_of(device_->decode(rows, {})));
  const auto logits = gpu::finish(*value_of(device_->head(hidden)));
  const auto* values = reinterpret_cast<const float*>(logits.bytes().data());
  const std::size_t n = device_->spec().model.vocabulary;
  std::vector<std::uint32_t> chosen;
  for (std::size_t i = 0; i < rows.size(); ++i)
    chosen.push_back(static_cast<std::uint32_t>(
        std::max_element(values + i * n, values + (i + 1) * n) - (values + i * n)));
  return chosen;
}

decoded_tokens engine::decode(std::size_t count) {
  decoded_tokens result;
  result.tokens = {last_};
  check(device_->reserve(alone, length_ + static_cast<std::uint32_t>(count)));
  const double begin_s = now_s();
  for (std::size_t i = 0; i < count; ++i)
    result.tokens.push_back(step({{alone, length_++, result.tokens.back()}}).front());
  result.s = now_s() - begin_s;
  last_ = result.tokens.back();
  return result;
}

std::vector<gpu::decode_row> engine::begin_together(std::size_t sequences, std::size_t prompt,
                                                    std::size_t count,
                                                    const std::vector<gpu::adapter_ref>& adapters) {
  std::vector<gpu::decode_row> rows;
  for (std::size_t s = 0; s < sequences; ++s) {
    const gpu::sequence_id id = 100 + s;
    const auto adapter = adapters.empty() ? gpu::adapter_ref{} : adapters[s % adapters.size()];
    hidden_of(id, prompt_of(prompt, device_->spec().model.vocabulary, s), adapter);
    check(device_->reserve(id, static_cast<std::uint32_t>(prompt + count)));
    rows.push_back(
        {id, static_cast<std::uint32_t>(prompt), static_cast<std::uint32_t>(s), adapter});
  }
  return rows;
}

void engine::step_together(std::vector<gpu::decode_row>& rows, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto chosen = step(rows);
    for (std::size_t s = 0; s < rows.size(); ++s) ++rows[s].position, rows[s].token = chosen[s];
  }
  for (const auto& r : rows) device_->release(r.sequence);
}

double engine::decode_together(std::size_t sequences, std::size_t prompt, std::size_t count) {
  auto rows = begin_together(sequences, prompt, count, {});
  const double begin_s = now_s();
  step_together(rows, count);
  return now_s() - begin_s;
}

double engine::cpu_s_together(std::size_t sequences, std::size_t prompt, std::size_t count,
                              const std::vector<gpu::adapter_ref>& adapters) {
  auto rows = begin_together(sequences, prompt, count, adapters);
  const double begin_s = clock_s(CLOCK_THREAD_CPUTIME_ID);
  step_together(rows, count);
  return clock_s(CLOCK_THREAD_CPUTIME_ID) - begin_s;
}

std::vector<double> engine::step_times_s(const std::vector<std::uint32_t>& tokens,
                                         pause after_step) {
  device_->release(alone);
  check(device_->reserve(alone, static_cast<std::uint32_t>(tokens.size())));
  const auto work = value_of(device_->prefill(alone, 0, payload_of(tokens)));
  std::vector<double> all;
  while (work->steps_left() > 0) {
    const double begin_s = clock_s(CLOCK_THREAD_CPUTIME_ID);
    work->step();
    all.push_back(clock_s(CLOCK_THREAD_CPUTIME_ID) - begin_s);
    wait(after_step);
  }
  return all;
}

}  // namespace troupe::bench
