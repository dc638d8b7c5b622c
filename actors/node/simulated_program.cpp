#include "actors/node/simulated_program.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::actors {

std::uint64_t simulated_program::iterations(double at_s) const {
  if (worked_s(at_s) <= 0 || !(order_.iteration_s > 0)) return 0;
  const auto done = static_cast<std::uint64_t>(std::floor(worked_s(at_s) / iteration_s()));
  return std::min(done, order_.iterations);
}

program_progress simulated_program::progress(double at_s) const {
  const auto e = killed(at_s);
  auto p = progress(e, false);
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

simulated_program::end simulated_program::stopped(double at_s) const {
  const auto before = order_.program->iterations_done;
  if (worked_s(at_s) <= 0) return {at_s, 0, before};
  const auto done = std::min(iterations(at_s) + 1, order_.iterations);
  const double iterated_s = order_.start_s * slowdown_ + static_cast<double>(done) * iteration_s();
  const double end_s = std::max(at_s, iterated_s) + *order_.program->save_s;
  const double limit_s = at_s + order_.program->grace_s;
  if (end_s > limit_s) return killed(limit_s);
  return {end_s, done, before + done};
}

program_progress simulated_program::progress(const end& e, bool asked) const {
  const auto before = order_.program->iterations_done;
  program_progress p;
  p.iteration = before + e.iterations;
  p.saved = e.saved;
  p.resumed = before;
  if (e.iterations > 0) p.step_s = iteration_s();
  p.finished = e.iterations == order_.iterations && e.saved == before + e.iterations;
  p.signalled = asked;
  return p;
}

}  // namespace troupe::actors
