#include "cli/common/policy_option.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "planners/policy/checked_policy.hpp"
#include "planners/policy/policy_plugin.hpp"

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
  // Plug-ins exchange C++ objects with this program, so layouts must be the same; a wrong one would
  // corrupt memory rather than fail.
  if (std::string_view{plugin->abi} != planners::plugin_abi)
    return bad_plugin(file, fmt::format("was compiled for Troupe {}, but this program is {}: "
                                        "recompile it with this program's headers",
                                        plugin->abi, planners::plugin_abi));
  return plugin;
}

expected<const policy_plugin*> open(const std::string& file) {
  std::error_code error;
  if (!fs::exists(file, error)) return bad_plugin(file, "no such file");
  const auto path =
      fs::absolute(file)
          .string();  // a name without a slash would be searched in system directories
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

}  // namespace

bool is_plugin(const std::string& word) {
  return word.find('/') != std::string::npos || word.ends_with(".so");
}

expected<std::shared_ptr<const planners::policy>> load_policy_plugin(const std::string& file) {
  const auto plugin = open(file);
  if (!plugin) return refuse(plugin.error());
  try {
    const std::shared_ptr<const planners::policy> made{(*plugin)->make()};
    if (!made) return bad_plugin(file, "returns no policy");
    auto name = std::string{made->name()};
    if (!is_policy_name(name))
      return bad_plugin(file,
                        "its policy's name must have 1 to 64 characters of a-z, 0-9, _ and -");
    // Results are named by policy: two with one name could not be distinguished.
    if (planners::make_policy(name))
      return bad_plugin(file, fmt::format("its policy '{}' has the name of a built-in one", name));
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

}  // namespace troupe::cli
