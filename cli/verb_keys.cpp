#include "cli/verb.hpp"
#include "configs/load.hpp"
#include "runtime/keys.hpp"

namespace troupe::cli {

namespace {

class keys_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.require_subcommand(1);
    auto* make = app.add_subcommand(
        "make", "Make a pair of keys for every host of a cluster, and one for its clients");
    make->add_option("DIR", directory_, "Where the keys go; pairs that are there stay")->required();
    make->add_option("--cluster", cluster_, "A cluster's file")->required();
  }

  int run(output& out) override {
    const auto c = configs::load_cluster(cluster_);
    if (!c) return out.bad(c.error());
    const auto names = runtime::key_names(*c);
    const auto made = runtime::make_keys(directory_, names);
    if (!made) return out.bad(made.error());
    out.document({{"directory", directory_},
                  {"cluster", c->name},
                  {"made", *made},
                  {"kept", names.size() - *made},
                  {"names", names}});
    out.line("{}: {} pairs made, {} kept.", directory_, *made, names.size() - *made);
    out.line(
        "Every host gets `authorized` and its own NAME.key, and no other host's; clients get "
        "{}.key.",
        runtime::client_key_name);
    return exit_done;
  }

 private:
  std::string directory_, cluster_;
};

}  // namespace

std::unique_ptr<verb> make_keys() {
  return std::make_unique<keys_verb>();
}

}  // namespace troupe::cli
