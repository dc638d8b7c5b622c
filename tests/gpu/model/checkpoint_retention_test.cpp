#include "gpu/model/checkpoint_retention.hpp"

#include <sys/stat.h>

#include <catch2/catch.hpp>

#include <atomic>
#include <fstream>
#include <set>
#include <thread>

#include "gpu/model/checkpoint.hpp"
#include "gpu/pipeline.hpp"
#include "harness/files.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

namespace fs = std::filesystem;

namespace {

void make_checkpoint(const fs::path& root, std::uint64_t iteration, bool complete = true) {
  const auto directory = checkpoint_directory(root, iteration);
  fs::create_directories(directory);
  std::ofstream{directory / "layers-00000-00002.safetensors"} << "stage";
  if (complete) std::ofstream{directory / checkpoint_index} << "{}";
}

std::set<std::uint64_t> folders_in(const fs::path& root) {
  std::set<std::uint64_t> found;
  for (const auto& c : checkpoints_in(root)) found.insert(c.iteration);
  return found;
}

}  // namespace

TEST_CASE("the newest complete checkpoints are kept, and older ones and incomplete ones removed") {
  const auto root = fresh_path("retention");
  for (const auto i : {10, 20, 30, 40}) make_checkpoint(root, i);
  make_checkpoint(root, 15, false);
  make_checkpoint(root, 35, false);
  make_checkpoint(root, 50, false);  // of a stage that is ahead
  fs::create_directories(root / "iteration-x");
  std::ofstream{root / "curve.csv"} << "iteration";
  remove_old_checkpoints(root, 40, {.newest = 2});
  CHECK(folders_in(root) == std::set<std::uint64_t>{30, 35, 40, 50});
  remove_old_checkpoints(root, 40, {.newest = 1});
  CHECK(folders_in(root) == std::set<std::uint64_t>{40, 50});
  remove_old_checkpoints(root, 40, {.newest = 1});
  CHECK(newest_checkpoint(root)->iteration == 40);
  CHECK(fs::exists(root / "iteration-x"));
  CHECK(fs::exists(root / "curve.csv"));
  remove_old_checkpoints(root / "nowhere", 40, {.newest = 1});
}

TEST_CASE("the best checkpoint is kept beside the newest, and is named in a file") {
  const auto root = fresh_path("retention-of-the-best");
  for (const auto i : {10, 20, 30, 40}) make_checkpoint(root, i);
  const auto none = read_best(root);
  REQUIRE(none);
  CHECK(!*none);
  REQUIRE(write_best(root, {20, 1.25}));
  const auto best = read_best(root);
  REQUIRE(best);
  REQUIRE(*best);
  CHECK((*best)->iteration == 20);
  CHECK((*best)->loss == 1.25);
  remove_old_checkpoints(root, 40, {.newest = 1, .best = 20});
  CHECK(folders_in(root) == std::set<std::uint64_t>{20, 40});
  remove_old_checkpoints(root, 40, {.newest = 1, .best = 30});
  CHECK(folders_in(root) == std::set<std::uint64_t>{40});
  std::ofstream{root / "best.json"} << R"({"iteration": "x"})";
  const auto damaged = read_best(root);
  REQUIRE(!damaged);
  CHECK(damaged.error().text.find("expected the numbers iteration and loss") != std::string::npos);
}

TEST_CASE("each n-th checkpoint stays, complete ones alone") {
  const auto root = fresh_path("retention-of-each");
  for (const std::uint64_t i : {0, 10, 20, 30, 40, 50, 60, 70}) make_checkpoint(root, i, i != 60);
  remove_old_checkpoints(root, 70, {.newest = 1, .each = 20});
  CHECK(folders_in(root) == std::set<std::uint64_t>{0, 20, 40, 70});
  make_checkpoint(root, 80);
  remove_old_checkpoints(root, 80, {.newest = 1, .each = 40});
  CHECK(folders_in(root) == std::set<std::uint64_t>{0, 40, 80});
}

// As a training that saves in each iteration, keeps few, and is exported from time to time.
TEST_CASE("a reader beside a remover reads what it has opened, 1,000 times") {
  const auto m = small_model();
  const auto root = fresh_path("retention-raced");
  pipeline p{devices()[0], m, {12}};
  const auto first = fresh_path("retention-raced-first");
  p.save(checkpoint_directory(first, 0).string());
  REQUIRE(write_index(checkpoint_directory(first, 0), m, 0, {stage_file(p.specs[0])}));
  const auto parameters = parameters_of(m);
  constexpr std::uint64_t rounds = 1000;
  std::atomic<bool> over = false;
  std::uint64_t opened = 0, gone = 0;
  std::string wrong;
  std::thread reader{[&] {
    while (!over) {
      const auto newest = newest_checkpoint(root);
      const auto from =
          newest ? checkpoint::open(newest->directory) : refuse(reason::kind::unknown, "none");
      if (!from) {  // it went before it was opened
        ++gone;
        continue;
      }
      ++opened;
      for (const auto& one : parameters) {
        std::vector<float> weights(one.values()), moments(weights);
        if (auto ok = from->read(one, weights, moments, moments); !ok) wrong = ok.error().text;
      }
    }
  }};
  for (std::uint64_t i = 1; i <= rounds; ++i) {
    const auto to = checkpoint_directory(root, i);
    fs::create_directories(to);
    for (const auto& e : fs::directory_iterator{checkpoint_directory(first, 0)})
      if (e.path().filename() != checkpoint_index) fs::copy_file(e, to / e.path().filename());
    fs::copy_file(checkpoint_directory(first, 0) / checkpoint_index, to / "index.new");
    fs::rename(to / "index.new", to / checkpoint_index);
    remove_old_checkpoints(root, i, {.newest = 2, .each = 100});
    CHECK(newest_checkpoint(root)->iteration == i);
  }
  over = true;
  reader.join();
  CHECK(wrong.empty());
  CHECK(opened > 0);
  WARN("opened " << opened << " times, gone before " << gone << " times");
  remove_old_checkpoints(root, rounds, {.newest = 2, .each = 100});
  std::set<std::uint64_t> promised{rounds - 1};
  for (std::uint64_t i = 100; i <= rounds; i += 100) promised.insert(i);
  CHECK(folders_in(root) == promised);
}

TEST_CASE("files that no training wrote stay when their checkpoint is removed") {
  const auto root = fresh_path("retention-of-others");
  make_checkpoint(root, 1);
  make_checkpoint(root, 2);
  const auto old = checkpoint_directory(root, 1);
  std::ofstream{old / "notes.txt"} << "mine";
  remove_old_checkpoints(root, 2, {.newest = 1});
  CHECK(fs::exists(old / "notes.txt"));
  CHECK_FALSE(fs::exists(old / checkpoint_index));
  CHECK_FALSE(fs::exists(old / "layers-00000-00002.safetensors"));
}

TEST_CASE("a checkpoint that is read stays until its reader is done, and then goes with the next") {
  const auto m = small_model();
  const auto root = fresh_path("retention-of-read");
  pipeline p{devices()[0], m, {12}};
  p.save(checkpoint_directory(root, 0).string());
  REQUIRE(write_index(checkpoint_directory(root, 0), m, 0, {stage_file(p.specs[0])}));
  make_checkpoint(root, 1);
  {
    const auto reader = checkpoint::open(checkpoint_directory(root, 0));
    REQUIRE(reader);
    remove_old_checkpoints(root, 1, {.newest = 1});
    CHECK(folders_in(root) == std::set<std::uint64_t>{0, 1});
    CHECK(newest_checkpoint(root)->iteration == 1);
  }
  remove_old_checkpoints(root, 1, {.newest = 1});
  CHECK(folders_in(root) == std::set<std::uint64_t>{1});
  CHECK_FALSE(checkpoint::open(checkpoint_directory(root, 0)));
}

TEST_CASE("an index that is a fifo, a device or a directory holds nobody up") {
  const auto root = fresh_path("retention-fifo");
  make_checkpoint(root, 10, false);
  make_checkpoint(root, 20);
  const auto index = checkpoint_directory(root, 10) / checkpoint_index;
  REQUIRE(::mkfifo(index.c_str(), 0600) == 0);
  const auto refused = [&] {
    const auto c = checkpoint::open(checkpoint_directory(root, 10));
    return c ? std::string{} : c.error().text;
  };
  CHECK(refused() == index.string() + ": is a fifo, expected a regular file");
  remove_old_checkpoints(root, 20, {.newest = 1});
  CHECK(folders_in(root) == std::set<std::uint64_t>{20});
  make_checkpoint(root, 10, false);
  fs::create_symlink("/dev/zero", index);
  CHECK(refused() == index.string() + ": is a device, expected a regular file");
  fs::remove(index);
  fs::create_directory(index);
  CHECK(refused() == index.string() + ": is a directory, expected a regular file");
}
