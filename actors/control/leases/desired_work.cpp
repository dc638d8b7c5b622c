#include "actors/control/leases/desired_work.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "actors/protocol/launch_environment.hpp"
#include "messages/base/invariant.hpp"
#include "messages/domain/stated_length.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/policy/elastic_jobs.hpp"

namespace troupe::actors {

std::uint32_t part_on(const lease_record& l, node_index n) {
  const auto& parts = l.granted.parts;
  return static_cast<std::uint32_t>(
      std::find_if(parts.begin(), parts.end(), [n](const auto& p) { return p.node == n; }) -
      parts.begin());
}

double grace_of(const cluster& c, const job_spec& program) {
  return program.program.grace_s.value_or(program.program.elastic ? c.settings.preempt_grace_s
                                                                  : c.settings.grace_s);
}

/// A journal entry, so only what the next attempt depends on.
std::optional<program_end> end_of(const job_spec& spec, const std::optional<program_progress>& p) {
  if (!p) return {};
  program_end end{p->saved ? p->saved : p->resumed, p->finished, {}, {}, {}};
  if (spec.program.elastic) {
    if (p->step_s > 0) end.step_s = p->step_s;
  }
  // Nothing else has the number for a program that says its own last iteration.
  if (spec.program.elastic || p->last) end.reached = p->iteration;
  return end == program_end{} ? std::nullopt : std::optional{end};
}

namespace {

/// By the job's file alone.
planners::start_estimate simulated_start(const cluster& c, const job_record& j,
                                         const lease_granted& g) {
  planners::job_view v;
  v.spec = j.spec;
  return planners::estimate_start(c, v, g.how, j.where);
}

}  // namespace

/// A pure function of the ledger: orders that are sent again after a restart are the same, and the
/// node recognizes the lease by its number.
work_order work_of(const cluster& c, const ledger& book, const training_history& training,
                   const lease_record& l, std::uint32_t part, bool local) {
  const auto& g = l.granted;
  TROUPE_INVARIANT(part < g.parts.size(), "work is ordered of a part of its lease");
  TROUPE_INVARIANT(book.job(g.job), "work is ordered for a known job");
  const auto& j = *book.job(g.job);
  const auto& spec = *j.spec;
  const auto done = std::min(spec.iterations, j.progress.iterations_done);
  work_order w;
  w.lease = g.lease;
  w.job = g.job;
  w.incarnation = g.parts[part].incarnation;
  w.devices = g.parts[part].devices;
  w.command = spec.program.command;
  double iteration_s = g.iteration_s, start_s = g.start_s;
  const auto facts = facts_of(spec);
  if (facts.has_processes) {
    w.environment = launch_environment(c, spec, g, part, local);
    w.environment.push_back(fmt::format("TROUPE_ATTEMPT={}", j.progress.attempts));
    w.environment.push_back(fmt::format("TROUPE_ITERATION={}", j.progress.iterations_done));
    w.program = {grace_of(c, spec), j.progress.iterations_done, {}};
    w.program->last = stated_iterations(spec);
    if (spec.program.elastic) {
      // Simulated programs take what their file says, whatever was measured.
      const auto truth = simulated_start(c, j, g);
      iteration_s = truth.iteration_s;
      start_s = truth.start_s.value_or(g.start_s);
      w.program->save_s = spec.program.elastic->save_s.value_or(0);
      const double own_s = spec.program.elastic->checkpoint_every_s;
      w.program->checkpoint_every_s = own_s > 0 ? own_s : c.settings.checkpoint_s;
    }
  }
  if (part == 0) w.port = g.port;
  w.after = g.after;
  w.working_directory = spec.program.working_directory;
  // Iterations that earlier leases saved are not repeated.
  TROUPE_INVARIANT(done <= spec.iterations, "no work is ordered twice");
  w.iterations = spec.iterations - done;
  w.iteration_s = iteration_s;
  w.start_s = start_s;
  w.out_of_memory = g.out_of_memory;
  w.serve = spec.serve;
  if (facts.has_stages) {
    w.train.emplace();
    // The trainer is on the first part's node and sets up the others' stages itself: they need no
    // plan.
    if (part == 0)
      w.train = train_order{0,
                            spec,
                            g.how,
                            g.parts,
                            done,
                            training.reached(g.job, g.lease),
                            training.median_iteration_s(g.job, g.lease)};
    w.train->part = part;
    w.train->trainer = g.parts.front().node;
    if (spec.train) w.train->program = spec.train->program;
    if (w.train->program) w.environment = worker_environment(c, spec, g, part, local);
  }
  return w;
}

/// Programs and trainings report what they have saved; simulated work has no checkpoint but this
/// one.
std::uint64_t kept_iterations(const cluster& c, const ledger& book, const lease_record& l,
                              std::uint64_t reached) {
  const auto& g = l.granted;
  const double every_s = c.settings.checkpoint_s;
  if (facts_of(*book.job(g.job)->spec).has_processes || g.iteration_s <= 0 || every_s <= 0)
    return 0;
  const double worked_s = static_cast<double>(reached) * g.iteration_s;
  return static_cast<std::uint64_t>(std::floor(worked_s / every_s) * every_s / g.iteration_s);
}

}  // namespace troupe::actors
