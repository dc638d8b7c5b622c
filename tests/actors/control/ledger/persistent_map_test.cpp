#include "actors/control/ledger/persistent_map.hpp"
#include "actors/control/ledger/shared_list.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <vector>

#include "messages/base/random.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

using reference_map = std::map<std::uint64_t, int>;
using tested_map = persistent_map<std::uint64_t, int>;

bool same(const tested_map& tested, const reference_map& reference) {
  if (tested.size() != reference.size()) return false;
  auto next = reference.begin();
  for (const auto& [key, value] : tested) {
    if (key != next->first || value != next->second) return false;
    ++next;
  }
  return next == reference.end();
}

}  // namespace

TEST_CASE("a persistent map behaves like an ordinary map, and its copies do not change") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    random_source random{seed};
    const auto keys = 1 + random.below(2000);
    tested_map tested;
    reference_map reference;
    std::vector<std::pair<tested_map, reference_map>> copies;
    for (int step = 0; step < 3000; ++step) {
      // Ascending keys of which old ones go, as leases; or any.
      const auto key =
          seed % 2 == 0 ? static_cast<std::uint64_t>(step) - random.below(100) : random.below(keys);
      if (random.chance(0.4)) {
        REQUIRE(tested.erase(key) == (reference.erase(key) > 0));
      } else {
        tested.set(key, step);
        reference[key] = step;
      }
      const auto* found = tested.find(key);
      REQUIRE((found != nullptr) == reference.contains(key));
      if (found) REQUIRE(*found == step);
      if (!reference.empty()) REQUIRE(tested.last_key() == reference.rbegin()->first);
      if (step % 250 == 0) copies.emplace_back(tested, reference);
    }
    REQUIRE(same(tested, reference));
    for (const auto& [copy, expected] : copies) REQUIRE(same(copy, expected));
    while (!reference.empty()) {
      REQUIRE(tested.erase(reference.begin()->first));
      reference.erase(reference.begin());
    }
    REQUIRE(tested.empty());
    REQUIRE_FALSE(tested.begin() != tested.end());
  }
}

TEST_CASE("persistent maps with equal content are equal, whatever their history") {
  tested_map up, down;
  for (std::uint64_t key = 0; key < 500; ++key) up.set(key, 1);
  for (std::uint64_t key = 500; key-- > 0;) down.set(key, 1);
  CHECK(up == down);
  auto other = up;
  other.set(250, 2);
  CHECK_FALSE(other == up);
  other = up;
  other.erase(499);
  CHECK_FALSE(other == up);
}

TEST_CASE("a shared list behaves like a vector, and its copies do not change") {
  random_source random{1};
  shared_list<int> tested;
  std::vector<int> reference;
  std::vector<std::pair<shared_list<int>, std::vector<int>>> copies;
  for (int step = 0; step < 500; ++step) {
    if (reference.empty() || random.chance(0.5)) {
      tested.push_back(step);
      reference.push_back(step);
    } else {
      tested.replace_back(step);
      reference.back() = step;
    }
    REQUIRE(tested.back() == reference.back());
    REQUIRE(tested.size() == reference.size());
    if (step % 20 == 0) copies.emplace_back(tested, reference);
  }
  for (const auto& [copy, expected] : copies) {
    REQUIRE(copy.all() == expected);
    REQUIRE(copy == shared_list{expected});
    REQUIRE_FALSE(copy == tested);
  }
  auto other = reference;
  other.front() = -1;
  CHECK_FALSE(tested == shared_list{other});
  CHECK(shared_list<int>{}.empty());
}

TEST_CASE("a shared list of a million elements ends without a deep stack") {
  shared_list<int> tested;
  for (int i = 0; i < 1'000'000; ++i) tested.push_back(i);
  auto copy = tested;
  copy.replace_back(-1);
  tested = {};
  CHECK(copy.size() == 1'000'000);
  copy = {};
  CHECK(copy.empty());
}
