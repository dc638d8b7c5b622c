#include <map>

#include "tidy/rules.hpp"

namespace troupe::tidy {

// More neighbours than that, and nobody knows which of them a file may use.
std::vector<finding> check_folders(const std::vector<std::string>& paths) {
  constexpr std::size_t max_files = 30;
  std::map<std::string, std::size_t> files;
  for (const auto& path : paths)
    for (const auto* suffix : {".hpp", ".cpp", ".cu", ".py", ".js", ".mjs", ".sh"})
      if (path.ends_with(suffix)) ++files[path.substr(0, path.rfind('/'))];
  std::vector<finding> out;
  for (const auto& [folder, n] : files)
    if (n > max_files)
      out.push_back({folder, 1,
                     "has " + std::to_string(n) + " files of code; " + std::to_string(max_files) +
                         " are allowed: what belongs together gets a folder"});
  return out;
}

}  // namespace troupe::tidy
