#include <catch2/catch.hpp>

#include <numeric>

#include "harness/facts.hpp"
#include "messages/base/random.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/plans/explicit_plan.hpp"
#include "planners/sample.hpp"

// Plans whose pipelines are groups: of unequal shares, kinds and datacenters.

using namespace troupe;
using namespace troupe::planners;

namespace {

/// Datacenters of so many nodes of two GPUs, over 2 Gbit/s and 10 ms one way.
cluster sites_with(const std::vector<std::uint32_t>& nodes) {
  cluster c;
  for (std::uint32_t d = 0; d < nodes.size(); ++d) {
    c.datacenters.push_back({"site" + std::to_string(d), ""});
    sample::add_nodes(c, sample::a100_80, nodes[d], 2);
    for (auto i = c.nodes.size() - nodes[d]; i < c.nodes.size(); ++i) c.nodes[i].datacenter = d;
    for (std::uint32_t other = 0; other < d; ++other) c.wan.push_back({other, d, 20, 2, 0});
  }
  return c;
}

/// A group whose stages cut twelve layers evenly, all in one datacenter.
pipeline_group even_group(std::uint32_t pipelines, std::uint32_t microbatches, std::uint32_t stages,
                          std::optional<std::uint32_t> datacenter) {
  pipeline_group g{pipelines, microbatches, {}};
  for (std::uint32_t s = 0; s < stages; ++s)
    g.stages.push_back({s * 24 / stages, 24 / stages, 1, gpu_index{0}, 0, datacenter});
  return g;
}

placed_plan placed_groups(const cluster& c, const job_spec& job,
                          const std::vector<pipeline_group>& groups, std::uint32_t rows) {
  auto made = plan_of_groups(c, idle_index{c}, job, groups, rows);
  if (!made) FAIL(made.error().text);
  return std::move(*made);
}

std::string refused_groups(const cluster& c, const job_spec& job,
                           const std::vector<pipeline_group>& groups, std::uint32_t rows) {
  const auto made = plan_of_groups(c, idle_index{c}, job, groups, rows);
  return made ? "" : made.error().text;
}

job_spec trained_with(std::uint32_t batch, const char* schedule = "megatron") {
  auto job = sample::job(sample::gpt2_small, batch);
  job.iterations = 1;  // no other hides its updates
  job.train.emplace();
  job.train->schedule = schedule;
  job.train->device = "sim";
  job.pipeline.stages = 2;
  return job;
}

double time_of(const cluster& c, const job_spec& job, const placed_plan& p, fidelity f) {
  const auto timed = time_plan(c, job, p.how, p.where);
  if (!timed) FAIL(timed.error().text);
  const auto e = evaluate(c, job, *timed, f);
  if (!e) FAIL(e.error().text);
  return e->iteration_s;
}

}  // namespace

TEST_CASE("equal pipelines take as long in two groups as in one, by every estimate") {
  random_source r{2};
  for (int i = 0; i < 40; ++i) {
    const auto stages = 1 + static_cast<std::uint32_t>(r.below(4));
    const auto d = 2 + static_cast<std::uint32_t>(r.below(4));
    const auto n = 1 + static_cast<std::uint32_t>(r.below(d - 1));
    const auto m = 1 + static_cast<std::uint32_t>(r.below(6));
    const char* schedules[] = {"megatron", "varuna", "gpipe"};
    const auto job = trained_with(d * m * 2, schedules[i % 3]);
    const auto c = sites_with({stages * d});

    const auto whole = placed_groups(c, job, {even_group(d, m, stages, 0)}, 2);
    auto parts = whole;
    parts.how.groups = {even_group(n, m, stages, 0), even_group(d - n, m, stages, 0)};
    for (auto& g : *parts.how.groups) g.stages = whole.how.stages;
    const auto a = *time_plan(c, job, whole.how, whole.where),
               b = *time_plan(c, job, parts.how, parts.where);
    CHECK(a.layout.places == b.layout.places);
    CHECK(b.shapes.size() == 2);
    CHECK(time_of(c, job, parts, fidelity::simulated) ==
          Approx(time_of(c, job, whole, fidelity::simulated)).epsilon(1e-9));
    // The closed form knows the slowest hop of each group: here some cross nodes, others do not.
    // The sums of groups end together, and then come the words' ways to the first pipeline and
    // back.
    constexpr double words_s = 20e-6;
    for (const auto f : {fidelity::closed, fidelity::lower_bound}) {
      const double apart_s = time_of(c, job, parts, f), whole_s = time_of(c, job, whole, f);
      CHECK(apart_s <= whole_s + words_s);
      CHECK(apart_s > 0.99 * whole_s);
      if (stages % 2 == 0) CHECK(apart_s == Approx(whole_s).epsilon(1e-9));
    }
    auto plain = whole;
    plain.how.groups.reset();
    for (auto& s : plain.how.stages) s.datacenter.reset();
    for (const auto f : {fidelity::closed, fidelity::lower_bound, fidelity::simulated})
      CHECK(time_of(c, job, plain, f) == time_of(c, job, whole, f));
  }
}

TEST_CASE("the pipeline with the largest share is the one that the iteration waits for") {
  const auto c = sites_with({4});
  const auto job = trained_with(2 * 8);
  const auto uneven = placed_groups(c, job, {even_group(1, 6, 2, 0), even_group(1, 2, 2, 0)}, 2);
  const auto even = placed_groups(c, job, {even_group(2, 4, 2, 0)}, 2);
  const auto alone = trained_with(2 * 6);
  const auto longest = placed_groups(c, alone, {even_group(1, 6, 2, 0)}, 2);
  for (const auto f : {fidelity::closed, fidelity::lower_bound, fidelity::simulated}) {
    CHECK(time_of(c, job, uneven, f) > 1.1 * time_of(c, job, even, f));
    CHECK(time_of(c, job, uneven, f) >= time_of(c, alone, longest, f));
  }
  CHECK(time_of(c, job, uneven, fidelity::lower_bound) <=
        time_of(c, job, uneven, fidelity::simulated) * (1 + 1e-6));  // whole nanoseconds
}

TEST_CASE("a sum over datacenters adds its chunks' ways there and back, and nothing moves else") {
  auto job = trained_with(2 * 4);
  const auto c = sites_with({3, 3});
  job.pipeline.stages = 1;
  const auto apart = placed_groups(c, job, {even_group(1, 2, 1, 0), even_group(1, 2, 1, 1)}, 2);
  const auto timed = *time_plan(c, job, apart.how, apart.where);
  CHECK(timed.layout.runs_of(0) == std::vector<std::uint32_t>{0, 1});
  const double bytes = static_cast<double>(timed.costs[0].gradient_bytes);
  const double expected = 2 * (0.010 + bytes * 8 / 2e9);
  for (const auto& w : timed.times.routes) {
    CHECK(w.peers.empty());
    CHECK(w.between_s == Approx(expected));
  }
  // 1 + 2: two chunks, both of which the first pipeline sends; those of the others go side by side.
  job.global_batch = 12;
  const auto three = placed_groups(c, job, {even_group(1, 2, 1, 0), even_group(2, 2, 1, 1)}, 2);
  const auto t = *time_plan(c, job, three.how, three.where);
  CHECK(t.times.routes[0].between_s == Approx(2 * 0.010 + 1.5 * bytes * 8 / 2e9));
  CHECK(t.times.routes[1].peers.size() == 1);
  for (const auto f : {fidelity::closed, fidelity::simulated})
    CHECK(time_of(c, job, three, f) > t.times.routes[0].between_s);
  // Both estimates wait for the same: the sum is not hidden by anything with one stage.
  CHECK(time_of(c, job, three, fidelity::simulated) ==
        Approx(time_of(c, job, three, fidelity::closed)).epsilon(0.05));
}

TEST_CASE("groups that do not make one plan are refused with what is wrong") {
  const auto c = sites_with({2, 2});
  const auto job = trained_with(2 * 4);
  using troupe::test::has_facts;
  CHECK(has_facts(refused_groups(c, job, {even_group(1, 3, 2, 0), even_group(1, 2, 2, 1)}, 2),
                  {"10 samples", "8"}));
  auto other_cut = even_group(1, 1, 2, 1);
  other_cut.stages[0].count += 1, other_cut.stages[1].first += 1, other_cut.stages[1].count -= 1;
  CHECK(has_facts(refused_groups(c, job, {even_group(1, 3, 2, 0), other_cut}, 2), {"group 1"}));
  CHECK(has_facts(refused_groups(c, job, {even_group(1, 3, 2, 0), even_group(1, 1, 3, 1)}, 2),
                  {"2 and 3 stages"}));
  CHECK(has_facts(refused_groups(c, job, {even_group(3, 1, 2, 0), even_group(1, 1, 2, 1)}, 2),
                  {"site0"}));
  CHECK(has_facts(refused_groups(c, job, {even_group(1, 3, 2, {}), even_group(1, 1, 2, 1)}, 2),
                  {"names no datacenter"}));
  // A plan that somebody else has made.
  auto made = placed_groups(c, job, {even_group(1, 3, 2, 0), even_group(1, 1, 2, 1)}, 2);
  const auto layout = [&] {
    const auto l = lay_out_pipelines(c, made.where, job, made.how);
    return l ? "" : l.error().text;
  };
  CHECK(layout().empty());
  made.how.data_parallel = 3;
  CHECK(has_facts(layout(), {"3 pipelines", "2"}));
  made.how.data_parallel = 2;
  made.how.groups->at(1).stages[0].datacenter = 7;
  CHECK(has_facts(layout(), {"7"}));
  made.how.groups->at(1).stages[0].datacenter = 0;
  CHECK_FALSE(layout().empty());  // its GPUs are in the other one
}

TEST_CASE("a stage's limit in flight is kept by its schedule, and counts in the closed form") {
  const auto c = sites_with({3});
  auto job = trained_with(2 * 8);
  job.pipeline.stages = 3;
  auto group = even_group(1, 8, 3, 0);
  const auto free = placed_groups(c, job, {group}, 2);
  group.stages[0].held = 1, group.stages[1].held = 2, group.stages[2].held = 1;
  const auto held = placed_groups(c, job, {group}, 2);
  CHECK(held.how.stages[0].bytes_per_gpu < free.how.stages[0].bytes_per_gpu);
  const auto timed = *time_plan(c, job, held.how, held.where);
  const auto made = *schedules_of(timed.shapes, "megatron");
  CHECK(made[0].max_in_flight == 1);
  for (const auto f : {fidelity::closed, fidelity::lower_bound, fidelity::simulated})
    CHECK(time_of(c, job, held, f) > 1.3 * time_of(c, job, free, f));
  CHECK(time_of(c, job, held, fidelity::lower_bound) <=
        time_of(c, job, held, fidelity::simulated) * (1 + 1e-6));
  CHECK_FALSE(schedules_of(timed.shapes, "gpipe"));
  CHECK(schedules_of(timed.shapes, "best"));
}
