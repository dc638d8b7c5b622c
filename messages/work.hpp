#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "messages/job.hpp"
#include "messages/plan.hpp"
#include "messages/units.hpp"

namespace troupe {

/// A part of a training job: its node starts the stages that the trainer asks for. The first part's
/// node is also the trainer's, and is told everything.
struct train_order {
  std::uint32_t part = 0;
  job_spec spec;  // the first part's, as is all that follows
  plan how;
  std::vector<lease_part> parts;
  std::uint64_t iterations_done = 0;
  // What earlier leases came to, as far as the controller knows: iterations, and the seconds that
  // one took in the middle; 0: nothing.
  std::uint64_t reached = 0;
  double took_s = 0;
  node_index trainer = 0;  // whose node alone may set up and run this part's stages; every part's

  static constexpr auto fields() {
    using t = train_order;
    return std::tuple{&t::part,    &t::spec,   &t::how,    &t::parts, &t::iterations_done,
                      &t::reached, &t::took_s, &t::trainer};
  }
  bool operator==(const train_order&) const = default;
};

/// What a lease's part should do on its node. With a command: run it, one process group. With
/// `train`: train. Without either: be simulated work that takes `start_s + iterations *
/// iteration_s` of the world's time.
struct work_order {
  lease_id lease = 0;
  job_id job = 0;
  std::uint64_t incarnation = 0;  // of the node that this part was given to; another ignores it
  std::vector<std::uint16_t> devices;  // GPUs of the node
  std::vector<std::string> command;
  std::vector<std::string> environment;  // KEY=value, complete but for the node's own
  std::string working_directory;
  std::uint64_t iterations = 0;  // still to do
  double iteration_s = 0;
  double start_s = 0;
  bool out_of_memory = false;  // simulated: ends so after start_s
  std::optional<train_order> train;
  /// Larger than 0: a training's first part finishes its iteration, saves and ends; whoever is not
  /// through after so many seconds is ordered no more, and killed.
  double stop_within_s = 0;

  static constexpr auto fields() {
    using t = work_order;
    return std::tuple{&t::lease,        &t::job,         &t::incarnation,       &t::devices,
                      &t::command,      &t::environment, &t::working_directory, &t::iterations,
                      &t::iteration_s,  &t::start_s,     &t::out_of_memory,     &t::train,
                      &t::stop_within_s};
  }
  bool operator==(const work_order&) const = default;
};

/// Controller to node, sent on every change and until the node has followed them: all that it
/// should be doing. A part the node has and this does not name is stopped, and forgotten once gone;
/// a part this names and the node has never had is started. Saying it all each time is what makes
/// loss, duplication and reordering harmless: an older statement (by epoch, then sequence) is
/// ignored.
struct node_orders {
  std::uint64_t epoch = 0;        // the controller's start, counted by the journal
  std::uint64_t sequence = 0;     // of this statement, for this node
  std::uint64_t incarnation = 0;  // of the node as the controller knows it
  std::uint64_t heard = 0;        // the last report's or heartbeat's sequence: renews the lease
  std::vector<work_order> want;
  /// The controller's journal. A node that works for another one stops that work and begins anew:
  /// epochs, sequences and leases of two journals cannot be compared.
  std::uint64_t journal = 0;
  /// Say at once that these orders were followed, though they change nothing: a lease was revoked
  /// that the node may never have heard of, and its GPUs are free when it has not begun it.
  bool answer = false;

  static constexpr auto fields() {
    using t = node_orders;
    return std::tuple{&t::epoch, &t::sequence, &t::incarnation, &t::heard,
                      &t::want,  &t::journal,  &t::answer};
  }
  bool operator==(const node_orders&) const = default;
};

/// How a part of a lease is doing on its node.
struct part_report {
  enum class state : std::uint8_t { running, succeeded, failed, out_of_memory, stopped };
  lease_id lease = 0;
  state now = state::running;
  std::int32_t exit_code = 0;    // 128 + n for a signal n, as a shell has it
  std::uint64_t iterations = 0;  // done in this lease, as far as known
  double peak_bytes = 0;         // a GPU's, 0 unknown
  std::string detail;            // why it could not start, ...

  static constexpr auto fields() {
    using t = part_report;
    return std::tuple{&t::lease,      &t::now,        &t::exit_code,
                      &t::iterations, &t::peak_bytes, &t::detail};
  }
  bool operator==(const part_report&) const = default;
};

/// Node to controller: everything the node is doing. Sent on every change, and with every heartbeat
/// until the controller has heard it; after that a node_heartbeat says that it still holds.
struct node_report {
  std::uint64_t incarnation = 0;   // larger after every start of the node's process
  std::uint64_t sequence = 0;      // of this report, within the incarnation
  std::uint64_t epoch = 0;         // of the last orders that the node has followed,
  std::uint64_t orders = 0;        // and their sequence: what they left out is gone
  std::vector<part_report> parts;  // until the controller's orders no longer name them
  std::vector<double> free_bytes;  // a real device's; empty: as catalogued
  std::uint64_t journal = 0;       // of the last orders; 0: it has followed none
  std::string lost;  // why nothing more can be begun here until the next incarnation; empty: it can
  bool new_state = false;  // its state directory is new: it cannot end its predecessor's programs

  static constexpr auto fields() {
    using t = node_report;
    return std::tuple{&t::incarnation, &t::sequence, &t::epoch, &t::orders,   &t::parts,
                      &t::free_bytes,  &t::journal,  &t::lost,  &t::new_state};
  }
  bool operator==(const node_report&) const = default;
};

/// Node to its gateway, every heartbeat: what the node's last report said still holds, and the
/// orders that it had followed are still the last. Counted by the same sequence as reports.
struct node_heartbeat {
  node_index node = 0;
  std::uint64_t incarnation = 0;
  std::uint64_t sequence = 0;
  std::uint64_t report = 0;  // the sequence of the report that holds

  static constexpr auto fields() {
    using t = node_heartbeat;
    return std::tuple{&t::node, &t::incarnation, &t::sequence, &t::report};
  }
  bool operator==(const node_heartbeat&) const = default;
};

/// Gateway to controller, every heartbeat and soon after its nodes': it is there, and so are they.
struct gateway_report {
  std::uint64_t incarnation = 0;
  std::uint64_t sequence = 0;
  std::vector<node_heartbeat> heartbeats;  // that it has gathered since its last report

  static constexpr auto fields() {
    using t = gateway_report;
    return std::tuple{&t::incarnation, &t::sequence, &t::heartbeats};
  }
  bool operator==(const gateway_report&) const = default;
};

/// Gateway to node, the answer to a heartbeat or a report that leaves the orders as they are. It
/// renews the node's lease if the node has followed those orders. `heard` 0: the controller does
/// not have the report that a heartbeat named, and the node reports in full.
struct lease_renewal {
  node_index node = 0;
  std::uint64_t incarnation = 0;  // of the node
  std::uint64_t journal = 0;      // the controller's,
  std::uint64_t epoch = 0;        // its start
  std::uint64_t orders = 0;       // and the sequence of its last orders for the node
  std::uint64_t heard = 0;        // the last report's or heartbeat's sequence, or 0

  static constexpr auto fields() {
    using t = lease_renewal;
    return std::tuple{&t::node, &t::incarnation, &t::journal, &t::epoch, &t::orders, &t::heard};
  }
  bool operator==(const lease_renewal&) const = default;
};

/// Controller to gateway: what its nodes are to be told.
struct lease_renewals {
  std::vector<lease_renewal> renewals;

  static constexpr auto fields() { return std::tuple{&lease_renewals::renewals}; }
  bool operator==(const lease_renewals&) const = default;
};

}  // namespace troupe
