#include <catch2/catch.hpp>

#include <tuple>

#include "planners/policy/with_exact_gpus.hpp"
#include "planners/policy/with_reservation.hpp"
#include "planners/scene.hpp"
#include "planners/serving/scheduled_policy.hpp"
#include "planners/serving/with_serving.hpp"

using namespace troupe;
using namespace troupe::planners;
using scene_of_policies::carry_out;
using scene_of_policies::scene;

namespace {

job_spec decoder_of_small_model() {
  job_spec j;
  j.serve.emplace();
  j.serve->kv_gb = 1;
  j.serve->model = {"m", "/m", {}, sample::gpt2_small};
  j.model = sample::gpt2_small;
  return j;
}

job_spec exact_program() {
  auto j = sample::job(sample::gpt2_small, 4, 4);
  j.program.command = {"program"};
  j.iterations = 1;
  j.request.exact = true;
  return j;
}

job_spec fixed_training() {
  auto j = sample::job(sample::gpt2_small, 4, 1);
  j.train.emplace();
  return j;
}

auto figures_of(const std::vector<decision>& all) {
  std::vector<std::tuple<decision::kind, job_id, plan, allocation>> out;
  for (const auto& d : all) out.emplace_back(d.what, d.job, d.how, d.where);
  return out;
}

}  // namespace

TEST_CASE("a scheduled policy decides as its wrappers do, whatever jobs there are") {
  const std::string name = GENERATE("frenzy", "fcfs", "troupe");
  const auto kinds = GENERATE(range(0U, 8U));  // which of the others there are
  INFO(name << " with kinds " << kinds);
  const std::shared_ptr<const policy> own = make_policy(name);
  const auto wrapped = with_serving(with_reservation(with_exact_gpus(with_trainings(own))));
  const auto scheduled = as_scheduled(own);
  cluster c;
  sample::add_nodes(c, sample::a100_40, 2, 4);
  sample::add_nodes(c, sample::rtx2080ti, 1, 4);
  scene s{std::move(c)};
  s.by = wrapped.get();
  job_id next = 1;
  std::size_t decided = 0;
  for (int round = 0; round < 3; ++round) {
    // More than there is room for, so that some wait beside those that run.
    for (int i = 0; i < 4; ++i) s.add(next++, sample::job(sample::gpt2_350m, 4));
    if (kinds & 1U) s.add(next++, decoder_of_small_model());
    if (kinds & 2U) s.add(next++, exact_program());
    if (kinds & 4U) s.add(next++, fixed_training());
    random_source a{7}, b{7};
    const auto expected = wrapped->decide(s.view(), a);
    CHECK(figures_of(scheduled->decide(s.view(), b)) == figures_of(expected));
    CHECK(scheduled->decide_again_s(s.view()) == wrapped->decide_again_s(s.view()));
    CHECK(a.next() == b.next());
    auto plain = s.view();  // as the scheduler says it
    plain.all_plain = kinds == 0;
    CHECK(figures_of(scheduled->decide(plain, b)) == figures_of(wrapped->decide(s.view(), a)));
    decided += expected.size();
    carry_out(s, expected);
    s.now_s += 100;
  }
  CHECK(decided > 3);
}
