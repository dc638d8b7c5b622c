#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "random_values.hpp"

using namespace troupe;
using troupe::testing::filler;

namespace {

std::vector<std::byte> bytes_of(const frame& f) {
  const auto view = f.header.bytes();
  return {view.begin(), view.end()};
}

}  // namespace

TEST_CASE("every type of message is decoded as it was encoded") {
  for (std::size_t type = 0; type < std::variant_size_v<message>; ++type) {
    for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
      filler random{seed * 1000 + type, true};
      message sent;
      random.alternative(sent, type);
      const auto f = encode(7, first_client_address + 1, sent);
      const auto back = decode(f.header.bytes());
      INFO("alternative " << type << ", seed " << seed);
      REQUIRE(back);
      REQUIRE(back->second == sent);
      REQUIRE(back->first.from == 7);
      REQUIRE(back->first.to == first_client_address + 1);
      const auto seen = peek(f.header.bytes());
      REQUIRE(seen);
      REQUIRE(seen->type == back->first.type);
      REQUIRE(seen->to == first_client_address + 1);
    }
  }
}

TEST_CASE("every kind of journal entry is decoded as it was encoded") {
  for (std::size_t kind = 0; kind < std::variant_size_v<journal_entry>; ++kind) {
    for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
      filler random{seed * 1000 + kind, true};
      journal_entry written;
      random.alternative(written, kind);
      const auto back = decode_entry(encode(written));
      INFO("alternative " << kind << ", seed " << seed);
      REQUIRE(back);
      REQUIRE(*back == written);
    }
  }
}

TEST_CASE("doubles are encoded bit for bit, including NaN payloads and minus zero") {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    filler random{seed};
    message sent;
    random.fill(sent);
    const auto f = encode(1, 2, sent);
    const auto back = decode(f.header.bytes());
    REQUIRE(back);
    REQUIRE(bytes_of(encode(1, 2, back->second)) == bytes_of(f));  // == would not hold for a NaN
  }
  for (const std::uint64_t bits :
       {0x7ff8000000000000ULL, 0xfff8000000000001ULL, 0x7ff0000000000001ULL, 0x7ff0000000000000ULL,
        0x8000000000000000ULL, 0x4008000000000000ULL}) {
    const auto back =
        decode_entry(encode(journal_entry{epoch_begun{1, std::bit_cast<double>(bits)}}));
    REQUIRE(back);
    REQUIRE(std::bit_cast<std::uint64_t>(std::get<epoch_begun>(*back).at_s) == bits);
  }
}

TEST_CASE("a frame's body is neither encoded into the header nor copied") {
  const payload body{std::vector<std::byte>(1000, std::byte{42})};
  const auto f = encode(1, 2, message{log_chunk{}}, body);
  CHECK(f.body.bytes().data() == body.bytes().data());
  CHECK(f.header.bytes().size() < 30);
}

TEST_CASE("a cluster's fingerprint depends on every value and on nothing else") {
  cluster c;
  filler{1}.fill(c);
  c.nodes.resize(3);
  c.settings.lease_s = 30;
  const auto before = fingerprint(c);
  CHECK(fingerprint(cluster{c}) == before);
  c.nodes[2].gpus += 1;
  CHECK(fingerprint(c) != before);
  c.nodes[2].gpus -= 1;
  c.settings.lease_s = std::nextafter(c.settings.lease_s, 100.0);
  CHECK(fingerprint(c) != before);
}
