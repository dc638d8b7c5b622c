#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "actors/node/awaited_work.hpp"
#include "actors/node/process_runner.hpp"
#include "actors/node/work_observer.hpp"
#include "actors/protocol/lease_actor.hpp"
#include "actors/protocol/messenger.hpp"
#include "actors/training/device/stage_options.hpp"
#include "gpu/device/device_type.hpp"
#include "messages/domain/device_kind.hpp"
#include "runtime/host/shared_cluster.hpp"

namespace troupe::actors {

struct node_options {
  shared_cluster cluster;
  /// Null: all work is simulated, whether it has a command or not.
  std::shared_ptr<actors::process_runner> process_runner;
  /// Its state directory is new: processes of an earlier start are unknown.
  bool new_state = false;
  /// The device kind of jobs that name none, for training and serving.
  std::string backend = name_of(device_kind::sim);
  /// Creates the CUDA devices of its stages; null: this machine's GPUs.
  gpu::cuda_device_maker make_cuda;
  /// Slowdown factor of simulated work that starts now; null: none.
  std::function<double()> slowdown;
  std::shared_ptr<work_observer> observer;  // null: none
  weights_watcher on_weights;               // of its simulated stages
  /// Called once the node was removed from the cluster and its work has ended; null: it stays.
  std::function<void()> on_removed;
  /// Its work is stopped, as it was removed or its process is to end; with what it waits for. Null:
  /// nobody wants to know.
  std::function<void(const awaited_work&)> on_waiting;
  /// Called once its process may end, after end_node; null: nobody ends it.
  std::function<void()> on_ended;
};

/// The node's actor, host and options, which its supervisors use, and the begin and end of actors
/// beside it. The node owns all of it, and the supervisors.
struct node_context {
  const node_actor::pointer& self;
  const runtime::host& host;
  const node_options& options;

  const troupe::cluster& cluster() const { return *options.cluster; }
  node_index index() const { return node_of(host.self); }
  address gateway() const { return gateway_address(cluster().nodes[index()].datacenter); }
  actors::messenger messenger() const { return {host, node_actor{self}}; }

  /// `computes`: its calls may take minutes, so that it gets its own thread.
  template <class State, class Options>
  typename State::interface spawn(bool computes, Options o) const {
    return computes ? spawn_lease_actor<State, caf::linked + caf::detached>(*self, std::move(o))
                    : spawn_lease_actor<State, caf::linked>(*self, std::move(o));
  }
  template <class Actor>
  void kill(const Actor& a) const {
    self->unlink_from(a->address());
    caf::anon_send_exit(a, caf::exit_reason::kill);
  }
};

}  // namespace troupe::actors
