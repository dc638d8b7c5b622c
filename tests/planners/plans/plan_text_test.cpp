#include "planners/plans/plan_text.hpp"

#include <catch2/catch.hpp>

using namespace troupe;
using namespace troupe::planners;

TEST_CASE("each group of a plan has a sentence with its place, share and GPUs") {
  cluster c;
  c.gpus.resize(2);
  c.gpus[0].name = "V100", c.gpus[1].name = "A100";
  c.datacenters = {{"us-central1-a", ""}, {"us-central1-b", ""}};
  plan how;
  how.stages = {{0, 24, 4, gpu_index{1}, 0, 1U}};
  CHECK(group_sentences(c, how).empty());
  how.groups = {{8, 4, how.stages},
                {1, 1, {{0, 20, 1, gpu_index{0}, 0, 0U}, {20, 4, 2, gpu_index{1}, 0, 1U}}},
                {1, 2, {{0, 20, 1, gpu_index{0}, 0}, {20, 4, 1, gpu_index{0}, 0}}}};
  CHECK(
      group_sentences(c, how) ==
      std::vector<std::string>{"8 pipelines in us-central1-b, 4 micro-batches each: A100 x 4",
                               "1 pipeline, 1 micro-batch: V100 x 1 in us-central1-a, A100 x 2 in "
                               "us-central1-b",
                               "1 pipeline, 2 micro-batches: V100 x 1, V100 x 1"});
}
