#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "actors/control/interfaces/controller_options.hpp"
#include "actors/control/interfaces/interfaces.hpp"
#include "actors/control/leases/client_desk.hpp"
#include "actors/control/leases/cluster_keeper.hpp"
#include "actors/control/leases/host_reports.hpp"
#include "actors/control/leases/host_table.hpp"
#include "actors/control/leases/lease_manager.hpp"
#include "actors/control/leases/order_desk.hpp"
#include "actors/control/leases/served_jobs.hpp"
#include "actors/control/leases/time_limits.hpp"
#include "actors/control/ledger/cluster_state.hpp"
#include "actors/control/ledger/recorder.hpp"
#include "actors/protocol/actor_state.hpp"
#include "runtime/world/host.hpp"

namespace troupe::actors {

/// The only owner of the resource ledger. Every change goes through here: it is checked, journaled,
/// and only then acted on. Nodes receive their complete desired state (node_orders) and report
/// their complete actual state (node_report); the difference determines what happens next.
///
///     client_desk   cluster_keeper   host_reports    what others ask and report
///           \    time_limits |         /
///            \        \      |        /
///             +----> lease_manager <-+               the life of leases
///                      |      |
///                 order_desk  |                      what nodes are to run
///                      |      |
///                     host_table                     who is there, and what is idle
///                         |
///                      recorder                      ledger, journal, what is held back
///
/// Each uses those below it. This class receives the actor's messages, hands each to one of them,
/// has what was recorded committed together, and publishes the state.
class orchestrator_state {
 public:
  using interface = orchestrator_actor;
  static constexpr const char* actor_name = "orchestrator";

  void start(orchestrator_actor::pointer self, runtime::host h, controller_options options);

  /// Other hosts' messages go to the part that takes them.
  template <class T>
  void on(const inbound<T>& m) {
    if constexpr (requires { parts_->reports.on(m); })
      parts_->reports.on(m);
    else if constexpr (requires { parts_->clients.on(m); })
      parts_->clients.on(m);
    else
      parts_->cluster.on(m);
    commit_soon();
  }
  void on(const inbound<training_report>& m);
  void on(const proposal& p);
  void on(const job_planned& m);
  void on(const begin_scheduling& m);
  void on(const begin_status& m);
  void on(const subscribe& m);
  void on(const commit_now&);
  void on(const tick&);

 private:
  struct parts {
    parts(const runtime::host& h, const controller_options& o, const controller_links& links)
        : records{h, *o.cluster, o.boot},
          hosts{records, o.local},
          orders{records, hosts, o.local},
          leases{records, hosts, orders, links},
          limits{records, leases},
          cluster{records, hosts, leases, limits, o.cluster},
          reports{records, hosts, orders, leases, links},
          clients{records, hosts, leases, served, links} {}

    recorder records;
    host_table hosts;
    order_desk orders;
    lease_manager leases;
    time_limits limits;
    served_jobs served;
    cluster_keeper cluster;
    host_reports reports;
    client_desk clients;
  };

  void resume();
  /// At the end of a handler: commits what it has recorded soon, together with the results of all
  /// messages that are already waiting.
  void commit_soon();
  void on_recorded(const journal_entry& e, const std::vector<job_id>& jobs);
  void publish(const std::vector<job_id>& jobs);
  std::shared_ptr<const cluster_state> state();
  void send_all_progress();
  void report_progress(job_id job);
  void state_serving();

  controller_options options_;
  controller_links links_;
  std::unique_ptr<parts> parts_;  // from start() on
  std::vector<state_subscriber> subscribers_;
  std::uint64_t serving_statements_ = 0;
  bool serving_changed_ = false;  // since the last statement
  bool commit_asked_ = false;
};

}  // namespace troupe::actors
