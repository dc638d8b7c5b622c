// Sums of simulated gradients, which have digests in place of bytes.
#include <catch2/catch.hpp>
#include <optional>
#include <vector>

#include "actors/training/collectives/host_all_reduce.hpp"
#include "gpu/device/simulated_tensor.hpp"
#include "messages/base/random.hpp"

using namespace troupe;
using namespace troupe::actors;
using gpu::digest_in;
using gpu::simulated_tensor;
using gpu::sum_of_digests;

namespace {

constexpr std::uint64_t gradient_bytes = 4000;

/// The sums of members with these digests, whose messages arrive in an order drawn by chance.
std::vector<std::optional<std::uint64_t>> sums_of(const std::vector<std::uint64_t>& own,
                                                  const std::vector<std::uint32_t>& datacenters,
                                                  random_source& random) {
  struct message {
    std::uint32_t from = 0;
    host_all_reduce::outgoing what;
  };
  const auto members = static_cast<std::uint32_t>(own.size());
  std::vector<host_all_reduce> all;
  std::vector<message> sent;
  const auto keep = [&](std::uint32_t from, std::vector<host_all_reduce::outgoing> more) {
    for (auto& m : more) sent.push_back({from, std::move(m)});
  };
  for (std::uint32_t m = 0; m < members; ++m) all.emplace_back(members, m, datacenters);
  for (std::uint32_t m = 0; m < members; ++m)
    keep(m, all[m].begin(simulated_tensor(own[m]), gradient_bytes));
  while (!sent.empty()) {
    std::swap(sent[random.below(sent.size())], sent.back());
    const auto next = std::move(sent.back());
    sent.pop_back();
    CHECK(next.what.body.bytes().empty());
    tensor t;
    t.what = next.what.what;
    t.from.pipeline = next.from;
    t.microbatch = next.what.chunk;
    keep(next.what.to_pipeline, all[next.what.to_pipeline].receive(t, next.what.body));
  }
  std::vector<std::optional<std::uint64_t>> results;
  for (auto& a : all) {
    CHECK(a.error().empty());
    REQUIRE(a.complete());
    results.push_back(digest_in(a.result()));
  }
  return results;
}

}  // namespace

TEST_CASE("simulated gradients are added in the order of pipelines, wherever these are") {
  random_source random{5};
  for (int round = 0; round < 100; ++round) {
    std::vector<std::uint64_t> own(2 + random.below(5));
    std::vector<std::uint32_t> datacenters(own.size());
    for (auto& o : own) o = random.next();
    for (std::size_t i = 1; i < own.size(); ++i)
      datacenters[i] = datacenters[i - 1] + (random.chance(0.4) ? 1 : 0);
    auto expected = own[0];
    for (std::size_t i = 1; i < own.size(); ++i) expected = sum_of_digests(expected, own[i]);
    for (const auto& sum : sums_of(own, datacenters, random)) CHECK(sum == expected);
  }
}

TEST_CASE("a digest's sum is commutative and depends on the order of three") {
  CHECK(sum_of_digests(1, 2) == sum_of_digests(2, 1));
  CHECK(sum_of_digests(sum_of_digests(1, 2), 3) != sum_of_digests(1, sum_of_digests(2, 3)));
}

TEST_CASE("only simulated tensors have a digest, and their parts have it, too") {
  const auto t = simulated_tensor(7);
  CHECK(t.empty());
  CHECK(digest_in(t) == 7);
  CHECK(digest_in(slice(t, 100, 50)) == 7);
  CHECK(digest_in(sum_of(t, simulated_tensor(8))) == sum_of_digests(7, 8));
  const payload real{std::vector<float>{1, 2}};
  CHECK_FALSE(digest_in(real));
  CHECK_FALSE(digest_in(slice(real, 0, 0)));
  CHECK_FALSE(digest_in(payload{}));
}
