#include <algorithm>
#include <cmath>

#include "simulation/oracle.hpp"

namespace troupe::simulation {

// -- what nodes do

void oracle::begins(node_index n, const work_order& w) {
  auto* p = part_on(w.lease, n);
  if (!p) return fail("node {} begins lease {}, which it was never given", n, w.lease);
  const auto& l = leases_.at(w.lease);
  if (p->begun) fail("node {} begins lease {} a second time", n, w.lease);
  if (p->released) fail("node {} begins lease {}, which is over there", n, w.lease);
  lease_id other = 0;
  if (job_runs(w.job, w.lease, &other))
    fail("node {} begins lease {} of job {}, and lease {} of it still runs", n, w.lease, w.job,
         other);
  for (auto d : w.devices)
    if (runs_on(n, d, &other))
      fail("node {} begins lease {} on GPU {}, where lease {} still runs", n, w.lease, d, other);
  check_order(w, l, *p);
  p->begun = p->running = true;
  p->begun_s = now_s_;
  p->start_s = w.start_s;
  p->iteration_s = w.iteration_s;
  p->slowdown = slowdown_(n);
  p->asked = w.iterations;
  p->training = w.train.has_value();
  running_.insert(w.lease);
}

/// The order asks for what is still to be done, on the GPUs of the lease.
void oracle::check_order(const work_order& w, const lease_view& l, const part_view& p) {
  const auto& j = jobs_.at(l.granted.job);
  if (w.job != l.granted.job || w.devices != p.devices)
    fail("the order for lease {} on node {} differs from the grant", w.lease, p.node);
  if (w.iterations + j.done != j.spec.iterations)
    fail("lease {} is to do {} iterations, and job {} has done {} of {}", w.lease, w.iterations,
         w.job, j.done, j.spec.iterations);
  if (w.program && w.program->iterations_done != j.done)
    fail("lease {} is to go on after iteration {}, and job {} has saved {}", w.lease,
         w.program->iterations_done, w.job, j.done);
  if (w.train && w.train->part == 0 && w.train->iterations_done != j.done)
    fail("training lease {} is to go on after iteration {}, and {} are done", w.lease,
         w.train->iterations_done, j.done);
}

void oracle::ends(node_index n, const work_order& w, const part_report& r) {
  auto* p = part_on(w.lease, n);
  if (!p || !p->running) return fail("node {} ends lease {}, which is not running", n, w.lease);
  const auto& l = leases_.at(w.lease);
  p->running = false;
  p->done = done_by(*p, l.granted);
  p->succeeded = r.now == part_report::state::succeeded;
  p->stopped = r.now == part_report::state::stopped;
  if (r.program) p->node_saved = r.program->saved;
  const bool lease_ran_out = r.detail.find("no contact with the controller") != std::string::npos;
  if (p->stopped && !p->training && !l.revoked && !p->released && !lease_ran_out)
    fail("node {} stops lease {}, which nobody has revoked ({})", n, w.lease, r.detail);
  if (p->succeeded && !p->training && p->done + 1 < p->asked)
    fail("node {} calls lease {} done after {} of {} iterations", n, w.lease, p->done, p->asked);
  const auto& j = jobs_.at(w.job);
  if (p->training && p->succeeded && l.granted.parts.front().node == n &&
      std::max(j.reported, j.saved) < j.spec.iterations)
    // A checkpoint may have iterations whose trainer died before it reported them.
    fail("training lease {} is done, and {} iterations were reported", w.lease, j.reported);
  if (std::none_of(l.parts.begin(), l.parts.end(), [](const part_view& x) { return x.running; }))
    running_.erase(w.lease);
}

void oracle::dies(node_index n) {
  for (auto it = running_.begin(); it != running_.end();) {
    auto& l = leases_.at(*it);
    bool others = false;
    for (auto& p : l.parts) {
      if (p.node == n && p.running) {
        p.running = false;
        p.done = done_by(p, l.granted);
      }
      others |= p.running;
    }
    it = others ? std::next(it) : running_.erase(it);
  }
}

/// Iterations of simulated work since it began.
std::uint64_t oracle::done_by(const part_view& p, const lease_granted& g) const {
  const double worked_s = now_s_ - p.begun_s - p.start_s * p.slowdown;
  if (g.out_of_memory || worked_s <= 0 || p.iteration_s <= 0) return 0;
  const double done = worked_s / (p.iteration_s * p.slowdown);
  return std::min(p.asked, static_cast<std::uint64_t>(std::floor(done + 1e-6)));
}

}  // namespace troupe::simulation
