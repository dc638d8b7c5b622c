#include "actors/training/trainer/attempt_end.hpp"

#include <cmath>

#include <fmt/format.h>

namespace troupe::actors {

// An attempt that got further than all before may be repeated without end: each repetition is
// nearer to the training's end.
part_report::state end_after(const reason& why, bool progress) {
  using enum part_report::state;
  switch (why.code) {
    case reason::kind::out_of_memory:  // it is planned again with more headroom
      return out_of_memory;
    case reason::kind::device_lost:  // the device will not be granted again
    case reason::kind::worker_lost:  // repeated as after a lost node
      return stopped;
    case reason::kind::unavailable:  // peers may come back
      return progress ? stopped : failed;
    default:
      return failed;
  }
}

// An update that was skipped has changed nothing: the loss' scale of fp16 falls, and it goes on.
std::string not_finite(const iteration_record& r) {
  if (r.program && r.program->skipped) return {};
  const auto sentence = [&](const char* what, double value) {
    return fmt::format(
        "iteration {}: the {} is {}, expected a finite number; the learning rate may be too high",
        r.iteration, what, std::isnan(value) ? "nan" : fmt::format("{}", value));
  };
  if (!std::isfinite(r.loss)) return sentence("loss", r.loss);
  if (!std::isfinite(r.gradient_norm)) return sentence("gradient norm", r.gradient_norm);
  return {};
}

}  // namespace troupe::actors
