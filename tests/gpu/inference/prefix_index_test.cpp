#include "gpu/inference/prefix_index.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <numeric>

#include "gpu/inference/inference_device.hpp"
#include "messages/base/random.hpp"

using namespace troupe;
using namespace troupe::gpu;

namespace {

using page_of_tokens = std::vector<std::uint32_t>;

page_of_tokens page_from(std::uint32_t first) {
  page_of_tokens all(tile_positions);
  std::iota(all.begin(), all.end(), first);
  return all;
}

std::uint64_t same_hash(const prefix_owner&, std::uint64_t, std::span<const std::uint32_t>) {
  return 7;
}

}  // namespace

TEST_CASE("a page is another prefix's, model's or adapter's, even if their hashes are equal") {
  const prefix_owner model{1, {}}, other_model{2, {}}, adapted{1, "legal"};
  for (const auto hash : {hash_of_prefix, same_hash}) {
    prefix_index index{hash};
    const auto a = page_from(0), b = page_from(100);
    const auto first = index.add(model, 0, a);
    CHECK(index.find(model, 0, a) == first);
    CHECK(index.find(other_model, 0, a) == 0);
    CHECK(index.find(adapted, 0, a) == 0);
    CHECK(index.find(model, 0, b) == 0);
    const auto planted = index.add(other_model, 0, b);
    CHECK(index.find(model, 0, b) == 0);
    // The same tokens behind another page, and at the beginning.
    const auto second = index.add(model, first, b), begin = index.add(model, 0, b);
    CHECK(index.find(model, first, b) == second);
    CHECK(index.find(model, 0, b) == begin);
    CHECK(index.find(model, begin, b) == 0);
    CHECK(index.find(other_model, 0, b) == planted);
    // One token differs.
    auto almost = b;
    ++almost.back();
    CHECK(index.find(model, first, almost) == 0);
  }
}

TEST_CASE("hashes of prefixes differ by model, adapter, what is before, and every token") {
  std::map<std::uint64_t, int> all;
  const auto a = page_from(5);
  ++all[hash_of_prefix({1, {}}, 0, a)];
  ++all[hash_of_prefix({2, {}}, 0, a)];
  ++all[hash_of_prefix({1, "x"}, 0, a)];
  ++all[hash_of_prefix({1, "y"}, 0, a)];
  ++all[hash_of_prefix({1, {}}, 9, a)];
  for (std::size_t i = 0; i < a.size(); ++i) {
    auto changed = a;
    ++changed[i];
    ++all[hash_of_prefix({1, {}}, 0, changed)];
  }
  CHECK(all.size() == 5 + a.size());
}

TEST_CASE("the least recently used page that nobody holds goes first, of a prompt the last") {
  const prefix_owner model{1, {}};
  prefix_index index;
  const auto one = index.add(model, 0, page_from(0));
  const auto two = index.add(model, one, page_from(1));
  const auto other = index.add(model, 0, page_from(2));
  CHECK_FALSE(index.evict());
  index.let_go(two);
  index.let_go(one);
  index.let_go(other);
  CHECK(index.idle() == 3);
  // Used again: after the other one.
  index.hold(one);
  CHECK(index.idle() == 2);
  index.let_go(one);
  CHECK(index.evict() == two);
  CHECK(index.find(model, one, page_from(1)) == 0);
  CHECK(index.evict() == other);
  CHECK(index.find(model, 0, page_from(0)) == one);
  CHECK(index.evict() == one);
  CHECK_FALSE(index.evict());
  CHECK(index.size() == 0);
}
