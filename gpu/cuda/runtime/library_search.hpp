#pragma once

#include <dlfcn.h>
#include <glob.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

// Where libraries that the shared object loads on demand are looked for.

namespace troupe::gpu::cuda {

/// Lists folders, separated by colons, that are searched first.
constexpr const char* library_folders_variable = "TROUPE_CUDA_LIBRARIES";

/// A host's folders with CUDA libraries. PyTorch's wheels bring their own: nvidia/*/lib below the
/// folders for Python modules.
inline std::vector<std::string> library_folder_patterns(const std::string& root = "") {
  std::vector<std::string> patterns;
  for (const auto* folder : {"/lib64", "/targets/x86_64-linux/lib", "/lib"})
    for (const auto* toolkit : {"/usr/local/cuda", "/usr/local/cuda-*"})
      patterns.push_back(root + toolkit + folder);
  std::vector<std::string> pythons;
  for (const auto* name : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const auto* prefix = std::getenv(name)) pythons.emplace_back(prefix);
  if (const auto* home = std::getenv("HOME")) pythons.push_back(std::string{home} + "/.local");
  pythons.push_back(root + "/usr/local");
  pythons.push_back(root + "/usr");
  for (const auto& prefix : pythons)
    for (const auto* modules : {"/site-packages", "/dist-packages"})
      patterns.push_back(prefix + "/lib/python3*" + modules + "/nvidia/*/lib");
  return patterns;
}

/// A loaded library, or why there is none.
struct found_library {
  void* library = nullptr;
  std::string file;  // as it was loaded
  std::string why;
};

/// Loads the first of `names` that can be loaded: from the folders of TROUPE_CUDA_LIBRARIES, the
/// system loader's path, and the folders that `patterns` match, newest versions first.
inline found_library find_library(
    const std::vector<std::string>& names,
    const std::vector<std::string>& patterns = library_folder_patterns()) {
  found_library found;
  std::string unusable;  // a file that is there and cannot be loaded
  const auto load = [&](const std::string& file, bool must_exist) {
    if (must_exist && access(file.c_str(), R_OK) != 0) return false;
    found.library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (found.library) found.file = file;
    if (!found.library && must_exist && unusable.empty()) unusable = dlerror();
    return found.library != nullptr;
  };
  for (const auto& name : names) {
    const auto* listed = std::getenv(library_folders_variable);
    for (std::string rest = listed ? listed : ""; !rest.empty();) {
      const auto end = rest.find(':');
      const auto folder = rest.substr(0, end);
      rest = end == std::string::npos ? "" : rest.substr(end + 1);
      if (!folder.empty() && load(folder + "/" + name, true)) return found;
    }
    if (load(name, false)) return found;
    for (const auto& pattern : patterns) {
      glob_t matches{};
      const bool any = glob((pattern + "/" + name).c_str(), 0, nullptr, &matches) == 0;
      bool loaded = false;
      for (auto i = any ? matches.gl_pathc : 0; i-- > 0 && !loaded;)
        loaded = load(matches.gl_pathv[i], true);
      globfree(&matches);
      if (loaded) return found;
    }
  }
  for (const auto& name : names) found.why += (found.why.empty() ? "" : " or ") + name;
  found.why += unusable.empty()
                   ? std::string{" was not found on the loader's path, in /usr/local/cuda* or in "
                                 "PyTorch's packages; set "} +
                         library_folders_variable + " to its folder"
                   : " cannot be loaded: " + unusable;
  return found;
}

}  // namespace troupe::gpu::cuda
