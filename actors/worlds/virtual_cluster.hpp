#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "actors/worlds/wiring.hpp"
#include "messages/domain/faults.hpp"
#include "messages/domain/job.hpp"
#include "runtime/virtual/virtual_world.hpp"

namespace troupe::actors {

struct virtual_cluster_options {
  std::shared_ptr<const troupe::cluster> cluster;
  /// The first nodes of these are the cluster's; the others may join(). Null: there are no others.
  std::shared_ptr<const troupe::cluster> machines;
  std::shared_ptr<const planners::policy> policy;
  std::uint64_t seed = 1;
  fault_plan faults;
  /// Called for every entry of the controller's journal once it is durable.
  std::function<void(const journal_entry&)> on_entry;
  std::function<void(double us, std::size_t n)> on_decision;
  /// Called for every state that the controller publishes.
  std::function<void(const cluster_state&)> on_state;
  /// Called when a node starts work (no report), when that ends, and when the node dies (no order).
  std::function<void(node_index, const work_order*, const part_report* ended)> on_work;
  /// Called after each update of a simulated stage.
  weights_watcher on_weights;
  journal_limits limits;
  /// The outcome of the controller's journal writes; null: they succeed.
  std::function<runtime::append_fate(double now_s)> on_append;
  /// Called when a front starts: further actors of its host.
  std::function<std::vector<caf::actor>(std::uint32_t front, const runtime::host&,
                                        const completions&)>
      on_front;
  /// Drops this frame between these two hosts? Null: none.
  std::function<bool(address from, address to, const frame&)> loses;
  double gather_s = 0;   // controller_options::gather_s
  bool explains = true;  // controller_options::explains
};

/// A whole cluster in virtual time: the controller, every gateway, node and front, and one client
/// that submits a workload and retries until each job is accepted.
class virtual_cluster {
 public:
  explicit virtual_cluster(virtual_cluster_options options);
  ~virtual_cluster();

  /// Submits the jobs at their times.
  void submit(std::vector<arrival> workload);
  /// The same of a list that outlives the world: nothing of it is copied before its time.
  void submit_from(std::span<const arrival> workload);

  /// Sends one request, repeats it until it is answered or `patience_s` has passed, and passes the
  /// reply to `done`.
  void send(message request, double patience_s, std::function<void(const answer&)> done);

  /// Sends one request and runs the world until it is answered or `limit_s` of virtual time has
  /// passed.
  answer ask(message request, double limit_s = 60);

  /// Starts a node that is in the controller's cluster by now.
  void join(node_index n);

  /// The way to a front as it is now: after a crash, to its next start.
  const completions& front(std::uint32_t number) const { return fronts_[number]; }

  /// The accepted jobs, in the order in which the client received the replies.
  const std::vector<job_id>& accepted() const;

  /// Why the controller rejected a job of the workload; of several, the first.
  const std::optional<reason>& refusal() const;

  /// All entries of the controller's journal.
  std::vector<journal_entry> journal() const;

  runtime::virtual_world& world() { return world_; }

 private:
  struct submissions;
  void schedule(std::span<const arrival> workload, const std::shared_ptr<const void>& owner);
  void submit_now(submit_job request);
  runtime::virtual_options options_of_world() const;
  void add_node(node_index n, std::shared_ptr<const troupe::cluster> c);

  virtual_cluster_options options_;
  std::shared_ptr<submissions> submissions_;
  std::vector<completions> fronts_;
  random_source requests_;  // request numbers: a repeated one is the same submission
  runtime::virtual_world world_;
  client_actor client_;
};

}  // namespace troupe::actors
