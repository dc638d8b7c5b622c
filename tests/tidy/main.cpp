// tidy ROOT: checks a checkout against the house rules; prints "file:line: sentence" for each
// breach, and the floors of the modules.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tidy/floors.hpp"
#include "tidy/lists.hpp"
#include "tidy/rules.hpp"
#include "tidy/tree.hpp"

namespace fs = std::filesystem;
using namespace troupe::tidy;

namespace {

std::string read_file(const fs::path& p) {
  std::ifstream in{p, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

std::vector<std::string> files_below(const fs::path& root) {
  std::vector<std::string> paths;
  for (fs::recursive_directory_iterator it{root}, end; it != end; ++it) {
    const auto name = it->path().filename().string();
    if (it->is_directory() && (name.starts_with('.') || name == "build" || name == "out"))
      it.disable_recursion_pending();
    else if (it->is_regular_file())
      paths.push_back(fs::relative(it->path(), root).string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool is_checked(const fs::path& p) {
  for (const auto* extension : {".md", ".hpp", ".cpp", ".cu", ".cmake", ".py", ".js"})
    if (p.extension() == extension) return true;
  return p.filename() == "CMakeLists.txt";
}

}  // namespace

int main(int argc, char** argv) {
  const fs::path root = argc > 1 ? argv[1] : ".";
  checkout c;
  c.exists = [&](const std::string& path) { return fs::exists(root / path); };
  c.dev_commands = read_dev_commands(read_source("dev", read_file(root / "dev")));
  c.verbs = read_verbs(read_source("verbs.def", read_file(root / "cli/verbs/verbs.def")));
  const auto* const policies = "planners/policy/policies.def";
  c.policies = read_policies(read_source(policies, read_file(root / policies)));
  std::vector<source> files;
  for (const auto& path : files_below(root))
    if (is_checked(path)) files.push_back(read_source(path, read_file(root / path)));
  std::size_t findings = 0;
  const auto report = [&](const std::vector<finding>& found) {
    findings += found.size();
    for (const auto& f : found) std::printf("%s\n", f.text().c_str());
  };
  for (const auto& s : files) report(check(s, c));
  report(check_components(files));
  report(check_folders(files));
  report(check_lists(
      [&](const std::string& path) { return read_source(path, read_file(root / path)); }));
  std::printf("%s", text_of_floors().c_str());
  std::printf("tidy: %zu files, %zu findings\n", files.size(), findings);
  return findings == 0 && !files.empty() ? 0 : 1;
}
