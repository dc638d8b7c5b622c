#include <catch2/catch.hpp>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "actors/serving/decoder/block_receiver.hpp"
#include "actors/serving/prefill/block_sender.hpp"
#include "messages/base/random.hpp"
#include "messages/base/time.hpp"

namespace troupe::actors {

namespace {

payload body_of(std::uint32_t index, std::size_t bytes) {
  std::vector<std::byte> b(bytes);
  for (std::size_t i = 0; i < bytes; ++i) b[i] = static_cast<std::byte>(index * 31 + i * 7);
  return payload{std::move(b)};
}

constexpr std::uint64_t size_of(std::uint32_t index) {
  return 100 + index % 7;
}

prefill_block header_of(std::uint32_t index, std::uint32_t blocks) {
  prefill_block b;
  b.what = prefill_block::kind::cache;
  b.name = {4, 7, 9};
  b.guest = 1;
  b.index = index;
  b.blocks = blocks;
  b.bytes = size_of(index);
  return b;
}

block_sender sender_with(std::uint32_t blocks, std::uint64_t window = 1u << 20) {
  block_sender s{window};
  for (std::uint32_t i = 0; i < blocks; ++i) s.add(header_of(i, blocks), body_of(i, size_of(i)), 0);
  return s;
}

block_receiver receiver() {
  return {{4, 7, 9}, 1, false, false};
}

std::vector<std::uint32_t> indices(const std::vector<block_sender::outgoing>& all) {
  std::vector<std::uint32_t> r;
  for (const auto& o : all) r.push_back(o.header.index);
  return r;
}

blocks_received has(std::uint32_t all_below, std::vector<std::uint32_t> others = {}) {
  blocks_received r;
  r.name = {4, 7, 9};
  r.guest = 1;
  r.all_below = all_below;
  r.others = std::move(others);
  return r;
}

using numbers = std::vector<std::uint32_t>;

/// A path that loses, repeats, delays and damages, by a seed.
class bad_path {
 public:
  explicit bad_path(std::uint64_t seed) : random_{seed}, receiver_{receiver()} {}

  /// Sends all blocks; returns the bodies in the order in which they were new.
  std::map<std::uint32_t, payload> transfer(block_sender& s) {
    for (double now_s = 0; !s.done(); now_s += 0.01) {
      REQUIRE(now_s < 600);
      for (auto& o : s.take_due(now_s)) carry(now_s, std::move(o));
      deliver(now_s, s);
    }
    return got_;
  }
  const block_receiver& to() const { return receiver_; }
  std::uint32_t damaged = 0, delivered = 0;

 private:
  double some_time() { return 0.005 + (random_.chance(0.1) ? 0.3 : 0.02) * random_.uniform(); }

  void carry(double now_s, block_sender::outgoing o) {
    if (random_.chance(0.2)) return;
    if (random_.chance(0.1)) blocks_.emplace(now_s + some_time(), o);
    if (random_.chance(0.1)) {
      std::vector<std::byte> bytes{o.body.bytes().begin(), o.body.bytes().end()};
      bytes[random_.below(bytes.size())] ^= std::byte{1};
      o.body = payload{std::move(bytes)};
    }
    blocks_.emplace(now_s + some_time(), std::move(o));
  }

  void deliver(double now_s, block_sender& s) {
    while (!blocks_.empty() && blocks_.begin()->first <= now_s) {
      const auto o = blocks_.extract(blocks_.begin()).mapped();
      arrive(now_s, o);
    }
    while (!states_.empty() && states_.begin()->first <= now_s)
      s.on_received(states_.extract(states_.begin()).mapped(), now_s);
  }

  void arrive(double now_s, const block_sender::outgoing& o) {
    const bool was_whole = receiver_.whole();
    const auto fresh = receiver_.accept(o.header, o.body, size_of(o.header.index));
    if (!fresh) {
      ++damaged;
      return;
    }
    if (*fresh) {
      ++delivered;
      REQUIRE_FALSE(was_whole);
      REQUIRE(got_.emplace(o.header.index, o.body).second);
    }
    if (!random_.chance(0.2)) states_.emplace(now_s + some_time(), receiver_.state());
  }

  random_source random_;
  block_receiver receiver_;
  std::multimap<double, block_sender::outgoing> blocks_;
  std::multimap<double, blocks_received> states_;
  std::map<std::uint32_t, payload> got_;
};

}  // namespace

TEST_CASE("blocks arrive whole and once over a path that loses, repeats, reorders and damages",
          "[blocks]") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const auto n = static_cast<std::uint32_t>(1 + seed * 5 % 97);
    auto s = sender_with(n, 2000);
    bad_path path{seed};
    const auto got = path.transfer(s);
    REQUIRE(got.size() == n);
    for (const auto& [i, body] : got)
      REQUIRE(std::ranges::equal(body.bytes(), body_of(i, size_of(i)).bytes()));
    CHECK(path.to().whole());
    CHECK(path.to().state().whole);
    if (n > 20) CHECK(path.damaged > 0);
  }
}

TEST_CASE("a sender of blocks keeps no more than its window under way", "[blocks]") {
  auto s = sender_with(10, 350);
  CHECK(indices(s.take_due(0)) == numbers{0, 1, 2});
  CHECK(s.take_due(0.001).empty());
  s.on_received(has(0, {1}), 0.002);
  CHECK(indices(s.take_due(0.002)) == numbers{3});
  s.on_received(has(4), 0.003);
  CHECK(indices(s.take_due(0.003)) == numbers{4, 5, 6});

  auto large = sender_with(2, 10);  // each is larger than the window
  CHECK(indices(large.take_due(0)) == numbers{0});
  large.on_received(has(1), 0.01);
  CHECK(indices(large.take_due(0.01)) == numbers{1});
}

TEST_CASE("a sender of blocks sends a missing one again once it must be lost", "[blocks]") {
  auto s = sender_with(3);
  CHECK(s.next_due_s() == never);
  CHECK(s.take_due(1).size() == 3);
  CHECK(s.next_due_s() == Approx(1.05));
  s.on_received(has(0, {1}), 1.04);  // a round trip of 40 ms: 120 until one counts as lost
  CHECK(s.round_trip_s() == Approx(0.04));
  CHECK(s.take_due(1.119).empty());
  CHECK(indices(s.take_due(s.next_due_s())) == numbers{0, 2});
  CHECK(s.resent() == 2);
  // The path may only be slow, so it waits longer the next time.
  CHECK(s.next_due_s() == Approx(1.12 + 0.24));
  // Which copy has arrived is unknown: no measure of a round trip.
  s.on_received(has(2), 1.13);
  CHECK(s.round_trip_s() == Approx(0.04));
  s.on_received(has(3), 1.14);
  CHECK(s.done());
  CHECK(s.take_due(9).empty());
  CHECK(s.next_due_s() == never);
}

TEST_CASE("a sender of blocks believes no receipt of what it has not sent", "[blocks]") {
  auto s = sender_with(4, 250);
  CHECK(s.take_due(0).size() == 2);
  s.on_received(has(4, {3, 77}), 0.01);
  CHECK_FALSE(s.done());
  CHECK(indices(s.take_due(0.01)) == numbers{2, 3});
}

TEST_CASE("a sender of blocks ends when its receiver needs no more", "[blocks]") {
  auto s = sender_with(4, 250);
  CHECK(s.take_due(0).size() == 2);
  auto enough = has(0);
  enough.whole = true;
  s.on_received(enough, 0.01);
  CHECK(s.done());
  s.add(header_of(4, 5), {}, 0.02);
  CHECK(s.take_due(1).empty());
}

TEST_CASE("a block that waits or is sent again says how long ago its guest ended", "[blocks]") {
  block_sender s;
  auto b = header_of(0, 1);
  b.progress.ended_ago_s = 0.5;
  s.add(b, body_of(0, size_of(0)), 10);
  CHECK(s.take_due(10.25).front().header.progress.ended_ago_s == Approx(0.75));
  CHECK(s.take_due(11).front().header.progress.ended_ago_s == Approx(1.5));
}

TEST_CASE("a receiver of blocks refuses what cannot be one of them", "[blocks]") {
  auto r = receiver();
  const auto good = [](std::uint32_t i) {
    auto b = header_of(i, 3);
    b.hash = block_hash(body_of(i, size_of(i)));
    return b;
  };
  const auto refused = [&](prefill_block b, const payload& body, std::uint64_t bytes) {
    const auto before = r.state();
    const auto ok = r.accept(b, body, bytes);
    CHECK(r.state() == before);
    return !ok && ok.error().code == reason::kind::malformed;
  };
  auto b = good(0);
  b.blocks = 0;
  CHECK(refused(b, body_of(0, 100), 100));
  b.blocks = block_receiver::max_blocks + 1;
  CHECK(refused(b, body_of(0, 100), 100));
  b = good(0);
  b.index = 3;
  CHECK(refused(b, body_of(0, 100), 100));
  CHECK(refused(good(0), body_of(0, 100), 104));  // not what its ranges imply
  CHECK(refused(good(0), body_of(0, 99), 100));
  CHECK(refused(good(0), {}, 100));
  CHECK(refused(good(0), body_of(1, 100), 100));  // another hash
  CHECK(r.accept(good(0), body_of(0, 100), 100) == true);
  CHECK(r.accept(good(0), body_of(0, 100), 100) == false);
  b = good(1);
  b.blocks = 4;  // not the count of the first block
  CHECK(refused(b, body_of(1, 101), 101));
}

TEST_CASE("a receiver of blocks is whole after the last of them, not before", "[blocks]") {
  block_receiver r{{4, 7, 9}, 1, true, true};  // simulated: no bodies
  CHECK_FALSE(r.whole());
  CHECK(r.state().all_below == 0);
  CHECK(r.accept(header_of(2, 3), {}, 102) == true);
  CHECK(r.state().others == numbers{2});
  CHECK(r.accept(header_of(0, 3), {}, 100) == true);
  CHECK_FALSE(r.whole());
  CHECK(r.state() == [] {
    auto s = has(1, {2});
    s.hidden = true;
    return s;
  }());
  CHECK(r.accept(header_of(1, 3), {}, 101) == true);
  CHECK(r.whole());
  CHECK(r.state().whole);
  CHECK(r.bytes() == 303);
}

}  // namespace troupe::actors
