#include "cli/options/policy_option.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "planners/policy/checked_policy.hpp"
#include "planners/policy/policy_plugin.hpp"
#include "planners/policy/python_plugin.hpp"

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;
using planners::policy_plugin;

tl::unexpected<reason> bad_plugin(const std::string& file, const std::string& what) {
  return refuse(reason::kind::invalid, fmt::format("{}: {}", file, what));
}

/// The name appears in results and file names.
bool is_policy_name(std::string_view name) {
  constexpr std::size_t longest = 64;
  return !name.empty() && name.size() <= longest && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

/// Plug-ins exchange C++ objects with this program, so layouts must be the same; a wrong one would
/// corrupt memory rather than fail.
expected<void> check_headers(const std::string& file, const char* abi) {
  if (std::string_view{abi} == planners::plugin_abi) return {};
  return bad_plugin(file, fmt::format("was compiled for Troupe {}, but this program is {}: "
                                      "recompile it with this program's headers",
                                      abi, planners::plugin_abi));
}

/// A loaded object's description, if it was built for this program.
expected<const policy_plugin*> read_plugin(const std::string& file, void* library) {
  auto* const entry =
      reinterpret_cast<const policy_plugin* (*)()>(dlsym(library, planners::policy_plugin_symbol));
  if (entry == nullptr)
    return bad_plugin(file,
                      fmt::format("is not a policy plug-in: it lacks {} (use "
                                  "TROUPE_POLICY_PLUGIN of planners/policy/policy_plugin.hpp)",
                                  planners::policy_plugin_symbol));
  const auto* const plugin = entry();
  if (plugin == nullptr || plugin->format != planners::policy_plugin_format)
    return bad_plugin(file, "unsupported plug-in format");
  if (auto ok = check_headers(file, plugin->abi); !ok) return refuse(ok.error());
  return plugin;
}

expected<const policy_plugin*> open(const std::string& file) {
  std::error_code error;
  if (!fs::exists(file, error)) return bad_plugin(file, "no such file");
  // A name without a slash would be searched in system directories.
  const auto path = file.find('/') == std::string::npos ? "./" + file : file;
  // Never closed: the policy's code is in it.
  if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL))
    return read_plugin(file, library);
  const std::string why = dlerror();
  // A plug-in may need functions that this program lacks; the error names them.
  // A plug-in of another version usually lacks symbols. Lazy binding loads it far enough to read
  // its version, which is the better error.
  if (void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL))
    if (const auto plugin = read_plugin(file, library); !plugin) return refuse(plugin.error());
  return bad_plugin(file, "cannot be loaded: " + why);
}

/// A policy in Python: "mine.py", or "mine.py:Class".
struct python_file {
  std::string file, of_class;
};
std::optional<python_file> python_file_of(const std::string& word) {
  if (word.ends_with(".py")) return python_file{word, ""};
  const auto colon = word.rfind(".py:");
  if (colon == std::string::npos) return {};
  return python_file{word.substr(0, colon + 3), word.substr(colon + 4)};
}

/// The interpreter's object. Loaded once, never closed.
expected<const planners::python_plugin*> open_python(const std::string& file) {
  const auto object = python_policies_object();
  if (!object)
    return bad_plugin(file,
                      fmt::format("this program has no {}, which runs policies in Python: install "
                                  "pybind11-dev and python3-dev, and build Troupe again",
                                  planners::python_plugin_file));
  void* const library = dlopen(object->c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return bad_plugin(file, fmt::format("policies in Python cannot be loaded: {}; they need the "
                                        "library of Python (the package libpython3-dev)",
                                        dlerror()));
  auto* const entry = reinterpret_cast<const planners::python_plugin* (*)()>(
      dlsym(library, planners::python_plugin_symbol));
  const auto* const plugin = entry == nullptr ? nullptr : entry();
  if (plugin == nullptr || plugin->format != planners::python_plugin_format)
    return bad_plugin(*object, "belongs to another version of this program");
  if (auto ok = check_headers(*object, plugin->abi); !ok) return refuse(ok.error());
  return plugin;
}

/// The policy that `make` returns, with a name of its own. Every error begins with the file.
template <class Make, class Prepare>
expected<std::shared_ptr<const planners::policy>> checked(const std::string& file, Make make,
                                                          Prepare prepare) {
  try {
    const std::shared_ptr<planners::policy> made{make()};
    if (!made) return bad_plugin(file, "returns no policy");
    auto name = std::string{made->name()};
    if (!is_policy_name(name))
      return bad_plugin(file,
                        "its policy's name must have 1 to 64 characters of a-z, 0-9, _ and -");
    // Results are named by policy: two with one name could not be distinguished.
    if (planners::make_policy(name))
      return bad_plugin(file, fmt::format("its policy '{}' has the name of a built-in one", name));
    if (auto ok = prepare(*made); !ok) return refuse(ok.error());
    return std::make_shared<const planners::checked_policy>(
        made, fmt::format("{}: its policy '{}'", file, name));
  } catch (const planners::policy_failure& e) {
    return refuse(reason::kind::invalid, e.what());
  } catch (const std::exception& e) {
    return bad_plugin(file, fmt::format("its policy cannot be made: {}", e.what()));
    // The constructor is foreign code and may throw anything.
  } catch (...) {
    return bad_plugin(file, "its policy cannot be made: unknown exception");
  }
}

}  // namespace

bool is_plugin(const std::string& word) {
  return word.find('/') != std::string::npos || word.ends_with(".so") || python_file_of(word);
}

std::optional<fs::path> python_policies_object() {
  std::error_code error;
  const auto folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const auto& root : std::array{folder, folder.parent_path()}) {
    auto object = root / "lib/troupe" / planners::python_plugin_file;
    if (fs::exists(object, error)) return object;
  }
  return {};
}

expected<std::shared_ptr<const planners::policy>> load_policy_plugin(
    const std::string& word, const std::function<expected<void>(planners::policy&)>& prepare) {
  if (const auto python = python_file_of(word)) {
    std::error_code error;
    if (!fs::exists(python->file, error)) return bad_plugin(python->file, "no such file");
    const auto plugin = open_python(python->file);
    if (!plugin) return refuse(plugin.error());
    return checked(
        python->file,
        [&] { return (*plugin)->make(python->file.c_str(), python->of_class.c_str()); }, prepare);
  }
  const auto plugin = open(word);
  if (!plugin) return refuse(plugin.error());
  return checked(
      word, [&] { return (*plugin)->make(); }, prepare);
}

}  // namespace troupe::cli
