#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "actors/worlds/wiring.hpp"
#include "messages/faults.hpp"
#include "messages/job.hpp"
#include "runtime/virtual/virtual_world.hpp"

namespace troupe::actors {

struct virtual_cluster_options {
  std::shared_ptr<const troupe::cluster> cluster;
  std::shared_ptr<const planners::policy> policy;
  std::uint64_t seed = 1;
  fault_plan faults;
  /// Shown every entry of the controller's journal once it is durable.
  std::function<void(const journal_entry&)> on_entry;
  std::function<void(double us, std::size_t n)> on_decision;
  /// Shown every state that the controller publishes.
  std::function<void(const cluster_state&)> on_state;
  /// Told when a node begins work (no report), when it ends it, and when it dies (no order).
  std::function<void(node_index, const work_order*, const part_report* ended)> on_work;
  journal_limits limits;
  /// What becomes of the controller's writes; null: they are kept.
  std::function<runtime::append_fate(double now_s)> on_append;
  /// Is this frame lost between these two hosts? Null: none is.
  std::function<bool(address from, address to, const frame&)> loses;
};

/// A whole cluster in virtual time: the controller, every gateway and node, and one client that
/// submits a workload and retries until each job is accepted.
class virtual_cluster {
 public:
  explicit virtual_cluster(virtual_cluster_options options);
  ~virtual_cluster();

  /// Submits the jobs at their times.
  void submit(std::vector<arrival> workload);

  /// Sends one request, repeats it until it is answered or `patience_s` have passed, and hands the
  /// answer to `done`.
  void send(message request, double patience_s, std::function<void(const answer&)> done);

  /// Sends one request and runs the world until it is answered or `limit_s` of its time have
  /// passed.
  answer ask(message request, double limit_s = 60);

  /// The numbers of the jobs that the client was told of, in the order in which it heard.
  const std::vector<job_id>& accepted() const;

  /// Why the controller did not accept a job of the workload; the first, if there were several.
  const std::optional<reason>& refusal() const;

  /// All that the controller has written down.
  std::vector<journal_entry> journal() const;

  runtime::virtual_world& world() { return world_; }

 private:
  struct told;
  runtime::virtual_options options_of_world() const;

  virtual_cluster_options options_;
  std::shared_ptr<told> told_;
  random_source requests_;  // numbers of requests: one that comes again is the same submission
  runtime::virtual_world world_;
  client_actor client_;
};

}  // namespace troupe::actors
