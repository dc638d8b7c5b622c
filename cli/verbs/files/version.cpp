#include "cli/common/version.hpp"

#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/verbs/verb.hpp"
#include "gpu/device/device_type.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/wire/message.hpp"
#include "runtime/journal/sqlite_journal.hpp"

namespace troupe::cli {

namespace {

std::string& build_commit() {
  static std::string commit = "unknown";
  return commit;
}

/// Versions that must agree between hosts (protocol, journal), and which devices this machine can
/// compute with.
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
    out.document({{"version", TROUPE_VERSION},
                  {"commit", build_commit()},
                  {"protocol", protocol_version},
                  {"journal", runtime::journal_schema_version},
                  {"devices", devices}});
    out.line("troupe {} (commit {})", TROUPE_VERSION, build_commit());
    out.line("protocol {}, journal {}", protocol_version, runtime::journal_schema_version);
    for (const auto& line : lines) out.line("{}", line);
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
