#include <catch2/catch.hpp>

#include <cmath>
#include <vector>

#include "messages/base/fair_share.hpp"
#include "messages/codec/codec.hpp"
#include "messages/domain/link_cost.hpp"
#include "messages/domain/link_rates.hpp"
#include "planners/cost/batch_split.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/cost/program_time.hpp"
#include "planners/plans/explicit_plan.hpp"
#include "planners/sample.hpp"

// Links whose rate depends on the size of a tensor and on how many GPUs send it.

using namespace troupe;
using namespace troupe::planners;

namespace {

// Four A100 and one A100 of us-central1-a by Sailor's curves (SOSP'25), at 2^19, 2^21, 2^23, 2^25
// bytes.
const std::vector<link_rate> of_four{
    {524288, 32.66}, {2097152, 40.22}, {8388608, 45.43}, {33554432, 48.29}};
const std::vector<link_rate> of_one{
    {524288, 7.868}, {2097152, 10.12}, {8388608, 12.21}, {33554432, 14.14}};

troupe::link with_curves() {
  troupe::link l{"", 48, 50};
  l.rates = of_four;
  l.flow_rates = of_one;
  return l;
}

cluster linked_nodes(const troupe::link& inter, std::uint32_t gpus = 4) {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 2, gpus);
  for (auto& n : c.nodes) n.inter = inter;
  return c;
}

}  // namespace

TEST_CASE("A rate is linear in log2 of the bytes between points, and constant outside") {
  CHECK(gbps_at(of_one, 1) == 7.868);
  CHECK(gbps_at(of_one, 524288) == 7.868);
  CHECK(gbps_at(of_one, 1048576) == Approx((7.868 + 10.12) / 2));
  CHECK(gbps_at(of_one, 2097152) == 10.12);
  CHECK(gbps_at(of_one, 1e12) == 14.14);
  CHECK(gbps_at({{1, 5}}, 1e6) == 5);
}

TEST_CASE("A curve below a limit crosses it where the curve does") {
  const auto low = limited(of_four, 43);
  for (const double bytes : {1e5, 1e6, 3e6, 4.6e6, 5e6, 8e6, 1e8})
    CHECK(gbps_at(low, bytes) == Approx(std::min(43.0, gbps_at(of_four, bytes))).epsilon(1e-6));
  CHECK(limited(of_four, 1e300) == of_four);
  CHECK(are_rates(low));
}

TEST_CASE("Points of a curve increase, are positive, and few") {
  CHECK(are_rates(of_four));
  CHECK_FALSE(are_rates({}));
  CHECK_FALSE(are_rates({{0, 1}}));
  CHECK_FALSE(are_rates({{1, 0}}));
  CHECK_FALSE(are_rates({{1, 2e6}}));
  CHECK_FALSE(are_rates({{2, 1}, {2, 1}}));
  CHECK_FALSE(are_rates({{1, std::nan("")}}));
  CHECK_FALSE(are_rates(std::vector<link_rate>(65, {1, 1})));
  CHECK(are_group_rates({{2, 1, 0}, {8, 1, 5}}));
  CHECK_FALSE(are_group_rates({{1, 1, 0}}));
  CHECK_FALSE(are_group_rates({{4, 1, 0}, {2, 1, 0}}));
  CHECK_FALSE(are_group_rates({{2, 1, -1}}));
}

TEST_CASE("A stage of t GPUs sends as t flows, at most at its card's rate") {
  const auto c = linked_nodes(with_curves());
  const double bytes = 8388608;
  const auto gbps = [&](std::uint32_t flows) {
    return bytes * 8e-9 / link_cost_between(c, 0, 1, flows).alone_s(bytes);
  };
  CHECK(gbps(1) == Approx(12.21));
  CHECK(gbps(2) == Approx(24.42));  // Sailor measured 22.1
  CHECK(gbps(4) == Approx(45.43));
  const auto one = link_cost_between(c, 0, 1, 1);
  CHECK(one.link_s(bytes) == Approx(bytes * 8e-9 / 45.43));
  CHECK(one.share(bytes) == Approx(12.21 / 45.43));
  CHECK(link_cost_between(c, 0, 1, 4).share(bytes) == 1);
  CHECK(one.fastest_s(bytes) <= one.link_s(bytes));
  CHECK(one.max_s(bytes) >= one.alone_s(bytes));
}

TEST_CASE("A rate alone means what it did, to the bit, and has the same bytes on the wire") {
  const troupe::link plain{"eth", 25, 40};
  const auto c = linked_nodes(plain);
  const auto w = link_cost_between(c, 0, 1, 4);
  CHECK(w == link_cost_between(c, 0, 1));
  CHECK(w.alone_s(1234567) == 1234567 * (1 / (25 * 1e9 / 8)));
  CHECK(w.link_s(1234567) == w.alone_s(1234567));
  CHECK(w.share(1234567) == 1);
  // A constant curve is that rate.
  auto flat = plain;
  flat.rates = {{1, 25}};
  const auto same = linked_nodes(flat);
  CHECK(link_cost_between(same, 0, 1).alone_s(1e6) == Approx(w.alone_s(1e6)).epsilon(1e-14));
}

TEST_CASE("The slower of two nodes decides about each size") {
  auto c = linked_nodes(with_curves());
  c.nodes[1].inter = {"", 20, 60};
  const auto w = link_cost_between(c, 0, 1, 4);
  CHECK(w.alone_s(8388608) == Approx(8388608 * 8e-9 / 20));
  CHECK(w.latency_s == Approx(60e-6));
  CHECK(link_cost_between(c, 1, 0, 1).alone_s(8388608) == Approx(8388608 * 8e-9 / 12.21));
}

TEST_CASE("Flows that do not fill a link leave the rest of it to others") {
  // 1,000 ns of link each: at a quarter of it a transfer takes 4,000 ns alone, and so do two.
  fair_share shared{1e9, 0};
  shared.start(0, 1000, 1, 1, 0.25);
  shared.start(0, 1000, 2, 1, 0.25);
  CHECK(shared.next_end() == 4000);
  // A third without a limit has the other half.
  shared.start(0, 1000, 3);
  CHECK(shared.next_end() == 2000);
  CHECK(shared.take_ended(2000) == 3);
  CHECK_FALSE(shared.take_ended(2000));
  CHECK(shared.next_end() == 4000);
  CHECK(shared.take_ended(4000) == 1);
  CHECK(shared.take_ended(4000) == 2);
  CHECK_FALSE(shared.next_end());
  // Eight of them share it equally: an eighth each.
  for (std::uint64_t i = 0; i < 8; ++i) shared.start(5000, 1000, i, 1, 0.25);
  CHECK(shared.next_end() == 13000);
}

TEST_CASE("Limits near an equal share change nothing, whatever their number") {
  fair_share limited{1e9, 0}, plain{1e9, 0};
  for (std::uint64_t i = 0; i < 6; ++i) {
    limited.start(10 * static_cast<time_ns>(i), 500 + 100.0 * static_cast<double>(i), i, 1,
                  0.999 - 0.0001 * static_cast<double>(i % 3));
    plain.start(10 * static_cast<time_ns>(i), 500 + 100.0 * static_cast<double>(i), i);
  }
  while (const auto end = plain.next_end()) {
    REQUIRE(limited.next_end());
    CHECK(std::abs(static_cast<double>(*limited.next_end() - *end)) <= 5);
    CHECK(limited.take_ended(*end + 5) == plain.take_ended(*end));
  }
}

namespace {

job_spec pipeline(std::uint32_t stages, std::uint32_t pipelines) {
  auto job = sample::job(sample::gpt2_small, 8 * pipelines);
  job.model.tied_head = false;  // its gradient would be one more flow of a card
  job.train.emplace();
  job.train->device = "sim";
  job.train->schedule = "megatron";
  job.pipeline.stages = stages;
  job.pipeline.data_parallel = pipelines;
  job.pipeline.microbatches = 8;
  return job;
}

double time_of(const cluster& c, const job_spec& job, std::uint32_t stages, std::uint32_t pipelines,
               std::uint32_t tensor, fidelity how) {
  const idle_index idle{c};
  std::vector<stage_request> all;
  const std::uint32_t pieces = 2 * job.model.layers / stages;
  for (std::uint32_t s = 0; s < stages; ++s) all.push_back({0, pieces, tensor});
  const auto made = plan_of_stages(c, idle, job, all, pipelines);
  REQUIRE(made);
  const auto e = evaluate(c, job, made->how, made->where, how);
  REQUIRE(e);
  return e->iteration_s;
}

}  // namespace

TEST_CASE("Both fidelities take a flow's rate for a hop, and the card's for many stages") {
  // So slow that hops are all that counts.
  troupe::link slow{"", 1, 0};
  slow.flow_rates = {{1, 0.25}};
  const troupe::link quarter{"", 0.25, 0}, whole{"", 1, 0};
  for (const auto how : {fidelity::closed, fidelity::simulated}) {
    INFO((how == fidelity::closed ? "closed" : "simulated"));
    const auto job = pipeline(2, 1);
    // One flow of a card with four GPUs: as a card with a quarter of the rate. Its activations and
    // the gradients of the other node use different cards.
    CHECK(time_of(linked_nodes(slow, 1), job, 2, 1, 1, how) ==
          Approx(time_of(linked_nodes(quarter, 1), job, 2, 1, 1, how)).epsilon(0.01));
    // Four GPUs that share a stage fill the card.
    CHECK(time_of(linked_nodes(slow, 4), job, 2, 1, 4, how) ==
          Approx(time_of(linked_nodes(whole, 4), job, 2, 1, 4, how)).epsilon(0.01));
  }
}

TEST_CASE("Rings between nodes take the rate of their step's size and of the node's flows") {
  const auto job = [] {
    auto j = sample::job(sample::gpt2_7b, 64);
    j.memory.emplace();
    return j;
  }();
  plan p;
  p.data_parallel = 8;
  const allocation where{{0, 4}, {1, 4}};
  const auto data_s = [&](const troupe::link& inter) {
    return estimate_iteration(linked_nodes(inter), job, p, where).data_s;
  };
  troupe::link flows{"", 40, 10};
  flows.flow_rates = {{1, 5}};
  // Four GPUs of each node send: 20 Gbit/s.
  CHECK(data_s(flows) == Approx(data_s({"", 20, 10})));
  troupe::link sizes{"", 40, 10};
  sizes.rates = {{1, 1}, {1ULL << 20, 10}};
  CHECK(data_s(sizes) == Approx(data_s({"", 10, 10})));
}

TEST_CASE("A WAN link's curves hold between its limits, and connections limit them") {
  cluster c = linked_nodes({"", 48, 50});
  c.datacenters.push_back({"other", ""});
  c.wan.push_back({0, 1, 10, 48, 0});
  c.wan[0].rates = of_four;
  c.wan[0].flow_rates = of_one;
  const double bytes = 8388608;
  const auto gbps = [&](std::uint32_t wished, std::uint32_t flows) {
    return link_between(c, 0, 1, wished).bytes_s(bytes, flows) * 8e-9;
  };
  CHECK(gbps(0, 1) == Approx(12.21));
  CHECK(gbps(0, 4) == Approx(45.43));
  c.wan[0].connection_gbps = 10;
  CHECK(gbps(2, 4) == Approx(20));
  CHECK(gbps(1, 1) == Approx(10));
}
