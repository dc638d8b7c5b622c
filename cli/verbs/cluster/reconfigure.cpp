#include "cli/connection/controller_connection.hpp"
#include "cli/verbs/verb.hpp"
#include "formats/load/load.hpp"

namespace troupe::cli {

namespace {

/// Changes a running cluster to what its edited file has: nodes, datacenters and links that were
/// added, removed or changed.
class reconfigure_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("CLUSTER", file_, "Cluster file as it is now")->required();
    remote_.options(app);
  }

  int run(output& out) override {
    auto c = formats::load_cluster(file_);
    if (!c) return out.bad(c.error());
    // The whole file is sent, not a difference: the controller compares it with what it has, and
    // journals the result.
    const auto reply = remote_.ask<reconfigure_reply>(reconfigure{0, std::move(*c)});
    if (!reply) return out.failure(reply.error());
    const auto& what = reply->what;
    out.document({{"changed_cluster", reply->done},
                  {"added", what.added},
                  {"removed", what.removed},
                  {"changed", what.changed},
                  {"stopping", reply->stopping},
                  {"reason", reply->why.text}});
    if (!reply->done) return out.failure(reply->why);
    for (const auto& name : what.added) out.line("added    {}", name);
    for (const auto& name : what.removed) out.line("removed  {}", name);
    for (const auto& text : what.changed) out.line("changed  {}", text);
    for (const auto id : reply->stopping)
      out.line("job {} is on a removed node: it is stopped and queued again", id);
    if (what == cluster_difference{}) out.line("The cluster is as in {} already.", file_);
    return exit_done;
  }

 private:
  std::string file_;
  remote remote_;
};

}  // namespace

std::unique_ptr<verb> make_reconfigure() {
  return std::make_unique<reconfigure_verb>();
}

}  // namespace troupe::cli
