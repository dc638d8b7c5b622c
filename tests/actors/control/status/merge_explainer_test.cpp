#include "actors/control/status/known_state.hpp"
#include "harness/small_cluster.hpp"

// Explanations of merging, and of leases that follow others.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;

namespace {

/// Waiting jobs that fine-tune one model, and how long each lasts by its only plan.
struct tuning_jobs : known_state {
  explicit tuning_jobs(const char* by = "titan") { policy = planners::make_policy(by); }

  void add(job_id id, std::vector<std::string> card, double duration_s = 0) {
    auto s = harness::small_job("tuning", 100, 10);
    s.merging.dataset_card = std::move(card);
    REQUIRE(state.book.apply(job_accepted{id, id, 1, s, "somebody"}));
    if (duration_s > 0)
      plans[id] = {id,
                   std::make_shared<const std::vector<plan>>(std::vector{
                       a_plan(1, 10, 500 / duration_s), a_plan(2, 10, 1000 / duration_s)}),
                   {},
                   1,
                   {}};
  }
  std::optional<merge_view> merge(job_id id = 1) const { return explainer().explain(id, {}).merge; }
};

}  // namespace

TEST_CASE("under titan a waiting job's closest other one is named, and why they are not merged") {
  tuning_jobs k;
  k.add(1, {"photo", "animals"}, 100);
  const auto alone = k.merge();
  REQUIRE(alone);
  CHECK(alone->kind == "shared");
  CHECK(alone->with.empty());
  CHECK(alone->why_not == "no other job waits");
  CHECK_FALSE(alone->similarity);
  k.add(2, {"photo", "plants"}, 100);
  const auto other_card = k.merge();
  REQUIRE(other_card);
  CHECK(other_card->with == std::vector<job_id>{2});
  CHECK(other_card->similarity == 1.0 / 3);
  CHECK(*other_card->duration_ratio == Approx(1));
  CHECK_THAT(other_card->why_not, Catch::Contains("similarity of 0.33, below 0.50"));
  k.add(3, {"animals", "photo"}, 310);
  const auto too_long = k.merge();
  CHECK(too_long->with == std::vector<job_id>{3});
  CHECK(too_long->similarity == 1.0);
  CHECK(*too_long->duration_ratio == Approx(3.1));
  CHECK_THAT(too_long->why_not, Catch::Contains("ratio of 3.1, above 2.0"));
  // One that may be merged counts more than one that is more alike.
  k.add(4, {"photo", "animals", "birds"}, 150);
  const auto fits = k.merge();
  CHECK(fits->with == std::vector<job_id>{4});
  CHECK(fits->why_not.empty());
  CHECK(*fits->duration_ratio == Approx(1.5));
  CHECK(k.merge(4)->with == std::vector<job_id>{1});
  REQUIRE(k.state.book.apply(job_suspended{4, 3, true, "somebody", 9}));
  CHECK(k.merge()->with == std::vector<job_id>{3});
  CHECK_FALSE(k.merge(4));
  REQUIRE(k.state.book.apply(job_ended{3, 3, job_state::cancelled, ""}));
  CHECK(k.merge()->with == std::vector<job_id>{2});
  CHECK_FALSE(k.merge(3));
}

TEST_CASE("durations of jobs without plans are unknown, and keep none apart") {
  tuning_jobs k;
  k.add(1, {"photo"}, 100);
  k.add(2, {"photo"});
  const auto seen = k.merge();
  REQUIRE(seen);
  CHECK_FALSE(seen->duration_ratio);
  CHECK(seen->why_not.empty());
}

TEST_CASE("policies that merge no jobs have nothing to say of merging") {
  for (const auto* by : {"frenzy", "titan-no-merger"}) {
    tuning_jobs k{by};
    k.add(1, {"photo"}, 100);
    k.add(2, {"photo"}, 100);
    CHECK_FALSE(k.merge());
  }
  tuning_jobs k{"titan-no-switch"};
  k.add(1, {"photo"}, 100);
  k.add(2, {"photo"}, 100);
  CHECK(k.merge());
}

TEST_CASE(
    "a job that follows another on its GPUs is explained with the lease that passes them on") {
  tuning_jobs k;
  k.add(1, {}, 100);
  k.add(2, {}, 100);
  lease_granted first, next;
  first.lease = 1, first.job = 1, first.parts = {{0, 1, {0, 1, 2, 3}}};
  next.lease = 2, next.job = 2, next.parts = {{0, 1, {0, 1}}}, next.after = 1;
  REQUIRE(k.state.book.apply(first));
  REQUIRE(k.state.book.apply(next));
  k.notes[2] = {{0, 4, 4, 4}, {true, true, true, true}};
  const auto e = k.explainer().explain(2, {});
  CHECK(e.follows == 1u);
  CHECK(e.job.lease == 2u);
  REQUIRE_FALSE(e.placement.empty());
  CHECK(e.placement[0] == "a-0 (A100-40GB): 2 GPUs, passed on by lease 1 or idle");
  CHECK_FALSE(k.explainer().explain(1, {}).follows);
}
