#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <stdexcept>

#include "harness/facts.hpp"
#include "planners/policy/checked_policy.hpp"
#include "planners/scene.hpp"

using namespace troupe;
using namespace troupe::planners;
using scene_of_policies::scene;

namespace {

/// Decides as the test scripts it.
struct scripted final : policy {
  std::function<std::vector<decision>(const snapshot&)> decides;
  double every_s = 0;

  std::string_view name() const override { return "scripted"; }
  policy_traits traits() const override { return {.round_s = every_s}; }
  std::vector<decision> decide(const snapshot& s, random_source&) const override {
    return decides(s);
  }
  reason why_waiting(const snapshot&, job_id) const override {
    throw std::runtime_error("no idea");
  }
};

std::shared_ptr<scripted> one_that(std::function<std::vector<decision>(const snapshot&)> decides) {
  auto p = std::make_shared<scripted>();
  p->decides = std::move(decides);
  return p;
}

scene small_scene() {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 5, 2);
  scene s{std::move(c)};
  s.add(1, sample::job(sample::gpt2_350m, 8, 1));
  return s;
}

/// The sentence of the failure that checked_policy throws for this policy; "" if it accepts it.
std::string failure_of(const std::shared_ptr<scripted>& p) {
  const auto s = small_scene();
  random_source random{1};
  try {
    checked_policy{p, "the policy"}.decide(s.view(), random);
  } catch (const policy_failure& e) {
    return e.what();
  }
  return {};
}

}  // namespace

TEST_CASE("a checked policy's valid decisions pass unchanged") {
  const auto s = small_scene();
  random_source r1{1}, r2{1};
  const std::shared_ptr<const policy> frenzy = make_policy("frenzy");
  const checked_policy checked{frenzy, "the policy"};
  CHECK(checked.name() == "frenzy");
  const auto decided = checked.decide(s.view(), r1);
  REQUIRE(decided.size() == 1);
  CHECK(scene_of_policies::same(decided, frenzy->decide(s.view(), r2)));
}

TEST_CASE(
    "an exception in a policy's decision ends the run in one sentence; in explaining, it does "
    "not") {
  CHECK(troupe::test::has_facts(failure_of(one_that([](auto&) -> std::vector<decision> {
                                  throw std::out_of_range("map::at");
                                })),
                                {"the policy", "map::at"}));
  CHECK(troupe::test::has_facts(
      failure_of(one_that([](auto&) -> std::vector<decision> { throw 42; })),
      {"the policy", "exception"}));
  const auto s = small_scene();
  CHECK(troupe::test::has_facts(
      checked_policy{one_that({}), "the policy"}.why_waiting(s.view(), 1).text,
      {"the policy", "no idea"}));
}

TEST_CASE(
    "a checked policy's decisions about unknown jobs, nodes or types fail with the job's number") {
  using kind = decision::kind;
  const auto with = [](auto change) {
    return failure_of(one_that([change](const snapshot& s) {
      decision d{kind::start, 1, s.waiting.at(1).plans->front(), {{0, 1}}, {}};
      change(d);
      return std::vector{d};
    }));
  };
  CHECK(with([](decision&) {}) == "");
  CHECK(troupe::test::has_facts(with([](decision& d) { d.job = 9; }), {"the policy", "job 9"}));
  CHECK(troupe::test::has_facts(with([](decision& d) {
                                  d.where = {{77, 1}};
                                }),
                                {"job 1", "node 77", "5"}));
  CHECK(troupe::test::has_facts(with([](decision& d) { d.how.data_parallel = 0; }),
                                {"job 1", "plan"}));
  CHECK(troupe::test::has_facts(with([](decision& d) { d.how.gpu_types = {8}; }),
                                {"job 1", "plan", "GPU type 8"}));
  CHECK(troupe::test::has_facts(
      with([](decision& d) { d.how.stages.resize(1), d.how.stages[0].gpu = 8; }),
      {"job 1", "stage", "GPU type 8"}));
  CHECK(troupe::test::has_facts(
      with([](decision& d) { d.how.stages.resize(1), d.how.stages[0].tensor_parallel = 0; }),
      {"job 1", "stage", "no GPU"}));
  // A policy that only ends jobs names no GPUs.
  CHECK(with([](decision& d) { d.what = kind::give_up, d.where = {{77, 1}}; }) == "");
}

TEST_CASE("a policy with an invalid decision interval is refused") {
  for (const double every_s :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    auto p = one_that({});
    p->every_s = every_s;
    CHECK_THROWS_AS((checked_policy{p, "the policy"}), policy_failure);
  }
}
