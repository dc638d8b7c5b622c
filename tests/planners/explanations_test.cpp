#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "harness/source_dir.hpp"
#include "planners/cluster/planning_budget.hpp"
#include "planners/random_life.hpp"
#include "planners/serving/scheduled_policy.hpp"

// The sentences of `troupe explain` about waiting jobs, under every policy.

using namespace troupe;
using namespace troupe::planners;
using random_life::go_on;
using scene_of_policies::carry_out;
using scene_of_policies::scene;

namespace {

/// "POLICY SEED STEP JOB", and the sentence, which no search is made for.
using sentences = std::vector<std::pair<std::string, std::string>>;

/// After each decision and what follows from it: why the jobs wait that still do.
template <class Decided>
void live(const std::string& name, std::uint64_t seed, Decided&& decided) {
  const auto p = as_scheduled(std::shared_ptr<const policy>{make_policy(name)});
  random_source r{seed};
  scene s(variety::some_cluster(r));
  s.idle = idle_index{s.cluster};
  s.by = p.get();
  job_id next = 1;
  for (int step = 0; step < 3; ++step) {
    random_life::arrive(s, r, next, 3 + r.below(4));
    random_source own{1};
    s.notes.clear();
    auto d = p->decide(s.view(), own);
    std::erase_if(d, [](const decision& x) { return !x.with.empty() || x.after; });
    carry_out(s, d);
    decided(*p, s, step);
    go_on(s, r);
  }
}

sentences all_sentences() {
  constexpr std::size_t a_policy = 24;
  sentences out;
  for (const auto name : policy_names()) {
    const auto all = out.size() + a_policy;
    for (std::uint64_t seed = 1; out.size() < all; ++seed)
      live(std::string{name}, seed, [&](const policy& p, const scene& s, int step) {
        for (const auto& [id, j] : s.waiting) {
          if (out.size() == all) break;
          const auto of = std::string{name} + " " + std::to_string(seed) + " " +
                          std::to_string(step) + " " + std::to_string(id);
          const auto searches = searches_made;
          out.emplace_back(of, p.why_waiting(s.view(), id).text);
          INFO(of);
          CHECK(searches_made == searches);
        }
      });
  }
  CHECK(searches_made > 0);
  return out;
}

}  // namespace

// TROUPE_RECORD=1 rewrites the file.
TEST_CASE("explanations of waiting jobs say what they were recorded to say, or more") {
  const auto path = troupe::test::source_dir() + "/tests/planners/recorded/explanations.txt";
  const auto now = all_sentences();
  if (std::getenv("TROUPE_RECORD")) {
    std::ofstream file{path};
    for (const auto& [of, text] : now) file << of << ": " << text << '\n';
    return;
  }
  std::ifstream file{path};
  for (const auto& [of, text] : now) {
    std::string known;
    REQUIRE(std::getline(file, known));
    CAPTURE(of, text);
    const auto colon = known.find(": ");
    REQUIRE(known.substr(0, colon) == of);
    CHECK_THAT(text, Catch::Contains(known.substr(colon + 2)));
  }
  CHECK(file.peek() == std::ifstream::traits_type::eof());
}
