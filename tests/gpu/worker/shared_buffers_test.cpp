#include "gpu/worker/shared_buffers.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <map>
#include <thread>

#include "gpu/worker/worker_protocol.hpp"
#include "messages/base/random.hpp"

namespace troupe::test {

using gpu::python::buffer_place;
using gpu::python::shared_buffers;

namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

buffer_place place_of(const expected<std::shared_ptr<shared_buffers::shared_buffer>>& s) {
  REQUIRE(s);
  return (*s)->place();
}

}  // namespace

TEST_CASE("a buffer that was returned is used again") {
  shared_buffers all{8 * mib};
  const auto first = place_of(all.take(1000));
  CHECK(first == buffer_place{1, 0, 1024});
  const auto held = all.take(1000);
  CHECK(place_of(held) == first);
  CHECK(place_of(all.take(64)) == buffer_place{1, 1024, 64});
}

TEST_CASE("buffers never overlap, and all memory is whole again in the end") {
  shared_buffers all{8 * mib};
  random_source random{1};
  std::vector<std::shared_ptr<shared_buffers::shared_buffer>> held;
  for (int i = 0; i < 2000; ++i) {
    if (auto s = all.take(1 + random.below(mib / 8))) held.push_back(std::move(*s));
    if (!held.empty() && random.below(3) == 0)
      held.back()->shorten(held.back()->bytes().size() / 2);
    while (held.size() > 40 || (!held.empty() && random.below(2) == 0)) {
      std::swap(held[random.below(held.size())], held.back());
      held.pop_back();
    }
    std::map<std::byte*, std::size_t> pieces;
    for (const auto& s : held) pieces.emplace(s->bytes().data(), s->bytes().size());
    REQUIRE(pieces.size() == held.size());
    const std::byte* end = nullptr;
    for (const auto& [at, size] : pieces) {
      REQUIRE(at >= end);
      end = at + size;
    }
  }
  held.clear();
  CHECK(all.take(4 * mib));
  CHECK(all.has_room(4 * mib));
}

TEST_CASE("memory grows by regions up to the limit") {
  shared_buffers all{10 * mib};
  CHECK(all.take_new_regions().empty());
  const auto a = all.take(4 * mib), b = all.take(mib);
  CHECK(place_of(a).region == 1);
  CHECK(place_of(b) == buffer_place{2, 0, mib});
  auto regions = all.take_new_regions();
  REQUIRE(regions.size() == 2);
  CHECK(regions[0].memory->bytes().size() == 4 * mib);
  CHECK(regions[1].memory->bytes().size() == 4 * mib);
  CHECK(all.take_new_regions().empty());
  const auto c = all.take(3 * mib);
  CHECK(place_of(c).region == 2);
  CHECK(all.has_room(2 * mib));
  CHECK_FALSE(all.has_room(3 * mib));
  const auto refused = all.take(3 * mib);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == reason::kind::infeasible);
  CHECK(refused.error().text ==
        "a tensor of 3145728 bytes finds no room in 10485760 bytes of "
        "shared memory; slot_mb may be too small");
}

TEST_CASE("a buffer gives back what its output does not use") {
  shared_buffers all{8 * mib};
  const auto first = all.take(mib);
  REQUIRE(first);
  (*first)->shorten(100);
  CHECK((*first)->bytes().size() == 128);
  CHECK(place_of(all.take(64)) == buffer_place{1, 128, 64});
}

TEST_CASE(
    "a payload keeps its buffer and the mapped memory alive after the shared buffers are "
    "destroyed") {
  payload p;
  {
    shared_buffers all{8 * mib};
    auto s = all.take(64);
    REQUIRE(s);
    (*s)->bytes()[5] = std::byte{7};
    p = as_payload(std::move(*s));
    CHECK(place_of(all.take(64)).offset == 64);
  }
  CHECK(p.bytes().size() == 64);
  CHECK(p.bytes()[5] == std::byte{7});
}

TEST_CASE("buffers are returned from any thread") {
  shared_buffers all{8 * mib};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        auto s = all.take(1000);
        if (s) std::thread{[moved = std::move(*s)] {}}.join();
      }
    });
  for (auto& t : threads) t.join();
  CHECK(place_of(all.take(4 * mib)) == buffer_place{1, 0, 4 * mib});
}

TEST_CASE("nobody can change the size of shared memory") {
  const auto memory = gpu::python::shared_memory::make(4096);
  REQUIRE(memory);
  CHECK(::ftruncate((*memory)->file(), 0) != 0);
  CHECK(::ftruncate((*memory)->file(), 8192) != 0);
  CHECK(::fcntl((*memory)->file(), F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
}

TEST_CASE("a place fits into a number of a header") {
  const buffer_place largest{255, gpu::python::max_buffer, gpu::python::max_buffer};
  for (const auto& p : {buffer_place{}, buffer_place{1, 64, 128}, largest})
    CHECK(gpu::python::unpacked(gpu::python::packed(p)) == p);
}

}  // namespace troupe::test
