#include <catch2/catch.hpp>

#include <memory>

#include "golden.hpp"
#include "messages/base/random.hpp"
#include "probe.hpp"
#include "random_values.hpp"

using namespace troupe;
using namespace troupe::testing;

namespace {

using byte_vector = std::vector<std::byte>;

/// Valid frames and entries of every type, small and large.
std::vector<byte_vector> valid_inputs() {
  std::vector<byte_vector> all;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    filler random{seed};
    for (std::size_t type = 0; type < std::variant_size_v<message>; ++type) {
      message m;
      random.alternative(m, type);
      const auto f = encode(1, first_client_address, m);
      all.emplace_back(f.header.bytes().begin(), f.header.bytes().end());
    }
    for (std::size_t kind = 0; kind < std::variant_size_v<journal_entry>; ++kind) {
      journal_entry e;
      random.alternative(e, kind);
      all.push_back(encode(e));
    }
  }
  return all;
}

class mutator {
 public:
  mutator(std::uint64_t seed, std::vector<byte_vector> valid)
      : random_{seed}, valid_{std::move(valid)} {}

  byte_vector next() {
    byte_vector bytes = one_of_valid();
    switch (random_.below(16)) {
      case 0:
        bytes = noise(random_.below(64));
        break;
      case 1:
        bytes = header_and_noise();
        break;
      case 2:
        bytes = nested(random_.below(3000));
        break;
      default:
        for (auto n = random_.below(4) + 1; n > 0; --n) mutate(bytes);
    }
    return bytes;
  }

 private:
  const byte_vector& one_of_valid() { return valid_[random_.below(valid_.size())]; }
  std::size_t place(const byte_vector& b) { return random_.below(b.size() + 1); }
  std::byte any() { return static_cast<std::byte>(random_.next()); }

  byte_vector noise(std::size_t size) {
    byte_vector bytes(size);
    for (auto& b : bytes) b = any();
    return bytes;
  }

  /// Right up to the type, then anything: half of it bytes that begin values.
  byte_vector header_and_noise() {
    byte_vector bytes = {std::byte{0x95}, std::byte{1}, static_cast<std::byte>(random_.below(34)),
                         std::byte{0}, std::byte{0}};
    for (auto n = random_.below(60); n > 0; --n)
      bytes.push_back(random_.chance(0.5) ? any() : opener());
    return bytes;
  }

  byte_vector nested(std::size_t depth) {
    byte_vector bytes = one_of_valid();
    bytes.resize(place(bytes));
    bytes.insert(bytes.end(), depth, random_.chance(0.5) ? std::byte{0x91} : std::byte{0x81});
    return bytes;
  }

  /// A first byte of a container, a number or a string.
  std::byte opener() {
    constexpr std::uint8_t families[] = {0x00, 0x80, 0x90, 0xa0, 0xc0, 0xd0, 0xe0};
    return static_cast<std::byte>(families[random_.below(std::size(families))] + random_.below(16));
  }

  void mutate(byte_vector& b) {
    const auto at = place(b);
    const auto here = b.begin() + static_cast<std::ptrdiff_t>(at);
    switch (random_.below(7)) {
      case 0:
        if (at < b.size()) b[at] ^= static_cast<std::byte>(1u << random_.below(8));
        break;
      case 1:
        if (at < b.size()) b[at] = opener();
        break;
      case 2:
        if (at < b.size()) b[at] = any();
        break;
      case 3:
        b.resize(at);
        break;
      case 4:
        b.insert(here, opener());
        break;
      case 5:
        b.erase(here, here + static_cast<std::ptrdiff_t>(random_.below(b.size() - at + 1) % 9));
        break;
      default:
        lie(b, at);
    }
  }

  /// A length of 16 or 32 bits that promises much, where perhaps a container was.
  void lie(byte_vector& b, std::size_t at) {
    constexpr std::uint8_t lengths[] = {0xdb, 0xdd, 0xdf, 0xda, 0xdc, 0xde};
    byte_vector claim{static_cast<std::byte>(lengths[random_.below(6)])};
    for (int i = 0; i < 4; ++i) claim.push_back(random_.chance(0.5) ? std::byte{0} : any());
    b.insert(b.begin() + static_cast<std::ptrdiff_t>(at), claim.begin(), claim.end());
  }

  random_source random_;
  std::vector<byte_vector> valid_;
};

/// In a block of exactly its size, so that a sanitizer sees the first byte that is read beyond it.
probed probe_exactly(const byte_vector& bytes) {
  const auto copy = std::make_unique<std::byte[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), copy.get());
  return probe({copy.get(), bytes.size()});
}

}  // namespace

TEST_CASE("a million hostile inputs are decoded or refused, without harm") {
  mutator inputs{20240607, valid_inputs()};
  std::size_t messages = 0, entries = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    const auto seen = probe_exactly(inputs.next());
    messages += seen.message;
    entries += seen.entry;
  }
  // Some must get through, or this would only test the first check of each decoder.
  CHECK(messages > 10'000);
  CHECK(entries > 3'000);
  CHECK(messages + entries < 500'000);
}

TEST_CASE("decoding allocates at most a small multiple of the input, for the worst messages too") {
  constexpr std::size_t many = 50'000;
  query_reply names;
  names.gateways_absent.resize(many);  // one byte each on the wire
  node_orders orders;
  orders.work.resize(many / 10);
  submit_job job;
  for (std::size_t i = 0; i < many; ++i) {  // keys as short as distinct keys can be
    std::string key;
    for (auto rest = i; rest > 0; rest /= 256) key += static_cast<char>(rest % 256);
    job.spec.program.environment.emplace(key, "");
  }
  explanation plans;
  plans.plans.resize(many / 10);
  for (const auto& m : {message{names}, message{orders}, message{job}, message{plans}}) {
    const auto f = encode(1, 2, m);
    const auto size = f.header.bytes().size();
    const auto seen = probe(f.header.bytes());  // ends the program beyond max_bytes_for(size)
    REQUIRE(seen.message);
    CAPTURE(m.index(), size, seen.allocated_bytes);
    CHECK(seen.allocated_bytes < max_bytes_for(size));
  }
}

TEST_CASE("lists that claim to be long allocate no memory for it") {
  // gateways_absent of a query_reply claims 0xffffffff, 0xffff and 200 strings, and 20 bytes
  // follow.
  const std::string before = "95 05 0f 00 00 96 00 a0 cb 0000000000000000 90 90 ";
  for (const auto* claim : {"dd ffffffff", "dc ffff", "dc 00c8"}) {
    auto bytes = from_hex(before + claim);
    bytes.resize(bytes.size() + 20, std::byte{0xa0});
    const auto seen = probe_exactly(bytes);
    CHECK(!seen.message);
    CHECK(seen.allocated_bytes < 512);  // the reason's sentence
  }
}
