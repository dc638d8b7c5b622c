#include <catch2/catch.hpp>

#include "planners/has.hpp"
#include "planners/memory.hpp"
#include "planners/model_shape.hpp"
#include "planners/sample.hpp"

using namespace troupe;
using namespace troupe::planners;

TEST_CASE("MARP's bytes of GPT2-7B at batch 2 are those of the paper") {
  const auto gb = [](std::uint32_t d, std::uint32_t t) {
    return marp_bytes(sample::gpt2_7b, 2, d, t) / bytes_per_gb;
  };
  CHECK(gb(1, 4) == Approx(40.23).margin(0.005));
  CHECK(gb(2, 4) == Approx(36.74).margin(0.005));
  CHECK(gb(1, 8) == Approx(21.46).margin(0.005));
  CHECK(gb(2, 2) == Approx(72.14).margin(0.005));
}

TEST_CASE("on nodes of four A100-40GB, GPT2-7B at batch 2 takes eight GPUs as d 2 and t 4") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 3, 4);
  const auto plans = marp(c, sample::job(sample::gpt2_7b, 2));
  REQUIRE(plans);
  const idle_index idle(c);
  const auto choice = has(c, idle, *plans);
  REQUIRE(choice);
  const auto& how = (*plans)[choice->plan];
  CHECK(how.data_parallel == 2);
  CHECK(how.tensor_parallel == 4);
  CHECK(choice->where == allocation{{2, 4}, {0, 4}});
}
