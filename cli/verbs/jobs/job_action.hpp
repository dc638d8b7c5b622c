#pragma once

#include <optional>
#include <string>

#include "cli/connection/job_selection.hpp"
#include "cli/verbs/verb.hpp"

namespace troupe::cli {

/// The outcome of a verb for one job. Null document: it was not done, and only the reason is known.
struct job_result {
  json document;
  std::string line;             // for people, if it was done
  std::optional<reason> why{};  // it was not
};

/// A verb that acts on every chosen job. The document of one number is the job's own, that of
/// several, of a range and of a selection is {"jobs": [...]}, however many there are. The exit
/// status is 1 if anything was not done.
class job_action final : public verb {
 public:
  using action = job_result (*)(remote&, job_id);
  explicit job_action(action act) : act_{act} {}

  void options(CLI::App& app) override {
    chosen_.options(app);
    remote_.options(app);
  }
  int run(output& out) override;

 private:
  action act_;
  chosen_jobs chosen_;
  remote remote_;
};

}  // namespace troupe::cli
