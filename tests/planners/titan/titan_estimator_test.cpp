#include <catch2/catch.hpp>

#include "planners/cost/lookup_table.hpp"
#include "planners/sample.hpp"
#include "planners/titan/time_estimator.hpp"
#include "planners/titan/titan_problem.hpp"
#include "planners/titan/tuning_problem.hpp"
#include "planners/variety.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

lookup_row row(std::uint32_t batch, std::uint32_t frozen, double iteration_s, double bytes = 1e9) {
  return {"V100", "vit", {2, 1, batch, frozen, true, false}, iteration_s, bytes, {}, {}};
}

lookup_table sample_table() {
  lookup_table t;
  for (const auto& r : {row(64, 0, 1.0), row(128, 0, 1.6, 2e9), row(256, 0, 3.0, 4e9),
                        row(64, 12, 0.6), row(128, 12, 1.0)})
    t.add(r);
  return t;
}

lookup_answer find(const lookup_table& t, std::uint32_t batch, std::uint32_t frozen) {
  const auto found = t.find("V100", "vit", {2, 1, batch, frozen, true, false});
  REQUIRE(found);
  return *found;
}

}  // namespace

TEST_CASE("the lookup table is exact on its grid") {
  const auto t = sample_table();
  for (const auto& [batch, frozen, seconds] :
       {std::tuple{64u, 0u, 1.0}, {128u, 0u, 1.6}, {256u, 0u, 3.0}, {64u, 12u, 0.6}}) {
    const auto x = find(t, batch, frozen);
    CHECK(x.iteration_s == seconds);
    CHECK_FALSE(x.interpolated);
    CHECK_FALSE(x.outside);
    CHECK(x.nearest->shape.batch == batch);
  }
}

TEST_CASE("the lookup table is linear in the batch and in frozen layers between its rows") {
  const auto t = sample_table();
  const auto x = find(t, 96, 0);
  CHECK(x.iteration_s == Approx(1.3));
  CHECK(x.bytes_per_gpu == Approx(1.5e9));
  CHECK(x.interpolated);
  CHECK_FALSE(x.outside);
  CHECK(find(t, 192, 0).iteration_s == Approx(2.3));
  CHECK(find(t, 64, 3).iteration_s == Approx(0.9));
  CHECK(find(t, 96, 6).iteration_s == Approx((1.3 + 0.8) / 2));
  CHECK_FALSE(find(t, 96, 6).outside);
}

TEST_CASE("the lookup table says where a shape is outside its rows") {
  const auto t = sample_table();
  const auto larger = find(t, 512, 0);
  CHECK(larger.outside);
  CHECK(larger.iteration_s == Approx(6.0));
  CHECK(larger.bytes_per_gpu == Approx(8e9));
  const auto smaller = find(t, 32, 0);
  CHECK(smaller.outside);
  CHECK(smaller.iteration_s == Approx(0.5));
  CHECK(smaller.bytes_per_gpu == 1e9);
  const auto frozen = find(t, 64, 24);
  CHECK(frozen.outside);
  CHECK(frozen.iteration_s == 0.6);
  CHECK(find(t, 256, 6).outside);  // with 12 frozen layers, 128 is the largest batch
  CHECK_FALSE(t.find("V100", "vit", {4, 1, 64, 0, true, false}));
  CHECK_FALSE(t.find("V100", "vit", {2, 2, 64, 0, true, false}));
  CHECK_FALSE(t.find("V100", "vit", {2, 1, 64, 0, false, false}));
  CHECK_FALSE(t.find("A100", "vit", {2, 1, 64, 0, true, false}));
}

TEST_CASE("a union's samples follow Table 2 of TITAN from one exponent") {
  const auto minutes = [](std::vector<double> alone) { return merged_samples(alone); };
  CHECK(minutes({20, 20}) == Approx(25).epsilon(1e-6));
  CHECK(minutes({10, 20}) == Approx(20.7).epsilon(2.5e-3));
  CHECK(minutes({5, 100}) == Approx(100.0).epsilon(1e-3));
  // The paper prints 25, 21 and 102.
  CHECK(minutes({10, 20}) == Approx(21).epsilon(0.025));
  CHECK(minutes({5, 100}) == Approx(102).epsilon(0.025));
  CHECK(minutes({7}) == Approx(7));
  CHECK(minutes({}) == 0);
  CHECK(minutes({1e200, 1e200}) == Approx(1.25e200));
}

TEST_CASE("the program's decisions on Table 2 are yes, no and no") {
  const auto merges = [](double a, double b) {
    titan_problem p{2, {{1, {1}}}, {}};
    p.columns.push_back({{0}, 0, 1, 1 / a});
    p.columns.push_back({{1}, 0, 1, 1 / b});
    const double both[] = {a, b};
    p.columns.push_back({{0, 1}, 0, 1, 1.5 / merged_samples(both)});
    const auto answer = solve_titan(p);
    REQUIRE(answer.taken.size() == 1);
    return answer.taken[0] == 2;
  };
  CHECK(merges(20, 20));
  CHECK_FALSE(merges(10, 20));
  CHECK_FALSE(merges(5, 100));
}

TEST_CASE("the batch range grows with the data, and a job's own batch is kept") {
  CHECK(allows_batch({0, 100}, 64));
  CHECK_FALSE(allows_batch({0, 100}, 91));
  CHECK(allows_batch({0, 50 * 128}, 128));
  CHECK_FALSE(allows_batch({0, 50 * 128 - 1}, 128));
  CHECK_FALSE(allows_batch({0, 1e9}, 32));
  CHECK(allows_batch({0, 100, 17}, 17));
  CHECK_FALSE(allows_batch({0, 1e9, 17}, 64));
}

TEST_CASE("the configuration is the one that ends first and fits the memory") {
  auto t = sample_table();
  auto slow = row(64, 0, 1.2, 1e8);
  slow.shape.recompute = true;
  t.add(slow);
  const auto options = options_by_batch(t, "V100", "vit", 2, 16e9);
  REQUIRE(options.size() == 3);
  CHECK_FALSE(options[0].shape.recompute);
  // 128 samples: 2 x 1.0, 1 x 1.6, 1 x 3.0 s.
  const auto x = best_configuration(options, {128, 1e9}, 10);
  REQUIRE(x);
  CHECK(x->option->shape.batch == 128);
  CHECK(x->iterations == 1);
  CHECK(x->duration_s == Approx(11.6));
  CHECK(best_configuration(options, {128, 100}, 10)->option->shape.batch == 64);
  // A batch of its own that no row has.
  const auto own = options_by_batch(t, "V100", "vit", 2, 16e9, 96);
  REQUIRE(own.size() == 1);
  CHECK(best_configuration(own, {960, 1e9, 96}, 0)->duration_s == Approx(13));
  CHECK(own[0].interpolated);
  // Little memory: only with recomputation, of which there is one row.
  const auto little = options_by_batch(t, "V100", "vit", 2, 3e8);
  REQUIRE(little.size() == 2);
  for (const auto& o : little) CHECK(o.shape.recompute);
  CHECK_FALSE(little[0].outside);
  CHECK(little[1].outside);
  CHECK(options_by_batch(t, "V100", "vit", 4, 16e9).empty());
  CHECK_FALSE(best_configuration(options, {128, 1e9, 32}, 0));
}

TEST_CASE("GPUs of a job are at most a multiple of what its user asked for") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 2, 8);
  c.gpus[0].quota = 12;
  job_spec job;
  job.request.gpus = 3;
  titan_options o;
  CHECK(max_gpus_of(c, job, 0, o) == 12);
  o.max_request_factor = 1;
  CHECK(max_gpus_of(c, job, 0, o) == 3);
  o.max_request_factor = 2.5;
  CHECK(max_gpus_of(c, job, 0, o) == 7);
  o.max_request_factor = 4;
  CHECK(max_gpus_of(c, job, 0, o) == 12);
  o.max_request_factor = 100;
  CHECK(max_gpus_of(c, job, 0, o) == 12);
  job.limits.required_gpu_type = "A40";
  CHECK(max_gpus_of(c, job, 0, o) == 0);
}

TEST_CASE(
    "rows of a type with a profile of the model are from that, and others from the cost model") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 1, 2);
  const auto like = sample::job(sample::gpt2_small, 8);
  const tuning_grid grid{{1}, {8}, {1}};
  const auto rows = [&](const model& m) {
    auto job = like;
    job.model = m;
    return rows_by_cost_model(c, 0, job, grid);
  };
  const auto before = rows(sample::gpt2_small);
  REQUIRE_FALSE(before.empty());
  for (const auto& r : before) CHECK(r.from == row_source::cost_model);
  random_source random{3};
  c.gpus[0].profile = variety::some_profile(random, sample::gpt2_small);
  const auto after = rows(sample::gpt2_small);
  REQUIRE(after.size() == before.size());
  for (std::size_t i = 0; i < after.size(); ++i) {
    CHECK(after[i].from == row_source::profile);
    CHECK(after[i].iteration_s != before[i].iteration_s);
  }
  for (const auto& r : rows(sample::gpt2_350m)) CHECK(r.from == row_source::cost_model);
}
