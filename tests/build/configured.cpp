#include "build/configured.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/source_dir.hpp"

namespace troupe::test {

namespace fs = std::filesystem;

configured configure(const std::string& name, const std::string& arguments, bool all,
                     const std::string& environment) {
  // The folder has the same path each time, because a compiler's cache goes by paths.
  const auto folder = fs::path{TROUPE_BUILD} / "configured" / name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  // Drops the environment that this test was run with.
  const auto command = "unset CUDACXX CUDAHOSTCXX CUDAARCHS PKG_CONFIG_PATH; " + environment +
                       " '" TROUPE_CMAKE "' -S '" + source_dir() + "' -B '" + folder.string() +
                       "' -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O2 " +
                       (all ? "" : "-DTROUPE_ONLY=gpu ") + arguments;
  return {folder.string(), run(command)};
}

configured configure_hidden(const std::string& name, bool all) {
  const auto where = fs::path{TROUPE_BUILD} / "configured" / (name + ".system");
  fs::remove_all(where);
  // pkg-config knows what is in this folder, and nothing else.
  fs::create_directories(where / "modules");
  for (const std::string module : {"libpcre2-8", "libutf8proc"}) {
    auto found = run("pkg-config --variable=pcfiledir " + module);
    REQUIRE(found.status == 0);
    found.said.pop_back();
    fs::create_symlink(found.said + "/" + module + ".pc", where / "modules" / (module + ".pc"));
  }
  // CMake looks for headers and libraries beside the folders of programs, too: here is nothing
  // beside them.
  fs::create_directory_symlink("/usr/bin", where / "programs");
  return configure(name, "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF " TROUPE_KNOWN, all,
                   "PATH='" + (where / "programs").string() + "' PKG_CONFIG_LIBDIR='" +
                       (where / "modules").string() + "'");
}

std::set<std::string> commands_and_targets(const std::string& folder) {
  std::set<std::string> all;
  const auto add = [&](std::string line) {
    for (std::size_t at; (at = line.find(folder)) != std::string::npos;)
      line.replace(at, folder.size(), "BUILD");
    all.insert(line);
  };
  for (const auto& unit : nlohmann::json::parse(read_file(folder + "/compile_commands.json")))
    add(unit.at("command").get<std::string>());
  const auto targets = run("ninja -C '" + folder + "' -t targets all");
  REQUIRE(targets.status == 0);
  std::istringstream lines{targets.said};
  for (std::string line; std::getline(lines, line);)
    // Not files of CMake itself, on which the next configuration depends.
    if (!line.starts_with("/") && !line.starts_with("CMakeFiles/")) add(line);
  return all;
}

}  // namespace troupe::test
