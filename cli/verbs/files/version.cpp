#include "cli/common/version.hpp"

#include "cli/verbs/verb.hpp"
#include "gpu/profiling/profile.hpp"
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
    // Needs the driver, the plug-in and a device: the first that is missing is the reason.
    const auto gpu = gpu::free_memory(0);
    const auto why = gpu ? std::string{} : gpu.error().text;
    out.document(
        {{"version", TROUPE_VERSION},
         {"commit", build_commit()},
         {"protocol", protocol_version},
         {"journal", runtime::journal_schema_version},
         {"devices",
          {{"cpu", {{"usable", true}, {"reason", json()}}},
           {"cuda", {{"usable", gpu.has_value()}, {"reason", gpu ? json() : json(why)}}}}}});
    out.line("troupe {} (commit {})", TROUPE_VERSION, build_commit());
    out.line("protocol {}, journal {}", protocol_version, runtime::journal_schema_version);
    out.line("device cpu: usable");
    out.line("device cuda: {}", gpu ? std::string{"usable"} : "not usable: " + why);
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
