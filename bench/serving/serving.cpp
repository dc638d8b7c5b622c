// The CPU engine beside llama.cpp, with the same threads and weights, in turns; what threads and
// batching bring, and what HTTP and a cluster add to it.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "gpu/inference/weights.hpp"
#include "harness/clock.hpp"
#include "harness/runs.hpp"
#include "serving/adapters.hpp"
#include "serving/encoding.hpp"
#include "serving/engine.hpp"
#include "serving/gguf.hpp"
#include "serving/llama.hpp"
#include "serving/through_http.hpp"
#include "serving/two_threads.hpp"
#include "training/gemm.hpp"

using namespace troupe;
using namespace troupe::bench;

namespace {

constexpr std::uint64_t seed = 7;
constexpr std::size_t prompt_tokens = 512, new_tokens = 32;

gpu::inference_model gpt2_small() {
  gpu::inference_model m;
  m.name = "GPT-2 124M";
  m.hidden = 768, m.layers = 12, m.heads = m.kv_heads = 12, m.head_width = 64;
  m.intermediate = 3072, m.positions = 1024, m.vocabulary = 50257;
  return m;
}

gpu::inference_model small_llama() {
  gpu::inference_model m;
  m.name = "Llama 6 x 384";
  m.kind = gpu::inference_model::family::llama;
  m.hidden = 384, m.layers = 6, m.heads = m.kv_heads = 6, m.head_width = 64;
  m.intermediate = 1024, m.positions = 1024, m.vocabulary = 32000;
  m.tied_head = m.qkv_bias = m.output_bias = m.mlp_bias = false;
  return m;
}

/// Operations of a prompt's matrix products, without attention's and with the head of one position.
double operations(const gpu::inference_model& m, std::size_t tokens) {
  double weights = 0;
  for (std::uint32_t i = 0; i < 2 * m.layers; ++i) {
    const auto w = gpu::weights_of(m, i);
    weights += static_cast<double>(w.wide.values() + w.back.values());
  }
  return 2 * (weights * static_cast<double>(tokens) + 1.0 * m.hidden * m.vocabulary);
}

/// Seconds of each of so many rounds.
struct speeds {
  std::vector<double> prefill, decode;
};

std::string equal_tokens(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b) {
  std::size_t same = 0;
  while (same < std::min(a.size(), b.size()) && a[same] == b[same]) ++same;
  return fmt::format("{} of {}", same, a.size());
}

void beside_llama(const gpu::inference_model& m, const std::optional<std::string>& modules,
                  const scratch& in, int rounds, double peak) {
  auto spec = gpu::whole_model(m, gpu::pages_for(m.positions));
  spec.seed = seed;
  engine own{spec};
  std::optional<llama_peer> peer;
  const auto file = in.path("model.gguf");
  if (modules) {
    write_gguf(file, m, seed);
    peer.emplace(*modules, file);
  }
  const auto prompt = prompt_of(prompt_tokens, m.vocabulary, 1);
  speeds ours, theirs;
  std::string same = "-";
  for (int round = 0; round <= rounds; ++round) {
    const double p = own.prefill(prompt);
    const auto d = own.decode(new_tokens);
    if (round > 0) ours.prefill.push_back(p), ours.decode.push_back(d.s);  // the first warms up
    if (!peer) continue;
    const double q = peer->prefill(prompt);
    const auto e = peer->decode(new_tokens);
    if (round > 0) theirs.prefill.push_back(q), theirs.decode.push_back(e.s);
    same = equal_tokens(d.tokens, e.tokens);
  }
  const auto print = [&](const char* what, const std::vector<double>& a,
                         const std::vector<double>& b, double tokens, double flops, double wanted) {
    const double s = median(a), gflops = flops / s / 1e9;
    fmt::print("| {} | {} | {:.0f} | {:.1f} | {:.0f} % |", m.name, what, tokens / s, gflops,
               100 * gflops / peak);
    if (b.empty()) return fmt::print(" | | {} | |\n", wanted);
    std::vector<double> ratios;
    for (std::size_t i = 0; i < a.size(); ++i) ratios.push_back(b[i] / a[i]);
    const double r = median(ratios);
    fmt::print(" {:.0f} | {:.2f} | {} | {} |\n", tokens / median(b), r, wanted,
               r >= wanted ? "yes" : "**no**");
  };
  const auto one = operations(m, 1);
  print("prefill", ours.prefill, theirs.prefill, prompt_tokens, operations(m, prompt_tokens), 1.0);
  print("decode", ours.decode, theirs.decode, new_tokens, one * new_tokens, 0.8);
  if (peer) fmt::print("| | the same tokens | {} | | | | | | |\n", same);
  std::filesystem::remove(file);
}

void together(const gpu::inference_model& m, int rounds) {
  auto spec = gpu::whole_model(m, 10 * gpu::pages_for(512));
  spec.seed = seed;
  engine own{spec};
  constexpr std::size_t prompt = 64, count = 16;
  std::vector<double> ratios[2];
  own.decode_together(1, prompt, count);
  for (int round = 0; round < rounds; ++round) {
    const double one = own.decode_together(1, prompt, count);
    ratios[0].push_back(4 * one / own.decode_together(4, prompt, count));
    ratios[1].push_back(8 * one / own.decode_together(8, prompt, count));
  }
  fmt::print("| {} | {:.1f} | {:.1f} | 4 | {} |\n", m.name, median(ratios[0]), median(ratios[1]),
             median(ratios[1]) >= 4 ? "yes" : "**no**");
}

/// The sum of each step's median time over the rounds, so that other work of the machine during one
/// round does not count.
double usual_prompt_s(const std::vector<std::vector<double>>& rounds) {
  double sum_s = 0;
  for (std::size_t step = 0; step < rounds.front().size(); ++step) {
    std::vector<double> times;
    for (const auto& r : rounds) times.push_back(r[step]);
    sum_s += median(times);
  }
  return sum_s;
}

void suspended(const gpu::inference_model& m, int rounds) {
  auto spec = gpu::whole_model(m, gpu::pages_for(m.positions));
  spec.seed = seed;
  engine own{spec};
  const auto prompt = prompt_of(prompt_tokens, m.vocabulary, 1);
  std::vector<std::vector<double>> whole, busy, asleep;
  own.step_times_s(prompt, pause::none);
  for (int round = 0; round < rounds; ++round) {
    whole.push_back(own.step_times_s(prompt, pause::none));
    busy.push_back(own.step_times_s(prompt, pause::busy));
    asleep.push_back(own.step_times_s(prompt, pause::asleep));
  }
  const double usual_s = usual_prompt_s(whole);
  const double busy_longer = 100 * (usual_prompt_s(busy) / usual_s - 1);
  const double asleep_longer = 100 * (usual_prompt_s(asleep) / usual_s - 1);
  fmt::print("| {} | {:+.1f} % | {:+.1f} % | 3 % | {} |\n", m.name, busy_longer, asleep_longer,
             std::max(busy_longer, asleep_longer) <= 3 ? "yes" : "**no**");
}

/// The times that everything between a client and the engine adds.
void around(const char* name, const http_service& s, engine& own, const std::string& text) {
  constexpr int asked = 200;
  std::vector<std::uint32_t> tokens(text.begin(), text.end());
  std::vector<double> extra_ms, prefill_s;
  for (int i = 0; i < 20; ++i) s.first_token_s(text), own.prefill(tokens);
  for (int i = 0; i < 50; ++i) prefill_s.push_back(own.prefill(tokens));
  const double prefill = median(prefill_s);
  for (int i = 0; i < asked; ++i) extra_ms.push_back(1e3 * (s.first_token_s(text) - prefill));
  std::ranges::sort(extra_ms);
  const double p50 = extra_ms[asked / 2], p99 = extra_ms[asked * 99 / 100];
  constexpr std::size_t streams = 64, count = 128;
  const double cpu_ms = 1e3 * s.cpu_s_of_token(streams, count);
  const double before_s = clock_s(CLOCK_THREAD_CPUTIME_ID);
  own.decode_together(streams, 15, count);
  const double compute_ms = 1e3 * (clock_s(CLOCK_THREAD_CPUTIME_ID) - before_s) / (streams * count);
  const double token_ms = cpu_ms - compute_ms;
  fmt::print("| {} | {:.2f} | {:.2f} | {:.2f} | 10, 25 | {} | {:.3f} | {:.3f} | 0.3 | {} |\n", name,
             1e3 * prefill, p50, p99, p50 <= 10 && p99 <= 25 ? "yes" : "**no**", compute_ms,
             token_ms, token_ms <= 0.3 ? "yes" : "**no**");
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  const std::string only = argc > 2 ? argv[2] : "";
  const auto wanted = [&](const char* part) { return only.empty() || only == part; };
  const scratch in;
  const std::vector<gpu::inference_model> models{gpt2_small(), small_llama()};
  if (wanted("llama")) {
    const double peak = multiply_add_peak();
    fmt::print("One core's multiply-adds in registers: {:.0f} GFLOP/s. Prompts of {} tokens.\n\n",
               peak, prompt_tokens);
    const auto modules = llama_peer::installed();
    fmt::print(
        "| model | | tokens/s | GFLOP/s | of the peak | llama.cpp tokens/s | ratio | wanted | "
        "|\n|---|---|---:|---:|---:|---:|---:|---:|---|\n");
    for (const auto& m : models) beside_llama(m, modules, in, rounds, peak);
  }
  if (wanted("threads")) two_threads(models, llama_peer::installed(), in, rounds);
  if (wanted("together")) {
    fmt::print(
        "\n| decode | 4 together / 1 | 8 together / 1 | wanted | |\n|---|---:|---:|---:|---|\n");
    for (const auto& m : models) together(m, rounds);
  }
  if (wanted("suspended")) {
    fmt::print(
        "\n| prefill with a pause of 1 ms after each step | core busy: longer by | asleep: longer "
        "by | wanted | |\n|---|---:|---:|---:|---|\n");
    for (const auto& m : models) suspended(m, rounds);
  }
  if (wanted("tokens")) {
    fmt::print("\n| encoding | 0.5 MiB, ms | 1 MiB, ms | ratio | wanted | |\n");
    fmt::print("|---|---:|---:|---:|---:|---|\n");
    encoding_times(in, rounds);
  }
  const bool good = !wanted("adapters") || adapters_beside_merged(rounds);
  if (!wanted("http")) return good ? 0 : 1;
  const auto folder = std::filesystem::path{TROUPE_BENCH_CONFIGS} / "models" / "scribe";
  const auto model = gpu::read_inference_model(folder);
  if (!model) return 2;
  auto spec = gpu::whole_model(*model, 64 * gpu::pages_for(256));
  spec.weights = folder;
  engine own{spec};
  const std::string text = "We the People of the United States, in Order to form a more perf";
  fmt::print(
      "\n| scribe through | prefill ms | first token less prefill, p50 ms | p99 ms | wanted | | "
      "engine's CPU for a token, 64 together, ms | CPU around it, ms | wanted | "
      "|\n|---|---:|---:|---:|---|---|---:|---:|---:|---|\n");
  around("`troupe serve`", http_service::alone(in), own, text);
  around("front, gateway and decoder", http_service::cluster(in), own, text);
  return good ? 0 : 1;
}
