#include "runtime/process/python_package.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <system_error>

#include "runtime/host/wait.hpp"
#include "runtime/process/process.hpp"

namespace troupe::runtime {

namespace {

namespace fs = std::filesystem;

/// Reading all packages' metadata would take four times as long. A build in place of a package has
/// no folder with a version, and only a finder of its own may know it.
constexpr const char* torch_version = R"(
import os
from importlib.machinery import PathFinder
from importlib.util import find_spec
found = PathFinder.find_spec("torch") or find_spec("torch")
if found:
    folder = os.path.dirname(os.path.dirname(found.origin or "./torch/"))
    named = sorted(n for n in os.listdir(folder) if n.startswith("torch-"))
    print(os.path.splitext(named[0])[0].split("-")[1] if named else "unknown")
)";

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

std::optional<std::string> find_torch(const std::string& interpreter, const std::string& file,
                                      double limit_s) {
  process_options o;
  o.command = {interpreter, "-c", torch_version};
  o.output = file;
  std::error_code ignored;
  fs::remove(file, ignored);
  const auto started = process::start(o);
  std::optional<int> status;
  const auto ended = [&] { return (status = (*started)->poll()).has_value(); };
  const bool known = !started || wait_until(ended, limit_s, 0.005);
  std::string version;
  std::ifstream in{file};
  if (status == 0) std::getline(in, version);
  fs::remove(file, ignored);
  return known ? std::optional{version} : std::nullopt;
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
