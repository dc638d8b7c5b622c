#include <algorithm>
#include <map>

#include "cli/verbs/verb.hpp"
#include "formats/load/load.hpp"
#include "runtime/zeromq/keys.hpp"

namespace troupe::cli {

namespace {

/// Key pairs for the encrypted connections of hosts and users. Pairs that exist stay, so that a
/// cluster can grow.
class keys_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.require_subcommand(1);
    auto* make = app.add_subcommand(
        "make", "Generate a key pair for every host of a cluster and for its users");
    make->add_option("DIR", directory_, "Directory for the keys; existing pairs are kept")
        ->required();
    make->add_option("--cluster", cluster_, "Cluster file")->required();
    make->add_option("--client", clients_, "User who may submit jobs and manage their own");
    make->add_option("--operator", operators_, "User who may manage all jobs");
  }

  int run(output& out) override {
    const auto c = formats::load_cluster(cluster_);
    if (!c) return out.bad(c.error());
    auto names = runtime::key_names(*c);
    std::map<std::string, runtime::key_role> people;
    for (const auto& name : clients_) people[name] = runtime::key_role::client;
    for (const auto& name : operators_)
      // The role is written into `authorized`, once for each name.
      if (!people.try_emplace(name, runtime::key_role::operator_).second)
        return out.bad(fmt::format("'{}' cannot be both a client and an operator", name));
    const auto made = runtime::make_keys(directory_, names, people);
    if (!made)  // a full disk is no bad usage
      return made.error().code == reason::kind::unavailable ? out.failure(made.error())
                                                            : out.bad(made.error());
    for (const auto& [name, role] : people)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    out.document({{"directory", directory_},
                  {"cluster", c->name},
                  {"made", *made},
                  {"kept", names.size() - *made},
                  {"names", names}});
    out.line("{}: {} key pairs created, {} kept.", directory_, *made, names.size() - *made);
    // A host that had another's key could pass for it.
    out.line("Copy `authorized` and NAME.key to each host, and no other key.");
    out.line(
        "Users get `authorized` and their own NAME.key: {}.key may manage its own jobs, {}.key all "
        "jobs.",
        runtime::client_key_name, runtime::operator_key_name);
    return exit_done;
  }

 private:
  std::string directory_, cluster_;
  std::vector<std::string> clients_, operators_;
};

}  // namespace

std::unique_ptr<verb> make_keys() {
  return std::make_unique<keys_verb>();
}

}  // namespace troupe::cli
