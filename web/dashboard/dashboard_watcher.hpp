#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/host/clock.hpp"
#include "web/dashboard/controller_source.hpp"
#include "web/dashboard/dashboard_facts.hpp"
#include "web/dashboard/dashboard_metrics.hpp"
#include "web/http/http_messages.hpp"

namespace troupe::web {

/// The thread that asks the controller: for the whole cluster at every interval, and for single
/// jobs when browsers ask. Thread-safe.
class dashboard_watcher {
 public:
  /// One look at the cluster. Immutable; `known` is null while the controller is absent.
  struct view {
    std::shared_ptr<const cluster_facts> known;
    std::string links;       // JSON: needs the view before
    std::string why_absent;  // a sentence
    double absent_s = 0;
    std::map<job_id, std::uint64_t> positions;  // of training_reply
  };

  dashboard_watcher(controller_source source, double every_s, const runtime::clock& clock);
  ~dashboard_watcher();
  dashboard_watcher(const dashboard_watcher&) = delete;
  dashboard_watcher& operator=(const dashboard_watcher&) = delete;

  std::shared_ptr<const view> now() const;

  /// Asks on the thread, then calls `then` there with the reply. false: too much is being asked.
  bool ask(message request, std::function<void(expected<message>)> then);
  /// Sends an event with every view from now on. false: there are too many subscribers.
  bool subscribe(const std::shared_ptr<http_reply>& reader);

 private:
  void run();
  void look();
  void look_at_trainings(cluster_facts& to, view& next);
  void publish(std::shared_ptr<const view> next);
  std::string event(const view& v) const;

  const controller_source source_;
  const double every_s_;
  const runtime::clock& clock_;
  double last_answer_s_;                         // of the thread
  ended_jobs ended_;                             // of the thread
  std::shared_ptr<const cluster_facts> before_;  // of the thread: the last that was known

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
  std::deque<std::function<void()>> questions_;
  std::map<std::uint64_t, std::shared_ptr<http_reply>> readers_;
  std::uint64_t next_reader_ = 0;
  std::shared_ptr<const view> view_;
  std::thread thread_;
};

}  // namespace troupe::web
