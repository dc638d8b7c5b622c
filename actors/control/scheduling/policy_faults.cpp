#include "actors/control/scheduling/policy_faults.hpp"

#include <utility>

#include <fmt/format.h>

#include "runtime/host/log.hpp"

namespace troupe::actors {

void policy_faults::on_fault(const std::string& why, double now_s) {
  constexpr double log_every_s = 60;
  if (!fault_) fault_.emplace();
  ++fault_->rounds;
  const bool is_known = fault_->why == why && now_s < fault_->logged_s + log_every_s;
  fault_->why = why;
  if (is_known) return;
  fault_->logged_s = now_s;
  runtime::log(runtime::log_level::error, "scheduler", "the policy fails: nothing is decided",
               {{"why", why}, {"rounds", fault_->rounds}});
}

void policy_faults::on_decided() {
  if (std::exchange(fault_, {}))
    runtime::log(runtime::log_level::info, "scheduler", "the policy decides again");
}

std::string policy_faults::sentence() const {
  if (!fault_) return {};
  return fmt::format("the policy fails, and nothing is decided ({} rounds in a row): {}",
                     fault_->rounds, fault_->why);
}

}  // namespace troupe::actors
