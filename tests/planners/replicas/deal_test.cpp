#include "planners/replicas/deal.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "messages/base/random.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

using works = std::vector<std::vector<share>>;

std::uint64_t load(const std::vector<share>& work) {
  return std::accumulate(work.begin(), work.end(), std::uint64_t{0},
                         [](std::uint64_t n, const share& s) { return n + s.count; });
}

double slowest_s(const std::vector<replica>& replicas, const works& work) {
  double end = 0;
  for (std::size_t r = 0; r < work.size(); ++r)
    end = std::max(end, static_cast<double>(load(work[r])) / replicas[r].speed);
  return end;
}

/// Who has each micro-batch, by pipeline; each has one holder.
std::vector<std::vector<std::size_t>> holders(const works& work, const dealt_pipelines& of) {
  constexpr auto nobody = std::numeric_limits<std::size_t>::max();
  std::vector<std::vector<std::size_t>> all;
  for (const auto m : of.microbatches) all.emplace_back(m, nobody);
  for (std::size_t r = 0; r < work.size(); ++r)
    for (const auto& s : work[r])
      for (auto m = s.first; m < s.end(); ++m) {
        CHECK(all[s.pipeline][m] == nobody);
        all[s.pipeline][m] = r;
      }
  for (const auto& p : all) CHECK(std::ranges::find(p, nobody) == p.end());
  return all;
}

struct scene {
  std::vector<replica> replicas;
  dealt_pipelines of;
};

/// A replica for each pipeline, some of them lost, of two arithmetics in two datacenters.
scene draw(random_source& random, bool alike) {
  scene s;
  const auto n = 2 + random.below(3);
  for (std::uint32_t p = 0; p < n; ++p) {
    s.of.microbatches.push_back(static_cast<std::uint32_t>(1 + random.below(4)));
    replica r;
    r.work = {{p, 0, s.of.microbatches[p]}};
    r.present = p == 0 || random.chance(0.5);
    r.speed = random.chance(0.5) ? 1 : 2;
    r.arithmetic = alike || random.chance(0.7) ? "a" : "b";
    r.datacenter = static_cast<std::uint32_t>(random.below(2));
    s.of.homes.push_back(r.datacenter);
    s.replicas.push_back(std::move(r));
  }
  return s;
}

/// The lost units, each of which one replica takes: micro-batches or whole pipelines.
std::vector<share> lost_units(const scene& s) {
  std::vector<share> units;
  for (const auto& r : s.replicas) {
    if (r.present) continue;
    for (const auto& w : r.work)
      for (std::uint32_t m = 0; m < w.count; m += s.of.whole ? w.count : 1)
        units.push_back({w.pipeline, m, s.of.whole ? w.count : 1});
  }
  return units;
}

struct best {
  double end_s = std::numeric_limits<double>::max();
  int away = 0;
};

/// The earliest end among all ways to deal, and the fewest parts away from home that it needs.
best by_brute_force(const scene& s) {
  const auto units = lost_units(s);
  std::vector<std::uint64_t> loads;
  for (const auto& r : s.replicas) loads.push_back(r.present ? load(r.work) : 0);
  best found;
  const std::function<void(std::size_t, int)> go = [&](std::size_t i, int away) {
    if (i == units.size()) {
      double end = 0;
      for (std::size_t r = 0; r < loads.size(); ++r)
        end = std::max(end, static_cast<double>(loads[r]) / s.replicas[r].speed);
      if (std::pair{end, away} < std::pair{found.end_s, found.away}) found = {end, away};
      return;
    }
    for (std::size_t r = 0; r < loads.size(); ++r) {
      if (!s.replicas[r].present) continue;
      loads[r] += units[i].count;
      go(i + 1, away + (s.of.homes[units[i].pipeline] != s.replicas[r].datacenter));
      loads[r] -= units[i].count;
    }
  };
  go(0, 0);
  return found;
}

}  // namespace

TEST_CASE("what is lost is dealt so that the slowest replica ends as early as it can") {
  random_source random{3};
  for (int round = 0; round < 400; ++round) {
    auto s = draw(random, true);
    s.of.whole = round % 2 == 1;
    if (lost_units(s).size() > 8) continue;
    CAPTURE(round);
    const auto dealt = deal(s.replicas, s.of);
    REQUIRE(dealt);
    const auto has = holders(*dealt, s.of);
    const auto wanted = by_brute_force(s);
    CHECK(slowest_s(s.replicas, *dealt) == Approx(wanted.end_s));
    int away = 0;
    for (const auto& u : lost_units(s))
      away += s.of.homes[u.pipeline] != s.replicas[has[u.pipeline][u.first]].datacenter;
    CHECK(away == wanted.away);
    // Who is there keeps what it had; who is not has nothing.
    for (std::size_t r = 0; r < s.replicas.size(); ++r) {
      if (!s.replicas[r].present) CHECK((*dealt)[r].empty());
      if (s.replicas[r].present)
        for (std::uint32_t m = 0; m < s.of.microbatches[r]; ++m) CHECK(has[r][m] == r);
    }
  }
}

TEST_CASE("lost micro-batches keep their arithmetic as long as a replica of it is left") {
  random_source random{4};
  int same = 0, other = 0;
  for (int round = 0; round < 400; ++round) {
    auto s = draw(random, false);
    s.of.whole = random.chance(0.5);
    const auto dealt = deal(s.replicas, s.of);
    REQUIRE(dealt);
    const auto has = holders(*dealt, s.of);
    for (std::uint32_t p = 0; p < s.replicas.size(); ++p) {
      const auto& lost = s.replicas[p];
      if (lost.present) continue;
      const bool left = std::ranges::any_of(s.replicas, [&](const replica& r) {
        return r.present && r.arithmetic == lost.arithmetic;
      });
      for (const auto r : has[p])
        if (left) CHECK(s.replicas[r].arithmetic == lost.arithmetic);
      ++(left ? same : other);
    }
  }
  CHECK(same > 50);
  CHECK(other > 20);
}

TEST_CASE("several losses, one after another, leave every micro-batch with one replica") {
  random_source random{5};
  for (int round = 0; round < 100; ++round) {
    auto s = draw(random, true);
    for (auto& r : s.replicas) r.present = true;
    while (s.replicas.size() > 1) {
      s.replicas[random.below(s.replicas.size())].present = false;
      const auto dealt = deal(s.replicas, s.of);
      REQUIRE(dealt);
      holders(*dealt, s.of);
      for (std::size_t r = 0; r < s.replicas.size(); ++r) s.replicas[r].work = (*dealt)[r];
      std::erase_if(s.replicas, [](const replica& r) { return !r.present; });
    }
    CHECK(load(s.replicas[0].work) ==
          std::accumulate(s.of.microbatches.begin(), s.of.microbatches.end(), 0U));
  }
}

TEST_CASE("a lost pipeline becomes few pieces") {
  std::vector<replica> replicas(4);
  for (std::uint32_t p = 0; p < 4; ++p) replicas[p].work = {{p, 0, 6}};
  replicas[1].present = false;
  const auto dealt = deal(replicas, {{6, 6, 6, 6}});
  REQUIRE(dealt);
  std::size_t pieces = 0;
  for (const auto& w : *dealt) pieces += pieces_of(w).size();
  // Three whole pipelines, two micro-batches as one piece, and four single ones.
  CHECK(pieces == 3 + 1 + 4);
  CHECK((*dealt)[0] == std::vector<share>{{0, 0, 6}, {1, 0, 2}});
}

TEST_CASE("work that cannot be dealt is refused with the reason") {
  std::vector<replica> replicas(2);
  replicas[0].work = {{0, 0, 2}};
  replicas[1].work = {{0, 1, 1}};
  CHECK(deal(replicas, {{2}}).error().text == "two replicas have micro-batch 1 of pipeline 0");
  CHECK(deal(replicas, {{1}}).error().text ==
        "a replica has micro-batches 0 to 2 of pipeline 0, which there are not");
  for (auto& r : replicas) r.present = false;
  const auto nobody = deal(replicas, {{2}});
  CHECK(nobody.error().code == reason::kind::infeasible);
  CHECK(nobody.error().text == "no replica of the stage is left");
}
