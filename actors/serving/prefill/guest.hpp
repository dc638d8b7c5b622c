#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "actors/protocol/actor_state.hpp"
#include "actors/protocol/messenger.hpp"
#include "actors/serving/prefill/device_loan.hpp"
#include "actors/serving/prefill/guest_engine.hpp"
#include "actors/serving/prefill/guest_prompts.hpp"

namespace troupe::actors {

/// A message from another host to the guests of this one.
struct guest_message {
  address from = 0;
  message what;
  payload body;
};

using guest_actor = actor_of<guest_message, call_now>;

struct guest_options {
  guest_shape shape;
  actors::messenger messenger;
  /// The device's; null: this guest refuses all prompts.
  std::shared_ptr<gpu::device_executor> executor;
  std::shared_ptr<device_loan> loan;  // of the executor; the guest_supervisor ends it
  /// Loads the model, which may take minutes: the guest then has its own thread. Null: simulated.
  std::function<expected<std::shared_ptr<guest_engine>>(guest_shape&, guest_engine::listener)>
      create;
  reason refused{};  // why there is no executor
};

/// Computes a served model's layers for prompts while the training's stage beside it waits. It
/// outlives a stage that is replaced.
class guest_state {
 public:
  using interface = guest_actor;
  static constexpr const char* actor_name = "guest";

  void start(guest_actor::pointer self, guest_options o);
  void on(const guest_message& m);

  /// It has thrown, and ends, as its prompts do by their time limits: the training goes on.
  void fail_work(const std::string&) {}

 private:
  void open();
  void on_result(guest_tile_result r);
  void carry_out(guest_prompts::changes c);
  void set_timer();
  reason refusal() const;

  guest_actor::pointer self_ = nullptr;
  guest_options o_;
  std::optional<guest_prompts> prompts_;
  std::shared_ptr<guest_engine> engine_;
  double timer_at_s_ = 0;  // of the timer that counts; 0: none
};

}  // namespace troupe::actors
