#include "formats/load/groups.hpp"

#include <catch2/catch.hpp>

#include "harness/facts.hpp"
#include "harness/scratch.hpp"

using namespace troupe;
using namespace troupe::formats;

namespace {

cluster two_places() {
  cluster c;
  c.gpus.resize(2);
  c.gpus[0].name = "V100", c.gpus[1].name = "A100";
  c.datacenters = {{"west", ""}, {"north", ""}};
  return c;
}

expected<chosen_groups> groups_in(const std::string& text) {
  const troupe::test::scratch room;
  return load_groups(room.write("groups.json", text), two_places());
}

std::string no_groups(const std::string& text) {
  const auto read = groups_in(text);
  return read ? "" : read.error().text;
}

}  // namespace

TEST_CASE("a file of groups has their stages by type, place and pieces") {
  const auto read = groups_in(R"({"rows_per_microbatch": 2, "groups": [
      {"pipelines": 1, "microbatches": 3, "stages": [
        {"gpu": "V100", "pieces": 5, "datacenter": "west", "held": 2},
        {"gpu": "A100", "pieces": 3, "first_piece": 5, "tensor_parallel": 4}]},
      {"pipelines": 2, "microbatches": 1, "stages": [
        {"gpu": "A100", "pieces": 5}, {"gpu": "A100", "pieces": 3, "datacenter": "north"}]}]})");
  if (!read) FAIL(read.error().text);
  CHECK(read->rows == 2);
  REQUIRE(read->groups.size() == 2);
  const auto& [pipelines, microbatches, stages] = read->groups[0];
  CHECK(pipelines == 1);
  CHECK(microbatches == 3);
  CHECK(stages == std::vector<chosen_stage>{{"V100", 5, {}, "west", 2}, {"A100", 3, 4, {}, {}}});
  CHECK(read->groups[1].stages[1].datacenter == "north");
}

TEST_CASE("a plan as it is printed is a file of one group") {
  const auto read = groups_in(R"({"data_parallel": 4, "tensor_parallel": 1, "pipeline_parallel": 1,
      "gpus": 4, "bytes_per_gpu": 5, "marp_bytes_per_gpu": null, "microbatches": 6,
      "rows_per_microbatch": 1, "samples_per_s": 2.5, "cost_per_hour": 0, "gpu_types": ["A100"],
      "stages": [{"gpu": "A100", "first_piece": 0, "pieces": 8, "tensor_parallel": 1,
                  "bytes_per_gpu": 5}]})");
  if (!read) FAIL(read.error().text);
  REQUIRE(read->groups.size() == 1);
  CHECK(read->groups[0].pipelines == 4);
  CHECK(read->groups[0].microbatches == 6);
}

TEST_CASE("groups with unknown names, gaps or no size are refused with the key") {
  using troupe::test::has_facts;
  const auto stage = [](const std::string& keys) {
    return no_groups(R"({"rows_per_microbatch": 1, "groups": [{"pipelines": 1, "microbatches": 1,
        "stages": [{"gpu": "A100", "pieces": 4}, {)" +
                     keys + "}]}]}");
  };
  CHECK(stage(R"("gpu": "A100", "pieces": 4)").empty());
  CHECK(has_facts(stage(R"("gpu": "A10", "pieces": 4)"), {"groups[0].stages[1].gpu", "A10"}));
  CHECK(has_facts(stage(R"("gpu": "A100", "pieces": 4, "datacenter": "east")"), {"east"}));
  CHECK(has_facts(stage(R"("gpu": "A100", "pieces": 4, "first_piece": 5)"), {"found 5", "4"}));
  CHECK(has_facts(stage(R"("gpu": "A100", "pieces": 4, "held": 0)"), {"held"}));
  CHECK(has_facts(stage(R"("gpu": "A100", "pieces": 4, "replicas": 1)"), {"replicas"}));
  CHECK(has_facts(no_groups(R"({"groups": []})"), {"rows_per_microbatch"}));
  CHECK(has_facts(no_groups(R"({"rows_per_microbatch": 1, "groups": []})"), {"groups"}));
}
