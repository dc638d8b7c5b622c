#include <algorithm>
#include <optional>
#include <utility>

#include "actors/control/leases/desired_work.hpp"
#include "actors/control/leases/lease_manager.hpp"
#include "actors/control/ledger/progress_report.hpp"
#include "messages/base/find_in.hpp"
#include "messages/base/invariant.hpp"

// The lease manager's part about what programs report while they run: how far they are, and what
// they have saved.

namespace troupe::actors {

/// A program's $TROUPE_REPORT so far.
void lease_manager::report_progress(const lease_record& l, const part_report& r) {
  const auto& j = *records_.book().job(l.granted.job);
  if (!(r.program && r.program->iteration) && r.iterations == 0) return;
  auto p = progress_of(l, j.progress.iterations_done, r, records_.wall());
  if (j.elastic && r.program) {
    starts_.on_report(l.granted, j.progress.iterations_done, *r.program, records_.wall());
    p.start_s = starts_.of(l.granted.lease);
  }
  links_.send_progress(std::move(p));
}

/// Records what a running program has saved: it is then known after the end of this controller and
/// of the node. The least of its parts counts, of those that report it.
void lease_manager::record_saved(lease_id id) {
  const auto* held = records_.book().lease(id);
  if (!held) return;
  const auto& l = *held;
  constexpr double interval_s = 5;  // an entry takes a write to the disk
  std::optional<std::uint64_t> saved;
  for (const auto& p : l.granted.parts) {
    const auto* last = find_in(hosts_.node(p.node).reached, l.granted.lease);
    if (!last) return;  // it may have saved less
    if (last->program && last->program->saved)
      saved = std::min(saved.value_or(*last->program->saved), *last->program->saved);
  }
  const auto known =
      std::max(records_.book().job(l.granted.job)->progress.iterations_done, l.saved.value_or(0));
  if (!saved || *saved <= known) return;
  auto& due_s = saves_[l.granted.lease];
  if (records_.now() < due_s) return;
  due_s = records_.now() + interval_s;
  const bool known_lease = records_.record(program_saved{l.granted.lease, *saved});
  TROUPE_INVARIANT(known_lease && records_.book().lease(id)->saved == saved,
                   "what a program has saved is in the ledger");
}

std::optional<program_end> lease_manager::end_of_program(const part_report& p) const {
  TROUPE_INVARIANT(records_.book().lease(p.lease), "a program's report is of a lease that is held");
  const auto& l = *records_.book().lease(p.lease);
  auto end = end_of(*records_.book().job(l.granted.job)->spec, p.program);
  if (end && end->reached) end->start_s = starts_.of(p.lease);
  return end;
}

}  // namespace troupe::actors
