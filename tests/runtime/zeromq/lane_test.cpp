#include "runtime/zeromq/lane.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

#include "runtime/world.hpp"

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::runtime::test;

namespace {

frame with_header(std::size_t bytes, char content, payload body = {}) {
  return {payload{std::vector<std::byte>(bytes, std::byte(content))}, std::move(body)};
}

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::ranges::equal(a, b);
}

}  // namespace

TEST_CASE(
    "small frames are batched up to 16 KiB; large frames and frames with bodies are sent alone") {
  const auto together = [](const std::vector<frame>& all, std::size_t max = 1'000'000) {
    return batchable({all.begin(), all.end()}, max);
  };
  const std::vector<frame> many(200, with_header(100, 'x'));
  CHECK(together(many) == 16 * 1024 / 104);
  CHECK(together(many, 7) == 7);
  CHECK(together({many.begin(), many.begin() + 5}) == 5);
  CHECK(together(std::vector<frame>(40, with_header(1020, 'x'))) == 16);  // 16 x 1024
  CHECK(together(std::vector<frame>(40, with_header(1023, 'x'))) == 15);
  CHECK(together(std::vector<frame>(4, with_header(1024, 'x'))) == 1);
  auto mixed = many;
  mixed[3] = with_header(10, 'x', payload{std::vector<std::byte>(1)});
  CHECK(together(mixed) == 3);
  mixed[0] = mixed[3];
  CHECK(together(mixed) == 1);
}

TEST_CASE("a batch is unpacked into the frames it was made of, and a truncated batch is refused") {
  std::deque<frame> all;
  for (std::size_t i = 0; i < 20; ++i) all.push_back(with_header(i * i * 2, char('a' + i)));
  auto b = make_batch(all, 15);
  CHECK(is_batch(b.header));
  CHECK_FALSE(is_batch(zmq::message_t{std::string{"\xc1\xc1"}}));
  CHECK_FALSE(is_batch(zmq::message_t{std::string{"x"}}));
  CHECK_FALSE(is_batch(zmq::message_t{}));
  const std::string bytes = b.body.to_string();
  const auto frames = frames_of(std::move(b.body), nullptr);
  REQUIRE(frames);
  REQUIRE(frames->size() == 15);
  for (std::size_t i = 0; i < 15; ++i) {
    CHECK(same((*frames)[i].header.bytes(), all[i].header.bytes()));
    CHECK((*frames)[i].body.empty());
    CHECK(inbox_of((*frames)[i]) != nullptr);
  }
  CHECK(inbox_of(all[3]) == nullptr);
  for (std::size_t less = 1; less < 100; ++less) {
    const auto cut = frames_of(zmq::message_t{bytes.substr(0, bytes.size() - less)}, nullptr);
    CHECK_FALSE(cut);
  }
}

TEST_CASE(
    "payloads of 1 KiB are sent without a copy and count as unsent until sent; smaller ones are "
    "copied") {
  const auto whole = std::make_shared<unsent_bytes>();
  const auto unsent = std::make_shared<unsent_bytes>(whole);
  const auto shares = [&](const payload& p, bool all) {
    const auto m = outgoing_message(p, unsent, all);
    CHECK(same({static_cast<const std::byte*>(m.data()), m.size()}, p.bytes()));
    const bool shared = p.bytes().size() > 0 && m.data() == p.bytes().data();
    CHECK(unsent->now() == (shared ? p.bytes().size() : 0));
    CHECK(whole->now() == unsent->now());
    return shared;
  };
  const auto owned = [](std::size_t n) { return payload{std::vector<std::byte>(n, std::byte{7})}; };
  CHECK(shares(owned(1024), false));
  CHECK_FALSE(shares(owned(1023), false));
  CHECK(shares(owned(1023), true));
  CHECK(shares(owned(100'000), true));
  CHECK_FALSE(shares(payload{}, true));
  CHECK(unsent->now() == 0);
  CHECK(whole->now() == 0);
}

TEST_CASE("a lane's window closes by frames or bytes, and opens as credit is returned") {
  lane l;
  CHECK(l.may_send(2, 100));
  l.sent(10);
  CHECK(l.may_send(2, 100));
  l.sent(20);
  CHECK_FALSE(l.may_send(2, 100));
  CHECK_FALSE(l.may_send(9, 30));
  CHECK(l.may_send(9, 31));
  l.credited(1);
  CHECK(l.uncredited_bytes == 20);
  CHECK(l.may_send(2, 100));
  l.credited(5);
  CHECK(l.uncredited_bytes == 0);
  inbox in{{}, {"", false}, 4, 1000};
  for (int i = 0; i < 8; ++i) in.arrived();
  for (const std::uint32_t frames : {0U, 0U, 0U, 4U}) CHECK(in.handled(10) == frames);
  CHECK(in.uncredited() == 4);
  CHECK(in.handled(999) == 0);
  CHECK(in.handled(1) == 2);
  CHECK(in.uncredited() == 2);
}
