#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/training/collectives/device_all_reduce.hpp"
#include "actors/training/collectives/gradient_all_reduce.hpp"
#include "actors/training/collectives/update_commit.hpp"
#include "actors/training/device/stage_executor.hpp"

namespace troupe::actors {

/// The all-reduce of one training's gradients at one stage: by the hosts, or by the devices once
/// they have joined a group; and the agreement of all stages to update by the sums. It keeps the
/// sums of two iterations, since a peer that has finished this one may already send gradients of
/// the next. It decides nothing: the stage sends what it returns, and asks whether the sums are
/// complete after every tensor and operation.
class gradient_exchange {
 public:
  using outgoing = std::vector<gradient_all_reduce::outgoing>;

  /// Begins with the iteration after this one; and, when an iteration is over, with the next.
  void begin(const stage_setup& s, std::uint64_t iteration);
  void end_iteration(const stage_setup& s);

  /// The devices of the stage and its peers all-reduce from now on.
  void join() { joined_ = true; }
  /// A peer's device has not joined: the hosts all-reduce.
  void leave() { joined_ = false; }
  bool joined() const { return joined_; }

  /// REQUIRES: the iteration is the present one or the next. Returns what to send.
  outgoing receive(const tensor& t, const payload& body);
  /// This stage's gradients, for an all-reduce of the hosts. Returns what to send.
  outgoing add(stage_gradients g);
  /// This stage can update; `norms`: the squared norms of its layers, of the sums, if its program
  /// needs those of all. Returns what to send.
  outgoing begin_commit(std::vector<double> norms, std::optional<pipeline_record> own) {
    return now().commit.begin(std::move(norms), std::move(own));
  }
  /// This stage still writes a checkpoint: none begins after this iteration. Before begin_commit().
  void skip_checkpoint() { now().commit.skip_checkpoint(); }
  void skip_copy() { now().commit.skip_copy(); }
  const update_commit& commit() const { return now().commit; }
  /// A view begins with the update of this iteration. REQUIRES: begin_commit().
  void agree(const agreed_update& u) {
    now().commit.agree(u);
    now().by_hosts.ask_peers();
  }
  /// The last stage's sum of a tied embedding's gradients, of this iteration or the one before.
  std::optional<payload> tied_sum(std::uint64_t iteration) const;
  /// The devices' all-reduce, once, as soon as it can begin.
  std::optional<gpu::operations::sum> take_device_sum();
  /// The devices' all-reduce is over. Returns what to send.
  outgoing finish_sum(std::optional<payload> tied) {
    return now().by_devices.finish_sum(std::move(tied));
  }

  /// A received tensor has the wrong size; empty: none has.
  const std::string& error() const {
    const auto& of_sums = now().by_hosts.error();
    return of_sums.empty() ? now().commit.error() : of_sums;
  }
  bool complete() const {
    return joined_ ? now().by_devices.complete() : now().by_hosts.complete();
  }
  /// The sums for the update: own gradients, and a tied embedding's. After result_for_norms(): the
  /// one that was missing.
  gpu::own_and_tied result();

  /// Complete, or but for the last stage's sum of a tied embedding's gradients: the first stages
  /// have it, and count its norm, so an update is agreed on without it.
  bool is_ready() const { return joined_ ? now().by_devices.summed() : now().by_hosts.summed(); }
  /// REQUIRES: is_ready().
  gpu::own_and_tied result_for_norms();

  std::vector<gradient_all_reduce::missing_tensor> missing() const {
    auto all = joined_ ? now().by_devices.missing() : now().by_hosts.missing();
    const auto words = now().commit.missing();
    all.insert(all.end(), words.begin(), words.end());
    return all;
  }

 private:
  /// Only one of the two is used: the hosts', or the devices' once they have joined a group.
  struct sums {
    gradient_all_reduce by_hosts;
    device_all_reduce by_devices;
    update_commit commit;
  };
  static sums sums_of(const stage_setup& s);
  sums& now() { return sums_[iteration_ % 2]; }
  const sums& now() const { return sums_[iteration_ % 2]; }

  bool joined_ = false;
  std::uint64_t iteration_ = 0;           // completed
  std::array<sums, 2> sums_;              // by iteration
  std::optional<payload> last_tied_sum_;  // of a training that heals: of the iteration before
};

}  // namespace troupe::actors
