#include "actors/control/ledger/progress_report.hpp"

#include <algorithm>

#include "actors/control/ledger/unions.hpp"
#include "messages/admission/measured.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/domain/stated_length.hpp"
#include "messages/domain/work_kind.hpp"

namespace troupe::actors {

progress_report progress_of(const training_report& r, double now_s) {
  const auto& last = r.iterations.back();
  double sum_s = 0;
  for (const auto& i : r.iterations) sum_s += i.end_s - i.begin_s;
  double mean_s = sum_s / static_cast<double>(r.iterations.size());
  if (!admission::is_step(mean_s)) mean_s = 0;
  progress_report p{r.job, r.lease, last.iteration, now_s, mean_s, {}, {}};
  if (!is_simulated(r.device)) p.loss = last.loss;
  if (r.tokens_per_s > 0) p.tokens_per_s = r.tokens_per_s;
  p.held_out = r.held_out;
  return p;
}

progress_report progress_of(const lease_record& l, std::uint64_t before, const part_report& r,
                            double now_s) {
  const auto reported = r.program.value_or(program_progress{});
  const auto begun = reported.resumed.value_or(before);
  const auto reached = reported.iteration.value_or(before + r.iterations);
  progress_report p{l.granted.job, l.granted.lease, reached, now_s, reported.step_s, {}, {}};
  // Without a time of its own, the program's start counts as part of its first iterations: it is
  // not visible here.
  if (p.iteration_s <= 0 && p.iteration > begun)
    p.iteration_s = (now_s - l.granted.at_s) / static_cast<double>(p.iteration - begun);
  if (!admission::is_step(p.iteration_s)) p.iteration_s = 0;
  p.loss = reported.loss;
  p.saved = reported.saved;
  p.last = reported.last;
  return p;
}

std::optional<std::uint64_t> last_iteration(const job_spec& s, const progress_report* known) {
  const auto stated = stated_iterations(s);
  return stated || !known ? stated : known->last;
}

void add_progress(job_status& s, const job_record& j, const lease_record* lease,
                  const progress_report* known, double now_s) {
  if (!facts_of(*j.spec).has_end) return;  // it has no end to approach
  const auto last = last_iteration(*j.spec, known);
  const bool has_end = last.has_value();
  s.iterations = last.value_or(0);
  s.iteration = has_end || !is_final(j.state) ? j.progress.iterations_done : 0;
  // A waiting job will resume from what was saved, and a new attempt has from there, or from where
  // it says.
  if (known && known->lease == j.lease && j.state != job_state::waiting) {
    s.iteration = is_final(j.state) ? std::max(s.iteration, known->iteration) : known->iteration;
    s.loss = known->loss;
    s.tokens_per_s = known->tokens_per_s;
    s.held_out = known->held_out;
  }
  if (!has_end) return;
  s.iteration = std::min(s.iteration, s.iterations);
  if (j.state != job_state::running || !lease) return;
  const auto left = static_cast<double>(s.iterations - s.iteration);
  // A job that is late hangs, or has more iterations than were declared: its end is unknown.
  const auto expect_in = [&s](double eta_s) {
    if (eta_s > 0) s.eta_s = eta_s;
  };
  if (known && known->lease == lease->granted.lease && known->iteration_s > 0)
    expect_in(known->at_s + left * known->iteration_s - now_s);
  else if (const auto& g = lease->granted; facts_of(*j.spec).simulated) {
    // Simulated work takes its expected time.
    const double worked_s = now_s - g.at_s - g.start_s;
    if (worked_s > 0 && g.iteration_s > 0)
      s.iteration += static_cast<std::uint64_t>(std::min(left, worked_s / g.iteration_s));
    expect_in(left * g.iteration_s - worked_s);
  }
}

void to_member_progress(job_status& s, const job_record& member, const job_record& of_union) {
  const auto done = s.iteration;
  const double part =
      s.iterations > 0 ? static_cast<double>(done) / static_cast<double>(s.iterations) : 1;
  const double left = end_in_union(of_union, member.id) - part;
  if (left > 0 && s.eta_s)
    *s.eta_s *= left / (1 - part);
  else
    s.eta_s.reset();
  s.iterations = member.spec->iterations;
  s.iteration = std::min(s.iterations, member.progress.iterations_done +
                                           iterations_in_union(of_union, member.id, done));
}

}  // namespace troupe::actors
