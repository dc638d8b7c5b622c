#include "cli/connection/controller_connection.hpp"
#include "cli/verbs/verb.hpp"
#include "formats/parse/reader.hpp"

namespace troupe::cli {

namespace {

/// `drain` and `undrain`.
class drain_verb final : public verb {
 public:
  explicit drain_verb(bool drained) { wish_.drained = drained; }

  void options(CLI::App& app) override {
    app.add_option("NODE", wish_.nodes, "Names of nodes")->required();
    if (wish_.drained)
      app.add_flag("--stop", wish_.stop,
                   "Stop the jobs that run there, with their grace, and queue them again (default: "
                   "they go on)");
    remote_.options(app);
  }

  int run(output& out) override {
    const auto reply = remote_.ask<drain_reply>(wish_);
    if (!reply) return out.failure(reply.error());
    // The controller knows the nodes that there are; a hint needs them all, so they are asked for
    // only then.
    if (!reply->done && reply->why.code == reason::kind::unknown) return unknown_name(out, *reply);
    out.document({{"nodes", wish_.nodes},
                  {"drained", wish_.drained},
                  {"done", reply->done},
                  {"jobs", reply->jobs},
                  {"reason", reply->why.text}});
    if (!reply->done) return out.failure(reply->why);
    for (const auto& name : wish_.nodes)
      out.line("node {} {}", name, wish_.drained ? "gets no new work" : "gets work again");
    for (const auto id : reply->jobs)
      out.line("job {} {}", id, wish_.stop ? "is stopped and queued again" : "still runs there");
    return exit_done;
  }

 private:
  /// The controller's sentence, with the name that was probably meant.
  int unknown_name(const output& out, const drain_reply& reply) {
    std::vector<std::string> known;
    if (const auto all = remote_.ask<query_reply>(query_jobs{0, 0}))
      for (const auto& n : all->nodes)
        if (!n.removed.value_or(false)) known.push_back(n.name);
    for (const auto& name : wish_.nodes)
      if (!known.empty() && std::ranges::find(known, name) == known.end())
        return out.bad(reply.why.text + formats::hint(name, known));
    return out.bad(reply.why);
  }

  drain_nodes wish_;
  remote remote_;
};

}  // namespace

std::unique_ptr<verb> make_drain() {
  return std::make_unique<drain_verb>(true);
}

std::unique_ptr<verb> make_undrain() {
  return std::make_unique<drain_verb>(false);
}

}  // namespace troupe::cli
