#include "cli/output/version.hpp"

#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/options/policy_option.hpp"
#include "cli/verbs/verb.hpp"
#include "gpu/device/device_type.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/wire/journal.hpp"
#include "messages/wire/message.hpp"
#include "runtime/journal/sqlite_journal.hpp"
#include "runtime/process/python_package.hpp"

namespace troupe::cli {

namespace {

std::string& build_commit() {
  static std::string commit = "unknown";
  return commit;
}

// The entries and the file that has them.
static_assert(runtime::journal_schema_version == journal_version);

/// Versions that must agree between hosts (protocol, journal), which devices this machine can
/// compute with, and whether this program's parts in Python are there.
class version_verb final : public verb {
 public:
  void options(CLI::App&) override {}

  int run(output& out) override {
    // The driver, the plug-in and a device are needed: the first that is missing is the reason.
    json devices;
    std::vector<std::string> lines;
    for (const auto& name : device_names(&device_facts::computes)) {
      const auto free = gpu::type_of(*device_kind_of(name))->free_bytes(0);
      const auto why = free ? std::string{} : free.error().text;
      devices[name] = {{"usable", free.has_value()}, {"reason", free ? json() : json(why)}};
      lines.push_back(fmt::format("device {}: {}", name, free ? "usable" : "not usable: " + why));
    }
    const auto package = runtime::find_python_package();
    const bool policies = python_policies_object().has_value();
    out.document({{"version", TROUPE_VERSION},
                  {"commit", build_commit()},
                  {"protocol", protocol_version},
                  {"journal", runtime::journal_schema_version},
                  {"devices", devices},
                  {"python_package", package ? json(package->version) : json()},
                  {"python_package_folder", package ? json(package->folder.string()) : json()},
                  {"python_policies", policies}});
    out.line("troupe {} (commit {})", TROUPE_VERSION, build_commit());
    out.line("protocol {}, journal {}", protocol_version, runtime::journal_schema_version);
    for (const auto& line : lines) out.line("{}", line);
    out.line("python package: {}",
             package ? fmt::format("{} in {}", package->version, package->folder.string())
                     : std::string{"not found beside this program"});
    out.line("policies in python: {}", policies ? "found" : "not built");
    return exit_done;
  }
};

}  // namespace

void set_build_commit(std::string commit) {
  build_commit() = std::move(commit);
}

std::unique_ptr<verb> make_version() {
  return std::make_unique<version_verb>();
}

}  // namespace troupe::cli
