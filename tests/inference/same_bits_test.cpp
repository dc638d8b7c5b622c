#include <algorithm>
#include <catch2/catch.hpp>

#include "gpu/cpu/matrix.hpp"
#include "gpu/inference/generate.hpp"
#include "inference/service.hpp"
#include "messages/random.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

namespace {

constexpr std::uint32_t new_tokens = 5;

/// What `troupe infer --alone` computes.
served alone(const std::filesystem::path& folder, const std::vector<std::uint32_t>& prompt) {
  const auto m = loaded(read_inference_model(folder));
  auto spec = whole_model(m, 16);
  spec.weights = folder;
  const auto device = loaded(make_cpu_inference_device(spec));
  generation g;
  g.prompt = prompt;
  g.limits.max_tokens = new_tokens;
  g.keep_logits = true;
  completion out{g.limits, nullptr};
  const auto made = loaded(generate(*device, g, out));
  const auto from = static_cast<std::ptrdiff_t>((prompt.size() - 1) * m.vocabulary);
  return {out.tokens(), {made.logits.begin() + from, made.logits.end()}};
}

void check_ways(const model_kind& kind, std::size_t length, const std::vector<serving_way>& ways) {
  const auto folder = model_folder(kind);
  service s{folder};
  const auto prompt = random_prompt(length, s.model().vocabulary, length);
  const auto reference = alone(folder, prompt);
  REQUIRE(reference.tokens.size() == new_tokens);
  for (const auto& way : ways) {
    INFO(kind.name << ", prompt of " << length << ", chunks of " << way.chunk << ", " << way.parts
                   << " parts, " << way.company << " others"
                   << (way.suspended ? ", suspended" : ""));
    CHECK(s.serve(prompt, new_tokens, way) == reference);
  }
}

}  // namespace

TEST_CASE(
    "a completion is the same to the last bit for any chunks, parts, company and suspensions") {
  std::vector<serving_way> ways;
  for (const std::uint32_t chunk : {64, 192, 320})
    for (const std::uint32_t parts : {1, 2, 4})
      for (const std::uint32_t company : {0, 3, 12})
        for (const bool suspended : {false, true})
          ways.push_back({chunk, parts, company, suspended});
  for (const auto* name : {"gpt2", "llama"})
    for (const std::size_t length : {1, 63, 64, 65, 127, 300})
      check_ways(small_model_named(name), length, ways);
}

TEST_CASE("so is it for every kind of model") {
  for (const auto& kind : small_models())
    check_ways(kind, 130, {{64, 1, 3, true}, {128, 2, 9, false}, {192, 4, 1, true}});
}

TEST_CASE("what a position computes does not depend on what follows it") {
  const auto folder = model_folder(small_model_named("llama"));
  const auto m = loaded(read_inference_model(folder));
  auto spec = whole_model(m, 16);
  spec.weights = folder;
  const auto device = loaded(make_cpu_inference_device(spec));
  generation g;
  g.prompt = random_prompt(190, m.vocabulary, 1);
  g.limits.max_tokens = 1;
  g.keep_logits = true;
  completion out{g.limits, nullptr};
  const auto whole = loaded(generate(*device, g, out)).logits;
  for (const std::size_t length : {1, 63, 65, 128, 171}) {
    auto shorter = g;
    shorter.prompt.resize(length);
    completion other{g.limits, nullptr};
    const auto logits = loaded(generate(*device, shorter, other)).logits;
    INFO("the first " << length);
    CHECK(std::equal(logits.begin(), logits.end(), whole.begin()));
    CHECK(logits.size() == length * m.vocabulary);
  }
}

// On which all the others rest. Another matrix library, or processor, may break it.
TEST_CASE("a row of a product has the same bits at every place among 8 and 64 rows") {
  const auto random_values = [](std::size_t n, std::uint64_t seed) {
    random_source random{seed};
    std::vector<float> v(n);
    for (auto& x : v) x = static_cast<float>(2 * random.uniform() - 1);
    return v;
  };
  cpu::prepare_thread();
  struct shape {
    std::size_t in, out;
  };
  for (const auto& [in, out] : {shape{48, 144}, shape{64, 96}, shape{128, 256}, shape{384, 1536},
                                shape{768, 2304}, shape{3072, 768}, shape{1000, 4099}}) {
    const auto weights = random_values(in * out, 1), row = random_values(in, 2);
    for (const std::size_t rows : {8, 64}) {
      std::vector<float> first;
      for (const std::size_t at : {std::size_t{0}, std::size_t{1}, rows / 2, rows - 1})
        for (const bool alone : {true, false}) {
          auto a = alone ? std::vector<float>(rows * in) : random_values(rows * in, 3 + at);
          std::copy(row.begin(), row.end(), a.begin() + static_cast<std::ptrdiff_t>(at * in));
          std::vector<float> c(rows * out, 0.25f);  // added to, as biases and residuals are
          cpu::multiply(cpu::matrix<const float>{a.data(), rows, in},
                        cpu::matrix<const float>{weights.data(), in, out},
                        cpu::matrix<float>{c.data(), rows, out}, cpu::into::add);
          const std::vector<float> found{c.begin() + static_cast<std::ptrdiff_t>(at * out),
                                         c.begin() + static_cast<std::ptrdiff_t>((at + 1) * out)};
          if (first.empty()) first = found;
          INFO(in << " x " << out << ", row " << at << " of " << rows);
          CHECK(found == first);
        }
    }
  }
}
