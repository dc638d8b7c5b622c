#include "text/tokens/merge_table.hpp"

#include <algorithm>
#include <map>

#include <catch2/catch.hpp>

#include "messages/base/random.hpp"

using namespace troupe;
using gpu::merge_table;

namespace {

using pair = std::pair<std::uint32_t, std::uint32_t>;

/// The definition, in quadratic time.
std::vector<std::uint32_t> merged_slowly(const std::map<pair, pair>& merges,
                                         std::vector<std::uint32_t> word) {
  for (;;) {
    auto best = merges.end();
    std::size_t where = 0;
    for (std::size_t i = 0; i + 1 < word.size(); ++i) {
      const auto m = merges.find({word[i], word[i + 1]});
      if (m == merges.end()) continue;
      if (best == merges.end() || m->second.first < best->second.first) best = m, where = i;
    }
    if (best == merges.end()) return word;
    word[where] = best->second.second;
    word.erase(word.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
}

}  // namespace

TEST_CASE("merges are applied by rank, and from the left, whatever the table") {
  random_source random{1};
  for (int round = 0; round < 300; ++round) {
    merge_table table;
    std::map<pair, pair> same;
    std::uint32_t next = 4;
    for (std::uint32_t rank = 0; rank < 30; ++rank) {
      const pair two{static_cast<std::uint32_t>(random.below(next)),
                     static_cast<std::uint32_t>(random.below(next))};
      table.add(two.first, two.second, rank, next);
      same.try_emplace(two, pair{rank, next});
      ++next;
    }
    std::vector<std::uint32_t> word(random.below(60));
    for (auto& token : word) token = static_cast<std::uint32_t>(random.below(4));
    CHECK(table.apply(word) == merged_slowly(same, word));
  }
}

TEST_CASE("a word of two million letters is encoded: the time grows with its length alone") {
  // Quadratic time would be hours, and the test's limit ends it.
  merge_table table;
  std::uint32_t next = 26;
  for (std::uint32_t rank = 0; rank < 5000; ++rank) table.add(rank % 26, rank / 26, rank, next++);
  std::vector<std::uint32_t> word(2'000'000);
  random_source random{2};
  for (auto& token : word) token = static_cast<std::uint32_t>(random.below(26));
  const auto tokens = table.apply(word);
  CHECK(tokens.size() < word.size());
  CHECK(tokens.size() > word.size() / 8);
}
