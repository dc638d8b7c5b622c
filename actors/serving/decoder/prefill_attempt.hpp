#pragma once

#include <cstdint>
#include <optional>

#include "actors/serving/decoder/cache_assembly.hpp"
#include "messages/wire/generation.hpp"

namespace troupe::actors {

/// One attempt to have a prompt prefilled in bubbles, as its decoder sees it: it asks until it is
/// answered; then it waits for the blocks. It ends whole, or failed. Pure: times are arguments.
class prefill_attempt {
 public:
  static constexpr double ask_again_s = 0.1;
  static constexpr double reply_timeout_s = 0.5;
  /// A promise of p seconds counts as broken after late_factor * p + late_s.
  static constexpr double late_factor = 2, late_s = 1;

  prefill_attempt(prefill_name name, const cache_shape& shape, double now_s);

  const prefill_name& name() const { return name_; }
  /// It is time to ask (again); counts as asked.
  bool take_ask(double now_s);
  /// The controller may know of it.
  bool asked() const { return asked_; }
  /// Further answers are ignored.
  void on_reply(const prefill_reply& r, double now_s);
  /// The prefill controller has given it up.
  void on_gone(const reason& why);
  /// Its first guest began, and its last one ended, so long ago.
  void on_ended(const prefill_progress& p, double now_s);
  /// As cache_assembly::accept; an error before a promise, and after the end.
  expected<bool> accept(address from, const prefill_block& b, const payload& body, double now_s);
  blocks_received state(std::uint32_t guest) const { return blocks_->state(guest); }
  /// Fails if it is too late.
  void check(double now_s);
  double next_due_s() const;

  /// All has come. Never after it has failed.
  bool whole() const { return blocks_ && !failed_ && blocks_->whole(); }
  const payload& last_hidden() const { return blocks_->last_hidden(); }
  /// Why it was declined or given up.
  const std::optional<reason>& failed() const { return failed_; }

  /// It is whole now.
  prefill_place place(double now_s) const;

 private:
  prefill_name name_;
  cache_shape shape_;
  double began_s_ = 0, ask_s_ = 0, late_at_s_ = 0;
  double promised_s_ = 0;
  bool asked_ = false;
  std::optional<double> begun_s_, ended_s_;  // as the controller reports them
  std::optional<cache_assembly> blocks_;     // from the promise on
  std::optional<reason> failed_;
};

}  // namespace troupe::actors
