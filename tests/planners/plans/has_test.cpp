#include <catch2/catch.hpp>

#include <algorithm>
#include <optional>
#include <tuple>

#include "harness/facts.hpp"
#include "planners/plans/fits.hpp"
#include "planners/plans/has.hpp"
#include "planners/sample.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

plan needs(std::uint32_t gpus, double gb) {
  plan p;
  p.data_parallel = gpus;
  p.bytes_per_gpu = gb * bytes_per_gb;
  return p;
}

// Algorithm 1 as printed, without an index.
std::optional<has_choice> naive_has(const cluster& c, const idle_index& index,
                                    const std::vector<plan>& plans, double floor) {
  struct entry {
    node_index id;
    std::uint32_t idle;
  };
  std::vector<entry> nodes;
  for (node_index n = 0; n < c.nodes.size(); ++n) nodes.push_back({n, index.idle(n)});
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const double size = plans[i].bytes_per_gpu;
    std::uint32_t number = plans[i].gpus(), available = 0;
    if (size <= floor) continue;
    for (const auto& n : nodes) {
      if (c.gpu_of(n.id).memory_bytes() > size) available += n.idle;
    }
    if (available < number) continue;
    has_choice out{i, {}};
    while (number > 0) {
      std::vector<entry*> list;
      for (auto& n : nodes) {
        if (n.idle > 0 && c.gpu_of(n.id).memory_bytes() > size) list.push_back(&n);
      }
      std::sort(list.begin(), list.end(), [&](const entry* a, const entry* b) {
        return std::tuple(a->idle, c.gpu_of(a->id).memory_gb, c.nodes[a->id].name) <
               std::tuple(b->idle, c.gpu_of(b->id).memory_gb, c.nodes[b->id].name);
      });
      bool met = false;
      for (auto* n : list) {
        if (n->idle < number) continue;
        out.where.push_back({n->id, number});
        n->idle -= number;
        number = 0;
        met = true;
        break;
      }
      if (met) break;
      auto* last = list.back();
      out.where.push_back({last->id, last->idle});
      number -= last->idle;
      last->idle = 0;
    }
    return out;
  }
  return {};
}

}  // namespace

TEST_CASE("HAS gives Job(2, 32 GB) to Node(3, 40), not to Node(6, 80)") {
  cluster c;
  sample::add_nodes(c, sample::a100_80, 1, 6);
  sample::add_nodes(c, sample::a100_40, 1, 3);
  const auto choice = has(c, idle_index(c), std::vector{needs(2, 32)});
  REQUIRE(choice);
  CHECK(choice->where == allocation{{1, 2}});
}

TEST_CASE("HAS gives Job(4, 35 GB) to Node(4, 40), not to four Node(1, 40)") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 4, 1);
  sample::add_nodes(c, sample::a100_40, 1, 4);
  const auto choice = has(c, idle_index(c), std::vector{needs(4, 35)});
  REQUIRE(choice);
  CHECK(choice->where == allocation{{4, 4}});
}

TEST_CASE("HAS falls back to the second plan when no GPU has the memory of the first") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 2, 1);
  const auto choice = has(c, idle_index(c), std::vector{needs(1, 45), needs(2, 35)});
  REQUIRE(choice);
  CHECK(choice->plan == 1);
  CHECK(choice->where == allocation{{1, 1}, {0, 1}});
}

TEST_CASE("HAS says what is missing") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 2, 4);
  idle_index idle(c);
  idle.set_idle(0, 1);
  const auto choice = has(c, idle, std::vector{needs(8, 36.74)});
  REQUIRE(!choice);
  CHECK(troupe::test::has_facts(choice.error().text, {"8 GPUs", "36.7 GB", "5"}));
  CHECK(choice.error().code == reason::kind::insufficient);
  const auto floored = has(c, idle, std::vector{needs(2, 20)}, 30e9);
  REQUIRE(!floored);
  CHECK(floored.error().code == reason::kind::infeasible);
}

TEST_CASE("memory must be strictly more than a plan needs") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 1, 4);
  CHECK(!has(c, idle_index(c), std::vector{needs(1, 40)}));
  CHECK(has(c, idle_index(c), std::vector{needs(1, 39.999)}));
}

TEST_CASE("HAS agrees with Algorithm 1 on 1,000 random cases") {
  random_source r(11);
  int served = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto c = sample::random_cluster(r);
    idle_index idle(c);
    sample::random_idle(idle, c, r);
    std::vector<plan> plans;
    const auto n = 1 + r.below(4);
    for (std::uint64_t k = 0; k < n; ++k) {
      plans.push_back(needs(1 + std::uint32_t(r.below(24)), double(r.below(85))));
    }
    const double floor = r.chance(0.2) ? 20e9 : 0;
    const auto expected_choice = naive_has(c, idle, plans, floor);
    const auto choice = has(c, idle, plans, floor);
    REQUIRE(choice.has_value() == expected_choice.has_value());
    if (!choice) continue;
    ++served;
    REQUIRE(choice->plan == expected_choice->plan);
    REQUIRE(choice->where == expected_choice->where);
    REQUIRE(fits(c, idle, plans[choice->plan], choice->where));
  }
  CHECK(served > 300);
}

TEST_CASE("the idle index agrees with a plain count through 20,000 random changes") {
  random_source r(5);
  const auto c = sample::random_cluster(r, 200);
  idle_index idle(c);
  for (int i = 0; i < 20'000; ++i) {
    const auto n = node_index(r.below(c.nodes.size()));
    idle.set_idle(n, std::uint32_t(r.below(c.nodes[n].gpus + 1)));
    if (i % 100 != 0) continue;
    const double bytes = double(r.below(85)) * 1e9;
    std::uint32_t above = 0, total = 0;
    for (node_index k = 0; k < c.nodes.size(); ++k) {
      total += idle.idle(k);
      if (c.gpu_of(k).memory_bytes() > bytes) above += idle.idle(k);
    }
    REQUIRE(idle.total_idle() == total);
    REQUIRE(idle.idle_above(bytes) == above);
    for (gpu_index g = 0; g < c.gpus.size(); ++g) {
      std::vector<node_index> forward, backward;
      for (auto p = idle.first_with(g, 1); p != idle_index::none; p = idle.after(g, p)) {
        forward.push_back(idle.node_at(g, p));
      }
      for (auto p = idle.before(g, idle_index::none); p != idle_index::none;
           p = idle.before(g, p)) {
        backward.push_back(idle.node_at(g, p));
      }
      std::reverse(backward.begin(), backward.end());
      REQUIRE(forward == backward);
      const auto key = [&](node_index k) { return std::tuple(idle.idle(k), c.nodes[k].name); };
      REQUIRE(std::is_sorted(forward.begin(), forward.end(),
                             [&](node_index a, node_index b) { return key(a) < key(b); }));
      std::uint32_t of_type = 0;
      for (const auto k : forward) of_type += idle.idle(k);
      REQUIRE(of_type == idle.idle_of(g));
    }
  }
}

TEST_CASE("fits refuses every kind of invalid allocation with a sentence") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 2, 4);
  sample::add_nodes(c, sample::rtx2080ti, 1, 8);
  idle_index idle(c);
  idle.set_idle(1, 1);
  const auto text = [&](const plan& p, const allocation& a) {
    const auto ok = fits(c, idle, p, a);
    return ok ? std::string() : ok.error().text;
  };
  CHECK(text(needs(4, 30), {{0, 4}}) == "");
  CHECK(text(needs(5, 30), {{0, 4}, {1, 1}}) == "");
  CHECK(troupe::test::has_facts(text(needs(4, 30), {}), {"empty"}));
  CHECK(troupe::test::has_facts(text(needs(4, 30), {{0, 2}, {0, 2}}), {"n0", "twice"}));
  CHECK(troupe::test::has_facts(text(needs(4, 30), {{9, 4}}), {"9"}));
  CHECK(text(needs(4, 30), {{0, 4}, {1, 0}}) == "uses no GPU of n1");
  CHECK(troupe::test::has_facts(text(needs(4, 30), {{0, 3}}), {"4 GPUs", "3"}));
  CHECK(troupe::test::has_facts(text(needs(2, 30), {{1, 2}}), {"2 GPUs", "n1", "1"}));
  CHECK(
      troupe::test::has_facts(text(needs(4, 30), {{2, 4}}), {"30.0 GB", "RTX2080Ti", "n2", "11"}));
}
