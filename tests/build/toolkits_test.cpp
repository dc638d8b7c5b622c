#include <catch2/catch.hpp>
#include <filesystem>
#include <regex>
#include <set>

#include "build/configured.hpp"

// A CUDA toolkit that cannot compile the device leaves it out and changes nothing else.

using namespace troupe::test;

namespace {

namespace fs = std::filesystem;

/// An nvcc, as the build sees it.
std::string nvcc(const scratch& where, const std::string& script) {
  const auto file = where.write("nvcc", "#!/bin/sh\n" + script);
  fs::permissions(file, fs::perms::owner_all);
  return file;
}

/// The commands and targets of a build without the device.
const std::set<std::string>& without_device() {
  static const auto all = [] {
    const auto off = configure("without", "-DTROUPE_CUDA=OFF");
    INFO(off.result.said);
    REQUIRE(off.result.status == 0);
    return commands_and_targets(off.folder);
  }();
  return all;
}

void check_left_out(const std::string& name, const std::string& compiler,
                    const std::string& sentence) {
  const auto made = configure(name, "-DCMAKE_CUDA_COMPILER='" + compiler + "'");
  INFO(made.result.said);
  REQUIRE(made.result.status == 0);
  CHECK(made.result.said.find("CUDA device: not built: " + sentence) != std::string::npos);
  CHECK(commands_and_targets(made.folder) == without_device());
}

constexpr auto version_12_4 = "echo 'Cuda compilation tools, release 12.4, V12.4.131'";

}  // namespace

TEST_CASE("without a toolkit the device is left out") {
  check_left_out("missing", "/nonexistent/nvcc",
                 "no toolkit was found (/nonexistent/nvcc is not there); 12.0 or newer is needed");
}

TEST_CASE("with a toolkit older than 12.0 the device is left out") {
  const scratch where;
  const auto old = nvcc(where, "echo 'Cuda compilation tools, release 11.8, V11.8.89'\n");
  check_left_out("old", old, old + " is of the toolkit 11.8; 12.0 or newer is needed");
}

TEST_CASE("with an nvcc that fails the device is left out") {
  const scratch where;
  const auto broken = nvcc(where, "echo 'nvcc: libfoo.so is missing' >&2\nexit 127\n");
  check_left_out("broken", broken, broken + " --version failed (127): nvcc: libfoo.so is missing");
}

TEST_CASE("with an nvcc that does not compile C++20 the device is left out") {
  const scratch where;
  const auto limited = nvcc(where, std::string{"[ \"$1\" = --version ] && exec "} + version_12_4 +
                                       "\necho 'nvcc fatal   : Value c++20 is not defined' >&2\n"
                                       "exit 1\n");
  check_left_out("limited", limited,
                 limited +
                     " of the toolkit 12.4 does not compile here: nvcc fatal   : Value "
                     "c++20 is not defined");
}

namespace {

/// A command without the toolkit's version, which the benchmark of the device gets.
std::string without_version(const std::string& command) {
  static const std::regex version{R"re(-DTROUPE_CUDA_TOOLKIT=\\?"[0-9.]*\\?")re"};
  return std::regex_replace(command, version, "");
}

}  // namespace

TEST_CASE("a build with a toolkit differs from one without only in the device") {
  const auto with = configure("with", "");
  INFO(with.result.said);
  REQUIRE(with.result.status == 0);
  if (with.result.said.find("CUDA device: built with the toolkit") == std::string::npos) {
    WARN("not checked: no toolkit is here");
    return;
  }
  std::set<std::string> rest, device;
  for (auto line : commands_and_targets(with.folder)) {
    bool of_the_device = false;
    for (const char* part :
         {"troupe_cuda", "gpu_plugin", "gpu/plugin", "plugin.cu", "cublas", "libnccl", "fake_nccl"})
      of_the_device |= line.find(part) != std::string::npos;
    // The module knows that it has the device beside it.
    if (const auto at = line.find("-DTROUPE_CUDA "); at != std::string::npos) line.erase(at, 14);
    line = without_version(line);
    (of_the_device ? device : rest).insert(line);
  }
  CHECK_FALSE(device.empty());
  std::set<std::string> without;
  for (const auto& line : without_device()) without.insert(without_version(line));
  for (const auto& line : without) {
    INFO("only without the toolkit: " << line);
    CHECK((rest.contains(line) || line.find("gpu_plugin") != std::string::npos ||
           line.find("gpu/plugin") != std::string::npos));
  }
  for (const auto& line : rest) {
    INFO("only with the toolkit: " << line);
    CHECK(without.contains(line));
  }
}
