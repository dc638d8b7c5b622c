#include "actors/training/device/state_files.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>

#include "actors/training/device/socket_folder.hpp"
#include "actors/training/stage/state_parts.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

namespace fs = std::filesystem;

void write(const fs::path& file, const std::string& text) {
  std::ofstream{file, std::ios::binary} << text;
}

std::string contents(const fs::path& file) {
  std::ifstream in{file, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

payload first_bytes(const payload& whole, std::size_t n) {
  return slice(whole, 0, n);
}

/// A folder with two files of a state, and one of something else.
struct saved_state {
  socket_folder folder = *socket_folder::make();
  fs::path from = fs::path{folder.path()} / "from", to = fs::path{folder.path()} / "to";

  saved_state() {
    fs::create_directories(from);
    write(from / "layer-1.safetensors", "first" + std::string(1, '\0') + "file");
    write(from / "layer-2.safetensors", "");
    write(from / "notes.txt", "no file of a state");
  }
};

tensor part(std::uint32_t number, std::uint32_t parts) {
  tensor t;
  t.what = tensor::kind::state;
  t.microbatch = number;
  t.parts = parts;
  return t;
}

}  // namespace

TEST_CASE("a state is read from its files and written to others that are the same") {
  const saved_state s;
  const auto state = read_state(s.from, {1, 7});
  REQUIRE(state);
  REQUIRE(write_state(s.to, *state, {1, 7}));
  CHECK(contents(s.to / "layer-1.safetensors") == contents(s.from / "layer-1.safetensors"));
  CHECK(fs::exists(s.to / "layer-2.safetensors"));
  CHECK_FALSE(fs::exists(s.to / "notes.txt"));
  CHECK_FALSE(read_state(s.folder.path() + "/missing", {1, 7}));
}

TEST_CASE("a state of another stage or iteration, or with bytes too few or too many, is refused") {
  const saved_state s;
  const auto state = *read_state(s.from, {1, 7});
  const auto code_of = [&](const payload& p, const state_name& which) {
    const auto ok = write_state(s.to, p, which);
    return ok ? std::nullopt : std::optional{ok.error().code};
  };
  CHECK(code_of(state, {1, 6}) == reason::kind::malformed);
  CHECK(code_of(state, {0, 7}) == reason::kind::malformed);
  for (std::size_t n = 0; n < state.bytes().size(); ++n)
    CHECK(code_of(first_bytes(state, n), {1, 7}) == reason::kind::malformed);
  auto longer = state.values<std::byte>();
  longer.push_back({});
  CHECK(code_of(payload{longer}, {1, 7}) == reason::kind::malformed);
  auto elsewhere = state.values<std::byte>();
  elsewhere[48] = std::byte{'/'};  // the first byte of the first file's name
  CHECK(code_of(payload{elsewhere}, {1, 7}) == reason::kind::malformed);
}

TEST_CASE("a state that is cut into parts is put together again, in their order") {
  const payload state{std::vector<std::uint8_t>{1, 2, 3, 4, 5}};
  REQUIRE(number_of_parts(state, 2) == 3);
  CHECK(number_of_parts({}, 2) == 1);
  state_parts taken;
  for (std::uint32_t k = 0; k < 3; ++k) {
    CHECK(taken.next() == k);
    // One that comes too early, or twice, is not taken.
    if (k > 0) CHECK(taken.add(part(k - 1, 3), part_of_state(state, k - 1, 2)) == false);
    if (k < 1) CHECK(taken.add(part(k + 1, 3), part_of_state(state, k + 1, 2)) == false);
    CHECK_FALSE(taken.is_complete());
    CHECK(taken.add(part(k, 3), part_of_state(state, k, 2)) == true);
  }
  REQUIRE(taken.is_complete());
  CHECK(taken.take().values<std::uint8_t>() == state.values<std::uint8_t>());
}

TEST_CASE("a join fails if the peer cannot read its state or sends inconsistent parts") {
  state_parts taken;
  CHECK_FALSE(taken.add(part(0, 0), {}));
  CHECK_FALSE(taken.add(part(0, max_state_parts + 1), {}));
  CHECK(taken.add(part(0, 3), {}) == true);
  CHECK_FALSE(taken.add(part(1, 2), {}));
}
