// GPT-2 training on one GPU: tokens a second, and what share of the GPU's arithmetic that is. Says
// why and ends well where there is no GPU. Arguments: models' names (all without), -r rows.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>

#include "gpu/parameters.hpp"
#include "messages/random.hpp"

namespace {

using namespace troupe;
using gpu::operation;
using step = operation::kind;

struct size {
  const char* name;
  std::uint32_t hidden, layers, heads, rows;
};
constexpr size sizes[] = {
    {"124M", 768, 12, 12, 16}, {"350M", 1024, 24, 16, 8}, {"774M", 1280, 36, 20, 4}};

gpu::stage_spec spec_of(const size& s, std::uint32_t rows) {
  gpu::stage_spec spec;
  spec.model.hidden = s.hidden;
  spec.model.layers = spec.layers = s.layers;
  spec.model.heads = s.heads;
  spec.model.sequence = 1024;
  spec.model.vocabulary = 50257;
  spec.embeds = spec.predicts = true;
  spec.rows = rows;
  return spec;
}

payload random_tokens(const gpu::stage_spec& s, std::uint64_t seed) {
  random_source random{seed};
  std::vector<std::byte> bytes(4 * gpu::tokens_of(s));
  for (std::size_t i = 0; i < bytes.size(); i += 4) {
    const auto token = static_cast<std::uint32_t>(random.below(s.model.vocabulary));
    std::memcpy(bytes.data() + i, &token, 4);
  }
  return payload{std::move(bytes)};
}

/// Asks for `steps` iterations at once, as many micro-batches each, and waits for the last.
/// Seconds, and the last micro-batch's loss.
std::pair<double, double> train(gpu::stage_device& d, const std::vector<payload>& data, int steps) {
  const auto begin = std::chrono::steady_clock::now();
  std::promise<void> over;
  double loss = 0;
  const auto stop = [](const expected<gpu::outcome>& r) {
    if (r) return;
    fmt::print("{}\n", r.error().text);
    std::exit(1);
  };
  for (int i = 0; i < steps; ++i) {
    d.submit({.what = step::forward, .keep = true, .in = data}, [&, stop](auto r) {
      stop(r);
      loss = r->loss;
    });
    d.submit({.what = step::backward}, stop);
    d.submit({.what = step::update}, [&, stop, last = i + 1 == steps](const auto& r) {
      stop(r);
      if (last) over.set_value();
    });
  }
  over.get_future().wait();
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), loss};
}

void measure(const size& s, std::uint32_t rows) {
  const auto spec = spec_of(s, rows);
  auto d = gpu::make_cuda_device(spec);
  if (!d) {
    fmt::print("GPT-2 {}: {}\n", s.name, d.error().text);
    return;
  }
  const std::vector<payload> data{random_tokens(spec, 1), random_tokens(spec, 2)};
  train(**d, data, 5);  // memory is taken, algorithms are chosen
  double best = 1e30, worst = 0, loss = 0;
  for (int round = 0; round < 5; ++round) {
    const auto [seconds, l] = train(**d, data, 10);
    best = std::min(best, seconds / 10);
    worst = std::max(worst, seconds / 10);
    loss = l;
  }
  const auto tokens = static_cast<double>(gpu::tokens_of(spec));
  fmt::print(
      "GPT-2 {}, {} x 1024 tokens: {:.0f} tokens/s (worst {:.0f}), {:.2f} ms a step, {:.1f} "
      "TFLOP/s, loss {:.4f}\n",
      s.name, rows, tokens / best, tokens / worst, best * 1e3,
      3 * gpu::size_of(spec).forward_flops / best / 1e12, loss);
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
  std::uint32_t rows = 0;
  std::vector<std::string> names;
  for (int i = 1; i < count; ++i) {
    const std::string a = arguments[i];
    if (a == "-r" && i + 1 < count)
      rows = static_cast<std::uint32_t>(std::atoi(arguments[++i]));
    else
      names.push_back(a);
  }
  for (const auto& s : sizes)
    if (names.empty() || std::find(names.begin(), names.end(), s.name) != names.end())
      measure(s, rows ? rows : s.rows);
}
