#include <catch2/catch.hpp>

#include "planners/cost/batch_split.hpp"
#include "planners/cost/stage_time.hpp"
#include "planners/sample.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

job_spec batch_of(std::uint32_t samples) {
  return sample::job(sample::gpt2_small, samples);
}

bool is(const batch_split& made, std::uint32_t microbatches, std::uint32_t rows) {
  return made.microbatches == microbatches && made.rows == rows;
}

/// Two datacenters with a link of 5 Gb/s, 0.293 a connection; a third without.
cluster far_apart() {
  cluster c;
  c.datacenters = {{"a", ""}, {"b", ""}, {"c", ""}};
  c.wan.push_back({0, 1, 80, 5, 0.293});
  return c;
}

}  // namespace

TEST_CASE("a batch is split into the job's number of micro-batches, if that divides it") {
  auto job = batch_of(24);
  CHECK(is(split_batch(job, 2, 2), 6, 2));  // at most four for each stage, and a divisor of 12
  CHECK(is(split_batch(job, 1, 2), 4, 3));
  CHECK(is(split_batch(job, 8, 2), 12, 1));
  CHECK(is(split_batch(job, 2, 5), 0, 0));
  CHECK(is(split_batch(job, 2, 0), 0, 0));
  job.microbatches = 3;
  CHECK(is(split_batch(job, 2, 2), 3, 4));
  job.pipeline.microbatches = 4;  // of the training, before those of the program
  CHECK(is(split_batch(job, 2, 2), 4, 3));
  job.pipeline.microbatches = 5;
  CHECK(is(split_batch(job, 2, 2), 0, 0));
  job.pipeline.rows = 6;
  CHECK(is(split_batch(job, 2, 2), 2, 6));
  job.pipeline.rows = 5;
  CHECK(is(split_batch(job, 2, 2), 0, 0));
  job.slots = slot_costs{};
  job.pipeline.microbatches = 7;
  CHECK(is(split_batch(job, 2, 2), 7, 1));
  job.pipeline.microbatches = 0;
  CHECK(is(split_batch(job, 2, 2), 1, 1));
}

TEST_CASE(
    "a stage holds all micro-batches, its limit, or one more than the stages behind it under "
    "Megatron") {
  auto job = batch_of(24);
  const batch_split split{8, 3};
  CHECK(in_flight(job, split, 2) == 8);
  job.pipeline.max_in_flight = 5;
  CHECK(in_flight(job, split, 2) == 5);
  job.train.emplace();
  job.train->schedule = "megatron";
  CHECK(in_flight(job, split, 2) == 3);
  CHECK(in_flight(job, split, 6) == 5);
  job.pipeline.recompute = false;
  const auto load = load_of(job, split, 2, 1e9);
  CHECK(load.rows == 3);
  CHECK(load.held == 3);
  CHECK(load.max_bytes == 1e9);
  CHECK_FALSE(load.recompute);
}

TEST_CASE("each stage's bytes include the headroom, and earlier stages hold more under Megatron") {
  auto job = batch_of(24);
  job.train.emplace();
  job.train->schedule = "megatron";
  const std::vector<stage_part> parts(3, {0, 2, 1, 0, 100, 1000, 10});
  const auto bytes = bytes_by_stage(job, {8, 2}, parts, 0.5);
  REQUIRE(bytes.size() == 3);
  for (std::uint32_t i = 0; i < 3; ++i)
    CHECK(bytes[i] == 1.5 * (100 * 20 + 2 * 1000 + 2 * (3 - i) * 10));
}

TEST_CASE(
    "datacenters are joined by the connections that fill their link, or by the requested number") {
  const auto c = far_apart();
  CHECK(connections_between(c, 0, 1, 0) == 18);
  CHECK(connections_between(c, 1, 0, 3) == 3);
  CHECK(connections_between(c, 0, 2, 0) == 1);
  CHECK(link_between(c, 0, 1, 0).gbps == 5);
  CHECK(link_between(c, 0, 1, 3).gbps == 3 * 0.293);
  CHECK(link_between(c, 0, 1, 0).latency_us == 40'000);
  auto full = c;
  full.wan[0].connection_gbps = 0;  // one does
  CHECK(connections_between(full, 0, 1, 0) == 1);
  CHECK(link_between(full, 0, 1, 0).gbps == 5);
  const cost_constants k;
  CHECK(link_between(c, 0, 2, 0).gbps == k.wan_gbps);
  CHECK(link_between(c, 0, 2, 0).latency_us == k.wan_latency_us);
}

TEST_CASE("a study's slots are its costs, and without recomputation recomputing costs nothing") {
  auto job = batch_of(1);
  job.slots = slot_costs{1, 2, 3, 4, 5};
  const pipeline_costs all{1, 2, 3, 4, 5, 0};
  CHECK(costs_in_slots(job) == all);
  job.pipeline.recompute = false;
  const pipeline_costs kept{1, 0, 3, 4, 5, 0};
  CHECK(costs_in_slots(job) == kept);
  CHECK(communication_to_compute(all) == 5);
  CHECK(communication_to_compute({0, 0, 0, 0, 5, 0}) == 0);
}

TEST_CASE(
    "stages that keep all activations, under an open schedule, hold no more than 1F1B's first") {
  auto job = batch_of(24);
  const batch_split split{8, 3};
  job.pipeline.recompute = false;
  CHECK(flight_limit(job, 4) == 4);
  CHECK(in_flight(job, split, 0, 4) == 4);
  CHECK(in_flight(job, split, 3) == 4);
  CHECK(in_flight(job, {2, 12}, 3) == 2);
  job.pipeline.max_in_flight = 5;
  CHECK(in_flight(job, split, 3) == 5);
  job.pipeline.max_in_flight = 0;
  job.train.emplace();
  for (const auto* open : {"", "best"}) {
    job.train->schedule = open;
    CHECK(flight_limit(job, 4) == 4);
  }
  job.train->schedule = "varuna";  // its user chose it
  CHECK_FALSE(flight_limit(job, 4));
  CHECK(in_flight(job, split, 0, 4) == 8);
  job.train->schedule.clear();
  job.pipeline.recompute = true;
  CHECK_FALSE(flight_limit(job, 4));
  job.slots.emplace();
  job.pipeline.recompute = false;
  CHECK_FALSE(flight_limit(job, 4));
}

TEST_CASE("megatron and gpipe keep a limit in flight only if their orders do") {
  auto job = batch_of(24);
  job.pipeline.max_in_flight = 4;
  CHECK(keeps_flight_limit(job, 8, 5));
  job.train.emplace().schedule = "megatron";
  CHECK_FALSE(keeps_flight_limit(job, 8, 5));
  CHECK(keeps_flight_limit(job, 8, 4));
  CHECK(keeps_flight_limit(job, 4, 5));
  job.train->schedule = "gpipe";
  CHECK_FALSE(keeps_flight_limit(job, 8, 2));
  CHECK(keeps_flight_limit(job, 4, 5));
  job.train->schedule = "varuna";
  CHECK(keeps_flight_limit(job, 8, 5));
}
