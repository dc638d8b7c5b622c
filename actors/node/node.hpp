#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "actors/node/node_context.hpp"
#include "actors/node/serving_supervisor.hpp"
#include "actors/node/simulated_program.hpp"
#include "actors/node/training_supervisor.hpp"
#include "actors/protocol/permissions.hpp"

namespace troupe::actors {

/// The node agent. It executes the latest orders and nothing else. Without contact to the
/// controller for the duration of a lease it stops all work, which the controller may then grant
/// to other nodes.
///
/// A part of a lease on this node, identified by its lease:
///
///   unknown -> running   ordered for this incarnation, while the node's lease is valid; held back
///                        while the lease that it follows has its GPUs
///   running -> ended     by itself; or stopped, because it is no longer ordered, the node's lease
///                        has expired, the controller has another journal, or this process is to
///                        end
///   ended -> forgotten   no longer ordered, and the controller has acknowledged a report of the
///   end
class node_state {
 public:
  using interface = node_actor;
  static constexpr const char* actor_name = "node";

  void start(node_actor::pointer self, runtime::host h, node_options options);
  void on(const arrived& a);
  void on(const local_frame& p) { on_frame(p.what); }
  void on(const work_done& w);
  void on(training_over over);
  void on(const training_event& e);
  void on(const serving_over& over);
  void on(const programs_changed&);
  void on(const end_node&);
  void on(const tick&);

 private:
  struct part {
    work_order order;
    part_report report;
    bool simulated = false;
    bool training = false;
    bool serving = false;
    double slowdown = 1;
    bool ordered = true;
    double started_s = 0;
    bool held = false;             // until the lease that it follows has ended here
    std::uint64_t start = 0;       // distinguishes its timer from an earlier part's
    std::uint64_t end_report = 0;  // the first report of its end; 0: none yet
    // For simulated elastic programs: the expected end, and when it was asked to stop, since it
    // began.
    std::optional<simulated_program::end> program_end;
    std::optional<double> asked_s;

    simulated_program program() const { return {order, slowdown, asked_s}; }
  };

  void on_frame(const frame& f);
  void on_node_orders(const node_orders& o);
  void on_lease_renewal(const lease_renewal& r);
  void on_cluster_update(const cluster_update& u);
  void on_read_log(address from, const read_log& r);
  void renew(std::uint64_t acknowledged);
  void forget_ended();
  bool change_journal(std::uint64_t journal);
  void begin(const work_order& w);
  void run(part& p);
  void run_successors(lease_id ended);
  /// Calls `f` with the parts that are not over; those that are held back first, so that none
  /// begins because `f` stops the one before it.
  template <class F>
  void for_each_running(F f) {
    for (const bool held : {true, false})
      for (auto& [id, p] : parts_)
        if (p.held == held && p.report.now == part_report::state::running) f(p);
  }
  void stop(part& p, bool at_once);
  void ask_to_end(part& p);
  void say_what_is_awaited();
  void end_when_done();
  void stop_program(part& p, bool at_once);
  void end_program(part& p, const simulated_program::end& e);
  void notify_end(const part& p);
  void report_end(const part& p);
  void poll_programs();
  node_report make_report();
  std::string lost() const;
  std::uint64_t next_sequence();
  void report();
  void send_report(node_report r);
  std::uint64_t iterations_by_now(const part& p) const;
  double now() const { return host_.clock->now_s(); }
  const cluster_settings& settings() const { return options_.cluster->settings; }

  node_actor::pointer self_ = nullptr;
  runtime::host host_;
  node_options options_;
  std::map<lease_id, part> parts_;
  const node_context me_{self_, host_, options_};
  training_supervisor training_{me_};
  serving_supervisor serving_{me_};
  frame_guard guard_;
  std::uint64_t journal_ = 0;             // of its orders; 0: there are none yet
  std::uint64_t epoch_ = 0, orders_ = 0;  // of the latest orders
  std::uint64_t followed_ = 0;            // orders_ once they have been followed completely, else 0
  std::uint64_t starts_ = 0;
  std::uint64_t sequence_ = 0;        // of the last report or heartbeat,
  std::uint64_t acknowledged_ = 0;    // and of the last that the controller has acknowledged
  std::vector<std::uint16_t> ports_;  // free ones for programs, as reported
  node_report last_report_;
  std::deque<std::pair<std::uint64_t, double>> sent_;  // not yet acknowledged: sequence, time
  double lease_until_s_ = 0;
  double report_due_s_ = 0;
  std::string lost_;  // a device is lost, so nothing more is started: the reason
  bool changed_ = false;
  bool awaits_ = false;               // what it waits for has been said
  std::optional<double> end_by_s_;    // its process is to end: when what runs is killed
  std::optional<double> leave_by_s_;  // nothing runs any more: when it ends without an answer
};

}  // namespace troupe::actors
