#pragma once

#include <set>
#include <string>

#include "actors/control/ledger/ledger.hpp"
#include "messages/wire/serving_leases.hpp"

namespace troupe::actors {

/// The unfinished jobs that serve a model, or lend the bubbles of their training to one: who may
/// decode and who may lend, and who may serve which name. The ledger is the orchestrator's.
class served_jobs {
 public:
  /// Remembers it if it is such a job.
  void add(const job_record& j);
  bool has(job_id id) const { return jobs_.contains(id); }

  /// May this owner's job serve its model, or lend to it? A served name belongs to the owner of the
  /// unfinished job that has it, and is served from that one's files alone.
  expected<void> may_serve(const ledger& book, const job_spec& spec,
                           const std::string& owner) const;

  /// Without its journal, epoch and sequence. Forgets jobs that have ended. A model is that of its
  /// oldest job; decoders and trainings of others with its name are left out.
  serving_leases statement(const ledger& book);

 private:
  expected<void> may_have_names(const ledger& book, const serving& asked) const;
  const job_record* owner_of(const ledger& book, const std::string& model) const;

  std::set<job_id> jobs_;
};

}  // namespace troupe::actors
