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

  static constexpr auto fields() {
    using t = work_order;
    return std::tuple{&t::lease,       &t::job,         &t::incarnation,       &t::devices,
                      &t::command,     &t::environment, &t::working_directory, &t::iterations,
                      &t::iteration_s, &t::start_s,     &t::out_of_memory,     &t::train};
  }
  bool operator==(const work_order&) const = default;
};

/// Controller to node, the answer to every report and sent again on every change: all that the node
/// should be doing. A part the node has and this does not name is stopped, and forgotten once gone;
/// a part this names and the node has never had is started. Saying it all each time is what makes
/// loss, duplication and reordering harmless: an older statement (by epoch, then sequence) is
/// ignored.
struct node_orders {
  std::uint64_t epoch = 0;        // the controller's start, counted by the journal
  std::uint64_t sequence = 0;     // of this statement, for this node
  std::uint64_t incarnation = 0;  // of the node as the controller knows it
  std::uint64_t heard = 0;        // the last report's sequence: renews the node's lease
  std::vector<work_order> want;
  /// The controller's journal. A node that works for another one stops that work and begins anew:
  /// epochs, sequences and leases of two journals cannot be compared.
  std::uint64_t journal = 0;

  static constexpr auto fields() {
    using t = node_orders;
    return std::tuple{&t::epoch, &t::sequence, &t::incarnation, &t::heard, &t::want, &t::journal};
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

/// Node to controller: everything the node is doing. Sent on every change and every heartbeat.
struct node_report {
  std::uint64_t incarnation = 0;   // larger after every start of the node's process
  std::uint64_t sequence = 0;      // of this report, within the incarnation
  std::uint64_t epoch = 0;         // of the last orders that the node has followed,
  std::uint64_t orders = 0;        // and their sequence: what they left out is gone
  std::vector<part_report> parts;  // until the controller's orders no longer name them
  std::vector<double> free_bytes;  // a real device's; empty: as catalogued
  std::uint64_t journal = 0;       // of the last orders; 0: it has followed none
  std::string lost;  // why nothing more can be begun here until the next incarnation; empty: it can

  static constexpr auto fields() {
    using t = node_report;
    return std::tuple{&t::incarnation, &t::sequence,   &t::epoch,   &t::orders,
                      &t::parts,       &t::free_bytes, &t::journal, &t::lost};
  }
  bool operator==(const node_report&) const = default;
};

/// Gateway to controller, every heartbeat: which of its nodes it has heard from within a lease.
struct membership {
  std::uint64_t incarnation = 0;
  std::uint64_t sequence = 0;
  std::vector<node_index> present;

  static constexpr auto fields() {
    return std::tuple{&membership::incarnation, &membership::sequence, &membership::present};
  }
  bool operator==(const membership&) const = default;
};

}  // namespace troupe
