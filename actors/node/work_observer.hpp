#pragma once

#include <array>

#include "messages/wire/work.hpp"
#include "runtime/host/log.hpp"

namespace troupe::actors {

/// Is notified of all work of a node: programs, trainings and simulated work.
class work_observer {
 public:
  virtual ~work_observer() = default;
  virtual void on_begin(const work_order& w) = 0;
  /// Also of work that could not be started. Not called for what a dying node leaves behind.
  virtual void on_end(const work_order& w, const part_report& ended) = 0;
};

/// Writes debug lines to the host's log.
class work_log final : public work_observer {
 public:
  void on_begin(const work_order& w) override {
    runtime::log(runtime::log_level::debug, "node", "work begins",
                 {{"lease", w.lease}, {"job", w.job}, {"gpus", w.devices.size()}});
  }
  void on_end(const work_order& w, const part_report& ended) override {
    constexpr std::array names{"running",       "succeeded", "failed",
                               "out of memory", "stopped",   "not started"};
    static_assert(names.size() == 1 + static_cast<std::size_t>(part_report::state::not_started));
    runtime::log(runtime::log_level::debug, "node", "work ended",
                 {{"lease", w.lease},
                  {"job", w.job},
                  {"state", names.at(static_cast<std::size_t>(ended.now))},
                  {"why", ended.detail}});
  }
};

}  // namespace troupe::actors
