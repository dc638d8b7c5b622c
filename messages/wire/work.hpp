#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "messages/base/boxed.hpp"
#include "messages/base/fields.hpp"
#include "messages/base/units.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/end.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/plan.hpp"

// Between the controller, gateways and nodes; not for clients. Each side sends its complete state
// every time, so that loss and repetition are harmless; older statements are ignored, by
// (incarnation, sequence) or (epoch, sequence). docs/architecture.md gives the reasons.

namespace troupe {

/// A part of a training job: its node runs the stages that the trainer sets up. The first part's
/// node also runs the trainer, and gets all fields.
struct train_order {
  std::uint32_t part = 0;  // which one this is
  job_spec spec;           // of the first part, as all that follows
  plan how;
  std::vector<lease_part> parts;
  std::uint64_t iterations_done = 0;
  // The iterations that earlier leases have reached, and their median time, as far as the
  // controller knows; 0: none.
  std::uint64_t reached = 0;
  double median_iteration_s = 0;  // their median iteration time
  /// The trainer's node, which alone may set up and run stages; set for every part.
  node_index trainer = 0;
  /// The spec's, for every part: a node starts workers of this program alone, whatever a stage's
  /// setup says.
  std::optional<layer_file> program{};
  static constexpr std::size_t required = 8;

  TROUPE_FIELDS(train_order, part, spec, how, parts, iterations_done, reached, median_iteration_s,
                trainer, program);
};

/// A node's instructions for a program beside its command.
struct program_order {
  double grace_s = 0;                 // when it is to stop: from SIGTERM to SIGKILL
  std::uint64_t iterations_done = 0;  // saved by earlier attempts, as far as the controller knows
  std::optional<std::uint64_t> last;  // the job's last iteration; none: it has no length
  // For elastic programs that are simulated: how long it saves, and how often by itself.
  std::optional<double> save_s{}, checkpoint_every_s{};
  static constexpr std::size_t required = 3;

  TROUPE_FIELDS(program_order, grace_s, iterations_done, last, save_s, checkpoint_every_s);
};

/// The desired work of a part. With a command: run it, in one process group. With `train`: train.
/// With `serve`: run a decoder of that model. Otherwise simulate work that takes `start_s +
/// iterations * iteration_s`.
struct work_order {
  lease_id lease = 0;
  job_id job = 0;
  std::uint64_t incarnation = 0;  // of the node that this part was assigned to; another ignores it
  std::vector<std::uint16_t> devices;  // GPUs of the node
  std::vector<std::string> command;
  std::vector<std::string> environment;  // `KEY=value`, complete except for the node's own
  std::string working_directory;
  std::uint64_t iterations = 0;  // remaining
  double iteration_s = 0;
  double start_s = 0;
  bool out_of_memory = false;  // simulated work: runs out of memory after `start_s`
  boxed<train_order> train;    // a part of a training job
  /// Above 0: a training's first part finishes its iteration, saves and exits, and a part that has
  /// not started does not start; after this many seconds the lease is no longer ordered, and its
  /// processes are killed.
  double stop_within_s = 0;
  std::optional<serving> serve{};          // run a decoder of this model
  std::optional<program_order> program{};  // with a command
  /// A program's first part starts only if this port is free.
  std::optional<std::uint16_t> port{};
  /// The lease that has these GPUs until its part here is over: this one starts then.
  std::optional<lease_id> after{};
  static constexpr std::size_t required = 13;

  TROUPE_FIELDS(work_order, lease, job, incarnation, devices, command, environment,
                working_directory, iterations, iteration_s, start_s, out_of_memory, train,
                stop_within_s, serve, program, port, after);
};

/// Controller to node: the complete desired work. Sent on every change, and until the node has
/// followed it. The node stops and forgets parts that are not listed, and starts those that it has
/// never had. Because orders are complete, loss, duplication and reordering are harmless: older
/// ones (by epoch, then sequence) are ignored.
struct node_orders {
  std::uint64_t epoch = 0;        // the controller's start, counted by the journal
  std::uint64_t sequence = 0;     // of this statement, for this node
  std::uint64_t incarnation = 0;  // the node's, as known to the controller
  /// The sequence of the node's last report or heartbeat: renews its lease.
  std::uint64_t acknowledged = 0;
  std::vector<work_order> work;  // of all parts that are to run there
  /// The controller's journal. A node with work of another journal stops that first: epochs,
  /// sequences and leases of two journals cannot be compared.
  std::uint64_t journal = 0;
  /// Report at once, even if these orders change nothing: a lease was revoked of which the node may
  /// never have received an order, and its GPUs are free if it has not started it.
  bool answer = false;

  TROUPE_FIELDS(node_orders, epoch, sequence, incarnation, acknowledged, work, journal, answer);
};

/// The last report of a program about itself, and whether it was stopped. Iterations count from the
/// job's beginning.
struct program_progress {
  std::optional<std::uint64_t> iteration{};  // completed
  std::optional<std::uint64_t> saved{};      // a later attempt can go on from here
  std::optional<std::uint64_t> resumed{};    // this attempt went on from here
  double step_s = 0;                         // time of an iteration; 0: unknown
  bool finished = false;  // it has reported the job as done, or has reached the last iteration
  /// It was asked to stop before it ended, by its control file or SIGTERM; with exit status 0 it
  /// has `stopped` then, unless it is `finished`.
  bool signalled = false;
  std::optional<double> loss{};         // of the last iteration
  std::optional<std::uint64_t> last{};  // the job's last iteration, if the program has said it
  static constexpr std::size_t required = 6;

  TROUPE_FIELDS(program_progress, iteration, saved, resumed, step_s, finished, signalled, loss,
                last);
};

/// The state of a part of a lease on its node. A program that ends with status 0 after SIGTERM has
/// `stopped`, unless it is `finished`.
struct part_report {
  /// not_started: the node could not, for a reason that is not the job's, which is queued again.
  enum class state : std::uint8_t {
    running,
    succeeded,
    failed,
    out_of_memory,
    stopped,
    not_started
  };
  lease_id lease = 0;
  state now = state::running;
  std::int32_t exit_code = 0;    // 128 + n for a signal n, as a shell has it
  std::uint64_t iterations = 0;  // done in this lease, as far as known
  double peak_bytes = 0;         // per GPU; 0: unknown
  std::string detail;            // why it failed or could not start
  std::optional<program_progress> program{};
  std::optional<end_word> word{};       // none: what `now` implies
  std::optional<std::uint32_t> rank{};  // the program's rank that failed, as its launcher says
  static constexpr std::size_t required = 6;

  TROUPE_FIELDS(part_report, lease, now, exit_code, iterations, peak_bytes, detail, program, word,
                rank);
};

/// The interpreter with which a node starts workers of jobs that name none.
struct python_environment {
  std::string interpreter;  // as the node calls it: a name in its PATH, or a path
  std::string torch;  // PyTorch's version, by the packages; empty: it has none, or does not run

  TROUPE_FIELDS(python_environment, interpreter, torch);
};

/// Node to controller: its complete state. Sent on every change, and with every heartbeat until the
/// controller has received it; after that a node_heartbeat refers to it.
struct node_report {
  std::uint64_t incarnation = 0;   // increases with every start of the node's process
  std::uint64_t sequence = 0;      // of this report, within the incarnation
  std::uint64_t epoch = 0;         // of the last orders that the node has followed
  std::uint64_t orders = 0;        // their sequence: parts that they did not list have ended
  std::vector<part_report> parts;  // until the controller no longer orders them
  /// Not used, empty: a record's fields keep their places on the wire.
  std::vector<double> reserved;
  std::uint64_t journal = 0;  // of the last orders that the node has followed; 0: none
  /// Why nothing can be started here until the next incarnation, such as a GPU that fails every
  /// call; empty: it can.
  std::string lost;
  /// Its state directory is new, so it cannot kill the programs of an earlier process; the
  /// controller waits for that one's lease to expire.
  bool new_state = false;
  /// Free ports for MASTER_PORT of programs whose rank 0 is here, outside of the range from which
  /// the kernel takes ports of outgoing connections; none: a simulated node.
  std::optional<std::vector<std::uint16_t>> ports{};
  /// Version of the cluster that the node follows; none: 0. The answer to an older one than the
  /// controller's is `cluster_update` alone.
  std::optional<std::uint64_t> cluster{};
  std::optional<python_environment> python{};  // none: not known, or the node is simulated
  static constexpr std::size_t required = 9;

  TROUPE_FIELDS(node_report, incarnation, sequence, epoch, orders, parts, reserved, journal, lost,
                new_state, ports, cluster, python);
};

/// Node to its gateway, every heartbeat: the last report still holds, and the orders that it
/// followed are still the last. Uses the sequence numbers of reports.
struct node_heartbeat {
  node_index node = 0;            // index in the cluster
  std::uint64_t incarnation = 0;  // the node's
  std::uint64_t sequence = 0;     // counted with its reports
  std::uint64_t report = 0;       // the sequence of the report that holds

  TROUPE_FIELDS(node_heartbeat, node, incarnation, sequence, report);
};

/// Bytes of tensors that a gateway has forwarded since it started.
struct gateway_traffic {
  std::uint64_t wan_sent_bytes = 0;      // to other datacenters
  std::uint64_t wan_received_bytes = 0;  // from other datacenters
  /// Between nodes of its own datacenter that could not do so directly.
  std::uint64_t relayed_bytes = 0;
  /// The part of wan_sent_bytes to each datacenter, in the cluster file's order; none: nothing was
  /// sent, or in virtual time, and traffic has no price.
  std::optional<std::vector<std::uint64_t>> sent_to{};
  /// The part of sent_to that stages had sent before, where traffic has a price; none: nothing.
  std::optional<std::vector<std::uint64_t>> resent_to{};
  static constexpr std::size_t required = 3;

  TROUPE_FIELDS(gateway_traffic, wan_sent_bytes, wan_received_bytes, relayed_bytes, sent_to,
                resent_to);
};

/// Gateway to controller, every heartbeat and soon after its nodes': it is there, and so are they.
struct gateway_report {
  std::uint64_t incarnation = 0;             // the gateway's
  std::uint64_t sequence = 0;                // of this report
  std::vector<node_heartbeat> heartbeats;    // that it has gathered since its last report
  std::optional<gateway_traffic> traffic{};  // none while it has forwarded no tensors
  std::optional<std::uint64_t> cluster{};    // version of the cluster that it follows; none: 0
  static constexpr std::size_t required = 3;

  TROUPE_FIELDS(gateway_report, incarnation, sequence, heartbeats, traffic, cluster);
};

/// Controller to gateways, nodes and fronts whose report names an older version: the cluster as it
/// is now.
struct cluster_update {
  troupe::cluster cluster;  // as it is now

  TROUPE_FIELDS(cluster_update, cluster);
};

/// Gateway to node: the answer to a heartbeat or a report that does not change the orders. It
/// renews the lease of a node that has followed those orders.
struct lease_renewal {
  node_index node = 0;            // index in the cluster
  std::uint64_t incarnation = 0;  // the node's
  std::uint64_t journal = 0;      // the id of the controller's journal
  std::uint64_t epoch = 0;        // the controller's start
  std::uint64_t orders = 0;       // the sequence of its last orders for the node
  /// The sequence of the last report or heartbeat; 0: the controller lacks the report that a
  /// heartbeat referred to, and the node must report in full.
  std::uint64_t acknowledged = 0;

  TROUPE_FIELDS(lease_renewal, node, incarnation, journal, epoch, orders, acknowledged);
};

/// Controller to gateway: the renewals for its nodes.
struct lease_renewals {
  std::vector<lease_renewal> renewals;

  TROUPE_FIELDS(lease_renewals, renewals);
};

}  // namespace troupe
