#include "messages/domain/tensor_split.hpp"

#include <catch2/catch.hpp>

#include "planners/plans/user_request.hpp"
#include "planners/sample.hpp"

// Tensor parallelism of models with fewer key and value heads than heads.

using namespace troupe;
using namespace troupe::planners;

namespace {

model grouped(std::string name, std::uint32_t hidden, std::uint32_t layers, std::uint32_t heads,
              std::uint32_t kv_heads, std::uint32_t intermediate) {
  auto m = sample::gpt(std::move(name), hidden, layers, heads, 512, 32000);
  m.family = "llama";
  m.kv_heads = kv_heads;
  m.intermediate = intermediate;
  return m;
}

/// Shapes of published models, and one of each small number of key and value heads.
std::vector<model> models() {
  return {
      grouped("one", 1024, 8, 16, 1, 4096),          grouped("two", 1024, 8, 16, 2, 4096),
      grouped("four", 1024, 8, 16, 4, 4096),         grouped("eight", 1024, 8, 16, 8, 4096),
      grouped("qwen2.5-0.5b", 896, 24, 14, 2, 4864), grouped("qwen2.5-3b", 2048, 36, 16, 2, 11008),
      grouped("qwen2.5-7b", 3584, 28, 28, 4, 18944), grouped("mistral-7b", 4096, 32, 32, 8, 14336)};
}

void check(const plan& p, const model& m) {
  CHECK(m.heads % p.tensor_parallel == 0);
  CHECK(m.kv_heads % p.tensor_parallel == 0);
  for (const auto& s : p.stages) CHECK(m.kv_heads % s.tensor_parallel == 0);
}

}  // namespace

TEST_CASE("every plan of every policy divides the heads and the key and value heads") {
  cluster c;
  sample::add_nodes(c, sample::a100_80, 2, 8);
  std::size_t divided = 0;
  for (const auto& m : models())
    for (const auto name : policy_names())
      for (const bool exact : {false, true}) {
        auto job = sample::job(m, 16, 8);
        job.request.exact = exact;
        planning_budget budget;
        const auto plans = make_policy(name)->plans_of(c, job, budget);
        INFO(m.name << ", " << name);
        if (!plans) continue;
        for (const auto& p : *plans) {
          check(p, m);
          divided += p.tensor_parallel > 1;
        }
      }
  CHECK(divided > 100);  // and they do divide where they may
}

TEST_CASE("the split of a user's request divides the key and value heads") {
  cluster c;
  sample::add_nodes(c, sample::rtx2080ti, 1, 8);
  for (const auto& m : models()) {
    INFO(m.name);
    check(split_for(c, sample::job(m, 16, 8), {{0, 8}}), m);
  }
}

TEST_CASE("heads, key and value heads and the MLP's width limit how a model is divided") {
  const auto m = grouped("m", 768, 2, 12, 6, 3072);
  for (const std::uint32_t t : {1, 2, 3, 6}) CHECK(splits_into(m, t));
  for (const std::uint32_t t : {4, 5, 8, 12}) CHECK_FALSE(splits_into(m, t));
  auto other = m;
  other.kv_heads = 0;  // as many as heads
  CHECK(splits_into(other, 4));
  other.intermediate = 3070;
  CHECK_FALSE(splits_into(other, 4));
  CHECK(splits_into(other, 2));
  other.intermediate = 0;  // four times the hidden size
  CHECK(splits_into(other, 4));
  model operators;
  operators.operators.resize(2);
  CHECK(splits_into(operators, 7));
}
