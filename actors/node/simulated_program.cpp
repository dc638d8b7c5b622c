#include "actors/node/simulated_program.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe::actors {

/// After a request to stop it works until the end of that iteration, whatever it does then.
double simulated_program::worked_s(double at_s) const {
  const double worked = at_s - begun_s();
  if (!asked_s_ || !(order_.iteration_s > 0)) return worked;
  const double asked = *asked_s_ - begun_s();
  const double until = asked <= 0 ? 0 : (std::floor(asked / iteration_s()) + 1) * iteration_s();
  return std::min(worked, until);
}

std::uint64_t simulated_program::iterations(double at_s) const {
  constexpr double rounding = 1e-9;  // of whole iterations
  if (worked_s(at_s) <= 0 || !(order_.iteration_s > 0)) return 0;
  const auto done =
      static_cast<std::uint64_t>(std::floor(worked_s(at_s) / iteration_s() + rounding));
  return std::min(done, order_.iterations);
}

program_progress simulated_program::progress(double at_s) const {
  auto p = progress(killed(at_s));
  p.finished = false;
  return p;
}

simulated_program::end simulated_program::killed(double at_s) const {
  const auto before = order_.program->iterations_done;
  const double every_s = order_.program->checkpoint_every_s.value_or(0);
  const auto done = iterations(at_s);
  if (!(every_s > 0) || done == 0) return {at_s, done, before};
  const double saved_s = std::floor(worked_s(at_s) / every_s) * every_s;
  const auto saved = static_cast<std::uint64_t>(std::floor(saved_s / iteration_s()));
  return {at_s, done, before + std::min(saved, done)};
}

/// The last iteration is followed by the program's own end, which takes no time.
simulated_program::end simulated_program::stopped() const {
  const auto before = order_.program->iterations_done;
  const double asked_s = *asked_s_;
  if (asked_s <= begun_s() || !(order_.iteration_s > 0)) return {asked_s, 0, before};
  const auto done = iterations(std::numeric_limits<double>::infinity());
  const double iterated_s = begun_s() + static_cast<double>(done) * iteration_s();
  const double save_s = done == order_.iterations ? 0 : *order_.program->save_s;
  const double end_s = std::max(asked_s, iterated_s) + save_s;
  const double limit_s = asked_s + order_.program->grace_s;
  return end_s > limit_s ? killed(limit_s) : end{end_s, done, before + done};
}

program_progress simulated_program::progress(const end& e) const {
  const auto before = order_.program->iterations_done;
  program_progress p;
  p.iteration = before + e.iterations;
  p.saved = e.saved;
  p.resumed = before;
  if (e.iterations > 0) p.step_s = iteration_s();
  p.finished = e.iterations == order_.iterations && e.saved == before + e.iterations;
  p.signalled = asked_s_.has_value();
  return p;
}

}  // namespace troupe::actors
