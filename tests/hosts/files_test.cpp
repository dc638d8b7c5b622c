#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/file.h>

#include <fmt/format.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "actors/training/device/socket_folder.hpp"
#include "actors/training/trainer/curve_file.hpp"
#include "gpu/device/clock.hpp"
#include "gpu/model/checkpoint.hpp"
#include "gpu/model/checkpoint_retention.hpp"
#include "gpu/model/layer_index.hpp"
#include "gpu/model/safetensors.hpp"
#include "harness/files.hpp"
#include "text/json/json_file.hpp"

// Files of jobs, and of programs beside them.

using namespace troupe;
using namespace troupe::actors;
namespace fs = std::filesystem;

namespace {

/// A program's layer with this tensor, as its worker has written it.
void write_layer(const fs::path& file, const std::string& tensor, std::uint64_t iteration) {
  fs::create_directories(file.parent_path());
  const std::vector<float> values{1, 2};
  REQUIRE(gpu::write_safetensors(file, {{tensor, {2}, values}},
                                 {{"format", "pt"}, {"iteration", std::to_string(iteration)}}));
}

iteration_record iteration_with(std::uint64_t number, const std::vector<named_value>& values) {
  iteration_record i;
  i.iteration = number;
  i.loss = 2.5;
  i.program.emplace();
  i.program->values = values;
  return i;
}

}  // namespace

TEST_CASE("a layer's file is known by its whole name") {
  CHECK(gpu::saved_layer_of("layer-00007-lease-3.safetensors")->layer == 7);
  CHECK(gpu::saved_layer_of("layer-00007-lease-3.safetensors")->lease == 3);
  CHECK(gpu::saved_layer_of("layer-00007.safetensors")->lease == 0);
  for (const char* other :
       {"layer-\xff-lease-3.safetensors", "layer-7-lease-3.safetensors", "layer-.safetensors",
        "layer-00007-lease-.safetensors", "layer-00007-lease-3x.safetensors", "layer-00007-x",
        "layer-00007-lease-99999999999999999999999.safetensors", "layers-00000-00002.safetensors",
        "layer-0000", "", "layer-00007-lease-3.safetensors.42.part"})
    CHECK_FALSE(gpu::saved_layer_of(other));
}

TEST_CASE(
    "files of other names beside a program's layers, whatever these are, are not of its index") {
  const auto folder = test::fresh_path("odd-names");
  write_layer(folder / "layer-00000-lease-3.safetensors", "0.weight", 4);
  write_layer(folder / "layer-00001-lease-3.safetensors", "1.weight", 4);
  write_layer(folder / "layer-00001-lease-2.safetensors", "old", 4);
  for (const char* odd : {"layer-\xff-lease-3.safetensors", "layer-\xc3(-lease-3.safetensors",
                          "layer-..-lease-3.safetensors", "layer-0000x-lease-3.safetensors",
                          "layer-00000-lease-3.safetensors\n"})
    std::ofstream{folder / odd} << "anything";
  fs::create_directory(folder / "layer-x-lease-3.safetensors");
  REQUIRE(gpu::write_layer_index(folder, 3, 4));
  const auto index = gpu::read_json_file(folder / gpu::checkpoint_index, 1 << 20);
  REQUIRE(index);
  CHECK((*index)["weight_map"] == nlohmann::json{{"0.weight", "layer-00000-lease-3.safetensors"},
                                                 {"1.weight", "layer-00001-lease-3.safetensors"}});
  const auto none = gpu::write_layer_index(folder / "nowhere", 3, 4);
  REQUIRE_FALSE(none);
  CHECK(none.error().text.find("cannot be read") != std::string::npos);
  // A directory or a fifo in a layer's place is a sentence.
  fs::create_directory(folder / "layer-00002-lease-3.safetensors");
  CHECK_FALSE(gpu::write_layer_index(folder, 3, 4));
}

TEST_CASE("a document with bytes that are not UTF-8 is written all the same") {
  CHECK(gpu::text_of({{"name", "a\xff"}}).find("\xef\xbf\xbd") != std::string::npos);
  const auto file = test::fresh_path("not-utf8") / "weights.safetensors";
  fs::create_directories(file.parent_path());
  const std::vector<float> values{1};
  CHECK(gpu::write_safetensors(file, {{"w\xff", {1}, values}}, {}));
}

namespace {

/// Processor time of reading an index and a header, and of writing both, with so many names.
double seconds_with(int names) {
  std::string text = R"({"metadata": {"iteration": "2"}, "weight_map": {)";
  for (int i = 0; i < names; ++i)
    text += fmt::format("{}\"layer.{}.weight\": \"layer-00000.safetensors\"", i ? "," : "", i);
  text += "}}";
  const auto folder = test::fresh_path("large-index");
  fs::create_directories(folder);
  std::ofstream{folder / gpu::checkpoint_index} << text;
  const std::vector<float> one{1};
  std::vector<gpu::tensor_to_store> tensors;
  for (int i = 0; i < names; ++i) tensors.push_back({fmt::format("{}.weight", i), {1}, one});
  const double began_s = gpu::thread_cpu_s();
  CHECK(gpu::checkpoint_files(folder)->size() == 1);
  CHECK(gpu::write_safetensors(folder / "layer-00000-lease-3.safetensors", tensors,
                               {{"iteration", "2"}}));
  CHECK(gpu::write_layer_index(folder, 3, 2));
  return gpu::thread_cpu_s() - began_s;
}

}  // namespace

TEST_CASE("an index or a header of many names takes time in proportion to its size") {
  const double few_s = seconds_with(4'000);
  // Ten times as many; where it is quadratic, a hundred times as long.
  CHECK(seconds_with(40'000) < 40 * few_s);
}

TEST_CASE(
    "files of a program's layers go with their checkpoint, of any lease and unfinished ones") {
  const auto root = test::fresh_path("program-retention");
  for (const std::uint64_t i : {2, 4, 6}) {
    const auto folder = gpu::checkpoint_directory(root, i);
    fs::create_directories(folder);
    for (const char* name :
         {"layer-00000-lease-3.safetensors", "layer-00001-lease-9.safetensors",
          "layer-00002.safetensors", "layer-00001-lease-3.safetensors.4242.part",
          "layers-00000-00001-lease-3.safetensors.new", "model.safetensors.index.json.new"})
      std::ofstream{folder / name} << "x";
    std::ofstream{folder / gpu::checkpoint_index} << "{}";
  }
  const auto newest = gpu::checkpoint_directory(root, 6);
  std::ofstream{gpu::checkpoint_directory(root, 2) / "notes.part"} << "a user's";
  gpu::remove_old_checkpoints(root, 6, {.newest = 1});
  CHECK_FALSE(fs::exists(gpu::checkpoint_directory(root, 4)));
  std::size_t left = 0;
  for (const auto& entry : fs::directory_iterator{gpu::checkpoint_directory(root, 2)}) {
    CHECK(entry.path().filename() == "notes.part");
    ++left;
  }
  CHECK(left == 1);
  CHECK(fs::exists(newest / "layer-00000-lease-3.safetensors"));
}

TEST_CASE("every column of a curve has a name of its own") {
  const auto folder = test::fresh_path("columns");
  fs::create_directories(folder);
  curve_file curve{folder.string(), 3};
  REQUIRE(curve.resume(0, 0));
  curve.add(iteration_with(1, {{"loss", 7, 1}, {"", 8, 1}, {"seconds", 9, 1}, {"accuracy", 1, 2}}));
  REQUIRE(curve.write());
  std::ifstream in{folder / "curve.csv"};
  std::string header, line;
  std::getline(in, header);
  std::getline(in, line);
  CHECK(header ==
        "iteration,end_unix_s,seconds,loss,gradient_norm,busy_s,value_loss,value_,value_seconds,"
        "accuracy");
  CHECK(line.ends_with(",7,8,9,0.5"));
  // One of an earlier release that has a name twice is mended where the training resumes.
  std::ofstream{folder / "curve.csv"}
      << "iteration,end_unix_s,seconds,loss,gradient_norm,busy_s,loss,loss\n1,1,1,2.5,1,1,7,8\n";
  curve_file later{folder.string(), 4};
  REQUIRE(later.resume(1, 0));
  std::ifstream again{folder / "curve.csv"};
  std::getline(again, header);
  CHECK(header.ends_with(",busy_s,value_loss,value_loss_"));
}

TEST_CASE("a node's start removes the folders of workers whose node was killed, and no others") {
  const auto temporary = test::fresh_path("sockets");
  fs::create_directories(temporary);
  const char* before = std::getenv("TMPDIR");
  const std::string usual = before ? before : "";
  ::setenv("TMPDIR", temporary.c_str(), 1);
  {
    const auto mine = socket_folder::make();
    REQUIRE(mine);
    fs::create_directories(temporary / "troupe-worker-killed");
    std::ofstream{temporary / "troupe-worker-killed/lock"} << "";
    std::ofstream{temporary / "troupe-worker-killed/s"} << "";
    fs::create_directories(temporary / "troupe-worker-without");
    fs::create_directories(temporary / "others");
    std::ofstream{temporary / "others/lock"} << "";
    fs::create_directory_symlink(temporary / "others", temporary / "troupe-worker-link");
    remove_left_socket_folders();
    CHECK(fs::exists(mine->path()));
    CHECK_FALSE(fs::exists(temporary / "troupe-worker-killed"));
    CHECK(fs::exists(temporary / "troupe-worker-without"));
    CHECK(fs::exists(temporary / "others/lock"));
  }
  CHECK(std::ranges::distance(fs::directory_iterator{temporary}, fs::directory_iterator{}) == 3);
  usual.empty() ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", usual.c_str(), 1);
}
