#include "runtime/process/python_package.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <system_error>

namespace troupe::runtime {

namespace {

namespace fs = std::filesystem;

/// The text in quotes of the line that assigns __version__.
std::string version_of(const fs::path& init) {
  constexpr std::string_view before = "__version__ = \"";
  std::ifstream in{init};
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(before))
      return line.substr(before.size(), line.find('"', before.size()) - before.size());
  return {};
}

}  // namespace

std::optional<python_package> find_python_package() {
  std::error_code error;
  const auto program = fs::read_symlink("/proc/self/exe", error);
  if (error) return {};
  for (const char* near : {"../lib/troupe/python", "../../python"}) {
    const auto folder = (program.parent_path() / near).lexically_normal();
    const auto init = folder / "troupe/__init__.py";
    if (fs::is_regular_file(init, error)) return python_package{folder, version_of(init)};
  }
  return {};
}

std::string python_interpreter(const std::string& named) {
  if (!named.empty()) return named;
  const char* own = std::getenv("TROUPE_PYTHON");
  return own && *own ? own : "python3";
}

void add_python_package(std::vector<std::pair<std::string, std::string>>& environment) {
  const auto package = find_python_package();
  if (!package) return;
  const auto own = std::ranges::find(environment, "PYTHONPATH",
                                     [](const auto& e) { return std::string_view{e.first}; });
  const char* inherited = std::getenv("PYTHONPATH");
  // An empty entry would be the current directory.
  const auto joined = [&](const std::string& rest) {
    return rest.empty() ? package->folder.string() : package->folder.string() + ":" + rest;
  };
  if (own != environment.end())
    own->second = joined(own->second);
  else
    environment.emplace_back("PYTHONPATH", joined(inherited ? inherited : ""));
}

}  // namespace troupe::runtime
