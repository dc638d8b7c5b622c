#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "actors/training/device/interfaces.hpp"
#include "actors/training/device/stage_executor.hpp"
#include "actors/training/device/stage_options.hpp"
#include "actors/training/stage/gradient_exchange.hpp"
#include "actors/training/stage/received_tensors.hpp"
#include "actors/training/stage/sent_tensors.hpp"
#include "actors/training/stage/stage_reports.hpp"
#include "actors/training/stage/stage_training.hpp"
#include "messages/base/time.hpp"

namespace troupe::actors {

/// The tensors between a stage and its neighbours and peers: keeps those received until they are
/// used and those sent until they have arrived, and knows which host has which stage. The stage
/// decides what to send, and when it waits.
///
/// Tensors may be lost. Those that are overdue, somewhat later than the slowest of their kind took
/// before, are requested from the stages that have sent them, and again less and less often.
/// Nothing is acknowledged, so that a tensor that arrives costs one message.
class stage_tensors {
 public:
  /// A tensor that a stage waits for: an input of its next step, or sums of gradients.
  enum class wait { none, input, sums };
  /// The stage's own members, which outlive this.
  struct owner {
    stage_actor::pointer self = nullptr;
    const stage_options* options = nullptr;
    stage_training* training = nullptr;
    const stage_reports* reports = nullptr;
    std::function<wait()> waits_for;
  };

  void begin(owner o);
  /// REQUIRES: before anything is sent or awaited.
  void set_executor(stage_executor& e) { executor_ = &e; }

  received_tensors& received() { return received_; }
  const received_tensors& received() const { return received_; }

  /// A tensor has arrived. False: of another iteration or trainer, or known already. Else the
  /// caller adds it to received() or to the training's gradients.
  bool accept(const tensor& t);

  /// A tensor of the present iteration; the caller sets its kind, destination, size and path. Fails
  /// if it is larger than the network carries.
  expected<void> send(tensor t, payload body);
  expected<void> send(gradient_exchange::outgoing gradients);
  /// Once more, those of the request that may have been lost. They go through the gateway, since
  /// the direct connection of the two nodes may be what has lost them.
  void resend(const tensor_request& r);

  /// To a stage that has asked for it, and asks again if it is lost.
  void give(tensor t, payload body);

  /// The stage cannot go on at operation `at` without a tensor; `next`: the step that waits for its
  /// input, null: the sums. May be repeated.
  void await(std::size_t at, const stage_step* next);

  /// The training has another iteration than before, and other hosts.
  void begin_at(std::uint64_t iteration) { received_.begin(setup(), iteration); }
  /// The training's iteration is over.
  void end_iteration();
  /// It begins again, without anything that was sent or received in it.
  void restart_iteration();
  /// A view has begun, in which others may have what is missing.
  void await_anew();

 private:
  const stage_setup& setup() const { return owner_.options->setup; }
  const messenger& host() const { return owner_.options->messenger; }
  address address_of(std::uint32_t pipeline, std::uint32_t stage) const;
  wan_path path_of(const gradient_all_reduce::outgoing& g) const;
  double request_after_s(tensor::kind k) const;
  std::vector<tensor_request> missing() const;
  void check_at(double at_s);
  void request_missing();

  owner owner_;
  stage_executor* executor_ = nullptr;
  received_tensors received_;
  sent_tensors sent_;
  request_timeout timeout_;
  // Where the stage waits: an iteration, and an operation of it.
  std::pair<std::uint64_t, std::size_t> awaited_{~std::uint64_t{0}, 0};
  // Since when it waits there, when the tensor is requested, and when the timer fires.
  double waiting_since_s_ = 0, request_at_s_ = 0, timer_at_s_ = never;
};

}  // namespace troupe::actors
