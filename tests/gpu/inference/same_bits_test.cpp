#include <algorithm>
#include <catch2/catch.hpp>

#include "gpu/cpu/kernels/kernel_sets.hpp"
#include "gpu/cpu/kernels/kernels.hpp"
#include "gpu/cpu/kernels/matrix.hpp"
#include "gpu/inference/generate.hpp"
#include "gpu/inference/service.hpp"
#include "messages/base/random.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

namespace {

constexpr std::uint32_t new_tokens = 5;

/// The result of `troupe infer --alone`.
served alone(const std::filesystem::path& folder, const std::vector<std::uint32_t>& prompt) {
  const auto m = loaded(read_inference_model(folder));
  auto spec = whole_model(m, 16);
  spec.weights = folder;
  const auto device = loaded(make_cpu_inference_device(spec));
  generation g;
  g.prompt = prompt;
  g.what.prompt_tokens = static_cast<std::uint32_t>(g.prompt.size());
  g.what.max_tokens = new_tokens;
  g.keep_logits = true;
  completion out{g.what, {}, nullptr};
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
  g.what.prompt_tokens = static_cast<std::uint32_t>(g.prompt.size());
  g.what.max_tokens = 1;
  g.keep_logits = true;
  completion out{g.what, {}, nullptr};
  const auto whole = loaded(generate(*device, g, out)).logits;
  for (const std::size_t length : {1, 63, 65, 128, 171}) {
    auto shorter = g;
    shorter.prompt.resize(length);
    shorter.what.prompt_tokens = static_cast<std::uint32_t>(length);
    completion other{g.what, {}, nullptr};
    const auto logits = loaded(generate(*device, shorter, other)).logits;
    INFO("the first " << length);
    CHECK(std::equal(logits.begin(), logits.end(), whole.begin()));
    CHECK(logits.size() == length * m.vocabulary);
  }
}

namespace {

std::vector<float> random_values(std::size_t n, std::uint64_t seed) {
  random_source random{seed};
  std::vector<float> v(n);
  for (auto& x : v) x = static_cast<float>(2 * random.uniform() - 1);
  return v;
}

/// Row `at` of `rows` (of which `memory` exist) times the weights, added to 0.25; the other rows
/// are 0 or random.
template <class Product>
std::vector<float> row_of_product(const std::vector<float>& row, std::size_t at, std::size_t rows,
                                  std::size_t memory, std::size_t columns, bool alone,
                                  const Product& product) {
  auto in = alone ? std::vector<float>(memory * row.size())
                  : random_values(memory * row.size(), 3 + at + rows);
  std::copy(row.begin(), row.end(), in.begin() + static_cast<std::ptrdiff_t>(at * row.size()));
  std::vector<float> out(memory * columns, 0.25f);
  product(in.data(), rows, out.data());
  const auto first = out.begin() + static_cast<std::ptrdiff_t>(at * columns);
  return {first, first + static_cast<std::ptrdiff_t>(columns)};
}

struct weight_shape {
  std::size_t in, out;
};
constexpr weight_shape shapes[] = {{48, 144},   {64, 96},    {128, 256},  {384, 1536},
                                   {768, 2304}, {3072, 768}, {1001, 4099}};

}  // namespace

// On these two all the others rest.

TEST_CASE("a row of a product has the same bits at every place among 64 rows") {
  cpu::prepare_thread();
  for (const auto& [in, out] : shapes) {
    const auto weights = random_values(in * out, 1), row = random_values(in, 2);
    const auto product = [&, n = in, m = out](const float* a, std::size_t rows, float* c) {
      cpu::multiply(cpu::matrix<const float>{a, rows, n},
                    cpu::matrix<const float>{weights.data(), n, m}, cpu::matrix<float>{c, rows, m},
                    cpu::into::add);
    };
    const auto first = row_of_product(row, 0, 64, 64, out, true, product);
    for (const std::size_t at : {0, 1, 31, 63})
      for (const bool alone : {true, false}) {
        INFO(in << " x " << out << ", row " << at);
        CHECK(row_of_product(row, at, 64, 64, out, alone, product) == first);
      }
  }
}

TEST_CASE("the kernel for few rows gives a row the same bits among any number of them") {
  std::vector<const cpu::kernels<float>*> sets{&cpu::plain_kernels};
  if (&cpu::float_kernels() != sets[0]) sets.push_back(&cpu::float_kernels());
  for (const auto* k : sets)
    for (const auto& [in, out] : shapes) {
      const auto weights = random_values(in * out, 1), row = random_values(in, 2);
      const auto product = [&, n = in, m = out](const float* a, std::size_t rows, float* c) {
        k->add_product(a, rows, weights.data(), n, m, m, c);
      };
      const auto first = row_of_product(row, 0, 1, 8, out, true, product);
      for (std::size_t rows = 1; rows <= cpu::few_rows; ++rows)
        for (const bool alone : {true, false}) {
          INFO(k->name << ", " << in << " x " << out << ", " << rows << " rows");
          CHECK(row_of_product(row, rows - 1, rows, 8, out, alone, product) == first);
        }
      double exact = 0.25;
      for (std::size_t i = 0; i < in; ++i)
        exact += static_cast<double>(row[i]) * static_cast<double>(weights[i * out + out - 1]);
      CHECK(static_cast<double>(first.back()) == Approx(exact).margin(1e-4));
    }
}
