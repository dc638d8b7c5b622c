#include "serving/adapters.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "gpu/inference/weights.hpp"
#include "harness/foreign_load.hpp"
#include "harness/runs.hpp"
#include "messages/base/random.hpp"
#include "serving/engine.hpp"

namespace troupe::bench {

namespace {

constexpr std::size_t sequences = 8, prompt = 32, new_tokens = 8, count = 4;
constexpr std::uint32_t rank = 16;

gpu::inference_model wide_llama() {
  gpu::inference_model m;
  m.name = "Llama 4 x 2048";
  m.kind = gpu::inference_model::family::llama;
  m.hidden = 2048, m.layers = 4, m.heads = m.kv_heads = 16, m.head_width = 128;
  m.intermediate = 5632, m.positions = 512, m.vocabulary = 4096;
  m.tied_head = m.qkv_bias = m.output_bias = m.mlp_bias = false;
  return m;
}

/// On all tensors of the attentions and MLPs.
gpu::adapter_ref random_adapter(const gpu::inference_model& m, std::uint64_t seed) {
  gpu::adapter a;
  a.key = fmt::format("adapter {}", seed);
  a.rank = rank;
  a.model = m;
  random_source random{seed};
  const auto fill = [&](std::vector<float>& values, std::uint64_t n) {
    values.resize(n);
    for (auto& x : values) x = static_cast<float>(0.02 * (2 * random.uniform() - 1));
  };
  for (std::uint32_t s = 0; s < 2 * m.layers; ++s) {
    auto& all = a.sublayers.emplace_back();
    const auto w = gpu::weights_of(m, s);
    for (const auto& [back, matrix] : {std::pair{false, &w.wide}, {true, &w.back}}) {
      std::uint64_t first = 0;
      for (const auto& t : matrix->tensors) {
        auto& x = all.emplace_back();
        x.back = back, x.first_column = first, x.in = matrix->in, x.columns = t.columns;
        x.rank = rank;
        fill(x.a, x.in * rank);
        fill(x.b, rank * x.columns);
        first += t.columns;
        ++a.tensors;
      }
    }
  }
  return std::make_shared<const gpu::adapter>(std::move(a));
}

/// Bytes of this process that are in memory.
double resident_bytes() {
  std::ifstream in{"/proc/self/statm"};
  double all = 0, resident = 0;
  in >> all >> resident;
  constexpr double page_bytes = 4096;
  return resident * page_bytes;
}

gpu::inference_spec spec_of(const gpu::inference_model& m, std::uint64_t seed) {
  auto spec = gpu::whole_model(m, sequences * gpu::pages_for(prompt + new_tokens));
  spec.seed = seed;
  return spec;
}

bool row(const char* what, double found, const char* limit, bool good) {
  fmt::print("| {} | {:.3f} | {} | {} |\n", what, found, limit, good ? "yes" : "**no**");
  return good;
}

}  // namespace

bool adapters_beside_merged(int rounds) {
  const foreign_load load;
  const auto m = wide_llama();
  const double before = resident_bytes();
  engine base{spec_of(m, 1)};
  base.cpu_s_together(sequences, prompt, 1, {});
  std::vector<gpu::adapter_ref> adapters;
  for (std::size_t i = 0; i < count; ++i) adapters.push_back(random_adapter(m, 10 + i));
  base.cpu_s_together(sequences, prompt, 1, adapters);
  const double one = resident_bytes() - before;
  std::vector<std::unique_ptr<engine>> merged;
  for (std::size_t i = 0; i < count; ++i)
    merged.push_back(std::make_unique<engine>(spec_of(m, 2 + i)));
  for (auto& e : merged) e->cpu_s_together(sequences / count, prompt, 1, {});
  const double four = resident_bytes() - before - one;
  std::vector<double> of_alone, of_merged;
  std::array<std::vector<double>, 3> bare_s;  // base, and two engines without adapters
  for (int i = 0; i < rounds; ++i) {
    // By turns, since the machine drifts. Two without adapters show how far alike engines differ.
    engine* const bare[] = {&base, merged[0].get(), merged[1].get()};
    for (std::size_t k = 0; k < bare_s.size(); ++k) {
      const auto j = (k + static_cast<std::size_t>(i)) % bare_s.size();
      bare_s[j].push_back(bare[j]->cpu_s_together(sequences, prompt, new_tokens, {}));
    }
    const double alone = bare_s[0].back();
    const double with = base.cpu_s_together(sequences, prompt, new_tokens, adapters);
    double each = 0;
    for (auto& e : merged) each += e->cpu_s_together(sequences / count, prompt, new_tokens, {});
    of_alone.push_back(alone / with);
    of_merged.push_back(each / with);
  }
  fmt::print("\n| {}, rank {} on all matrices, {} sequences | found | wanted | |\n", m.name, rank,
             sequences);
  fmt::print("|---|---:|---|---|\n");
  // All that disturbs a run makes it longer, so the shortest of each are compared.
  const auto shortest = [&](std::size_t k) { return *std::ranges::min_element(bare_s[k]); };
  const double a = median(of_alone), l = shortest(1) / shortest(0), b = median(of_merged);
  bool good = row("4 adapters x 2 of base alone", a, ">= 0.85", a >= 0.85);
  good = row("base with adapters loaded, of one without", l, ">= 0.98", l >= 0.98) && good;
  row("two engines without, of each other", shortest(1) / shortest(2), "", true);
  good = row("4 adapters x 2 of four merged models", b, ">= 1.6", b >= 1.6) && good;
  good = row("memory, of the four", one / four, "<= 0.35", one / four <= 0.35) && good;
  fmt::print("\nForeign load: {:.0f} % of the processors.\n", load.percent());
  return good;
}

}  // namespace troupe::bench
