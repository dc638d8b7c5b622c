#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "messages/base/random.hpp"
#include "planners/sample.hpp"
#include "planners/titan/merge_candidates.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

const std::vector<std::string> words{"classification", "detection", "cats",
                                     "dogs",           "medical",   "street"};

merge_job random_job(random_source& r, std::uint64_t id) {
  merge_job j;
  j.id = id;
  j.allowed = !r.chance(0.1);
  j.can = !r.chance(0.05);
  j.alone = r.chance(0.05);
  j.kind = r.chance(0.3) ? merge_kind::adapters : merge_kind::shared;
  j.alike = r.chance(0.8) ? "vit" : "bert";
  j.owner = r.chance(0.7) ? "a" : "b";
  j.across_owners = r.chance(0.5);
  for (const auto& w : words)
    if (r.chance(0.5)) j.card.push_back(w);
  std::ranges::sort(j.card);
  j.duration_s = 300 * (1 + 4 * r.uniform());
  return j;
}

std::vector<merge_job> random_queue(random_source& r, std::uint64_t max) {
  std::vector<merge_job> jobs;
  for (auto n = r.below(max); n > 0; --n) jobs.push_back(random_job(r, 100 + jobs.size()));
  return jobs;
}

/// N3 and N5 by their words, on sets.
bool allowed(const merge_job& a, const merge_job& b, const merge_rules& rules) {
  if (!a.can || !b.can || a.alone || b.alone) return false;
  if (!a.allowed || !b.allowed || a.kind != b.kind || a.alike != b.alike) return false;
  if (a.owner != b.owner && (!a.across_owners || !b.across_owners)) return false;
  if (a.kind == merge_kind::adapters) return true;
  const std::set<std::string> x(a.card.begin(), a.card.end()), y(b.card.begin(), b.card.end());
  std::set<std::string> both, either;
  for (const auto& w : x) (y.contains(w) ? both : either).insert(w);
  for (const auto& w : y) either.insert(w);
  either.insert(both.begin(), both.end());
  if (x.empty() || y.empty()) return false;
  if (double(both.size()) < rules.similarity * double(either.size())) return false;
  return a.duration_s <= rules.duration_ratio * b.duration_s &&
         b.duration_s <= rules.duration_ratio * a.duration_s;
}

std::set<std::vector<std::uint32_t>> by_brute_force(const std::vector<merge_job>& jobs,
                                                    const merge_rules& rules) {
  std::set<std::vector<std::uint32_t>> out;
  for (std::uint32_t set = 0; set < 1u << jobs.size(); ++set) {
    std::vector<std::uint32_t> members;
    for (std::uint32_t i = 0; i < jobs.size(); ++i)
      if (set >> i & 1) members.push_back(i);
    if (members.size() < 2 || members.size() > 3) continue;
    bool all = true;
    for (const auto a : members)
      for (const auto b : members) all = all && (a == b || allowed(jobs[a], jobs[b], rules));
    if (all) out.insert(members);
  }
  return out;
}

double by_length(const merge_candidate& c) {
  return double(c.jobs.size()) + 1e-3 * c.jobs[0];
}

}  // namespace

TEST_CASE("merge candidates are all pairs and triples that may be one, where none is cut off") {
  random_source r{5};
  merge_rules rules;
  rules.partners = rules.per_job = 1000;
  std::size_t pairs = 0, triples = 0;
  for (int n = 0; n < 1000; ++n) {
    const auto jobs = random_queue(r, 11);
    const auto found = merge_candidates(jobs, by_length, rules);
    std::set<std::vector<std::uint32_t>> sets;
    for (const auto& c : found) {
      sets.insert(c.jobs);
      (c.jobs.size() == 2 ? pairs : triples)++;
      double similarity = 1, ratio = 1;
      for (const auto a : c.jobs)
        for (const auto b : c.jobs) {
          if (a == b) continue;
          similarity = std::min(similarity, similarity_of(jobs[a].card, jobs[b].card));
          ratio = std::max(ratio, jobs[a].duration_s / jobs[b].duration_s);
        }
      CHECK(c.similarity == similarity);
      CHECK(c.duration_ratio == Approx(ratio));
    }
    CHECK(sets.size() == found.size());
    CHECK(sets == by_brute_force(jobs, rules));
  }
  CHECK(pairs > 500);
  CHECK(triples > 150);
}

TEST_CASE("of 10,000 random queues nothing is a candidate that must not be merged") {
  random_source r{9};
  const merge_rules rules;
  std::size_t candidates = 0;
  for (int n = 0; n < 10'000; ++n) {
    const auto jobs = random_queue(r, 30);
    const auto found = merge_candidates(jobs, by_length, rules);
    CHECK(found.size() <= rules.per_job * jobs.size());
    candidates += found.size();
    bool all = true;
    for (const auto& c : found)
      for (const auto a : c.jobs)
        for (const auto b : c.jobs) all = all && (a == b || allowed(jobs[a], jobs[b], rules));
    CHECK(all);
  }
  CHECK(candidates > 50'000);
}

TEST_CASE("a job's partners are the closest, and the candidates of the largest value remain") {
  std::vector<merge_job> jobs;
  for (std::uint64_t i = 0; i < 6; ++i)
    jobs.push_back({.id = i, .alike = "vit", .card = {"a", "b"}, .duration_s = 100.0 + 10.0 * i});
  merge_rules rules;
  rules.partners = 1;
  std::set<std::vector<std::uint32_t>> sets;
  for (const auto& c : merge_candidates(jobs, by_length, rules)) sets.insert(c.jobs);
  // The next longer job is relatively closer than the next shorter one.
  CHECK(sets == std::set<std::vector<std::uint32_t>>{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}});
  rules = {};
  rules.per_job = 1;
  const auto kept = merge_candidates(jobs, by_length, rules);
  REQUIRE(kept.size() == 6);
  for (const auto& c : kept) CHECK(c.jobs.size() == 3);
  CHECK(kept.back().jobs == std::vector<std::uint32_t>{3, 4, 5});
}

TEST_CASE("partners that are equally close are taken by their numbers, not by their places") {
  std::vector<merge_job> jobs;
  for (const std::uint64_t id : {30, 20, 10})
    jobs.push_back({.id = id, .alike = "vit", .card = {"a"}, .duration_s = 100});
  merge_rules rules;
  rules.partners = 1;
  std::set<std::vector<std::uint32_t>> sets;
  for (const auto& c : merge_candidates(jobs, by_length, rules)) sets.insert(c.jobs);
  CHECK(sets == std::set<std::vector<std::uint32_t>>{{0, 2}, {1, 2}});
}

TEST_CASE("the limits of similarity and of the ratio of durations are still allowed") {
  const merge_job a{.id = 1, .alike = "vit", .card = {"a", "b"}, .duration_s = 100};
  merge_job b{.id = 2, .alike = "vit", .card = {"a"}, .duration_s = 200};
  CHECK(obstacle_between(a, b) == merge_obstacle::none);
  b.duration_s = 200.1;
  CHECK(obstacle_between(a, b) == merge_obstacle::duration);
}

TEST_CASE("simulated work without a limit of time or price can be merged, and nothing else") {
  const auto job_of = [](auto change) {
    job_spec spec;
    spec.model = sample::gpt2_350m;
    change(spec);
    return merge_job_of(7, spec, "ann", false);
  };
  const auto plain = job_of([](job_spec& s) { s.merging.dataset_card = {"b", "a", "b"}; });
  CHECK(plain.can);
  CHECK(plain.allowed);
  CHECK(plain.kind == merge_kind::shared);
  CHECK(plain.card == std::vector<std::string>{"a", "b"});
  CHECK(plain.owner == "ann");
  CHECK_FALSE(plain.across_owners);
  for (const auto& other : {job_of([](job_spec& s) { s.program.command = {"true"}; }),
                            job_of([](job_spec& s) { s.train.emplace(); }),
                            job_of([](job_spec& s) { s.serve.emplace(); }),
                            job_of([](job_spec& s) { s.limits.deadline_s = 9; }),
                            job_of([](job_spec& s) { s.limits.slo_s = 9; }),
                            job_of([](job_spec& s) { s.limits.budget = 9; }),
                            job_of([](job_spec& s) { s.limits.time_limit_s = 9; })})
    CHECK_FALSE(other.can);
  CHECK_FALSE(job_of([](job_spec& s) { s.merging.allowed = false; }).allowed);
  CHECK(job_of([](job_spec& s) { s.merging.kind = merge_kind::adapters; }).kind ==
        merge_kind::adapters);
  CHECK(job_of([](job_spec& s) { s.merging.across_owners = true; }).across_owners);
  CHECK(job_of([](job_spec& s) { s.model = sample::gpt2_small; }).alike != plain.alike);
  const auto on = [&](const char* type) {
    return job_of([type](job_spec& s) { s.limits.required_gpu_type = type; }).alike;
  };
  CHECK(on("A40") != plain.alike);
  CHECK(on("A40") != on("T4"));
}

TEST_CASE("the reason why two jobs are not merged is the first that applies") {
  const merge_job a{.id = 1, .alike = "vit", .owner = "x", .card = {"a", "b"}, .duration_s = 100};
  CHECK(why_not_merged(a, a) == "");
  const auto with = [&](auto change) {
    auto b = a;
    b.id = 2;
    change(b);
    CHECK(why_not_merged(b, a) != "");
    return why_not_merged(a, b);
  };
  CHECK(with([](merge_job& b) { b.allowed = false; }) == "job 2 has merge: false");
  CHECK(with([](merge_job& b) { b.kind = merge_kind::adapters; }) ==
        "kinds shared and adapters differ");
  CHECK(with([](merge_job& b) { b.alike = "bert"; }) == "'vit' and 'bert' differ");
  CHECK(with([](merge_job& b) { b.owner = "y"; }) ==
        "they have different owners, who do not both set merge_across_owners");
  CHECK(with([](merge_job& b) { b.card.clear(); }) == "job 2 has no dataset_card");
  CHECK(with([](merge_job& b) {
          b.card = {"b", "c", "d"};
        }) == "their cards have a similarity of 0.25, below 0.50");
  CHECK(with([](merge_job& b) { b.duration_s = 310; }) ==
        "their durations have a ratio of 3.1, above 2.0");
  auto b = a;
  b.owner = "y";
  b.across_owners = true;
  CHECK(why_not_merged(a, b) != "");
  auto c = a;
  c.across_owners = true;
  CHECK(why_not_merged(b, c) == "");
}
