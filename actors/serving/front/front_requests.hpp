#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "actors/serving/front/completions.hpp"
#include "actors/serving/front/decoder_directory.hpp"
#include "actors/serving/front/front_tally.hpp"
#include "actors/serving/front/known_prefixes.hpp"
#include "messages/wire/message.hpp"
#include "runtime/host/log_limiter.hpp"
#include "runtime/host/shared_cluster.hpp"
#include "runtime/world/host.hpp"

namespace troupe::actors {

/// The requests of a front: gives each to a decoder, repeats what is not answered, passes its
/// tokens to the listener in order and exactly once, and begins a new attempt elsewhere, with the
/// known tokens as replay, if the decoder is lost or declines. Every request ends exactly once: by
/// its last token, by a reason, or by cancel(), after which its
/// listener is not called. Not thread-safe.
///
///   placed -> lost or declined -> placed (at most three attempts), or waits for a decoder
///   placed -> ended by its decoder; waits -> ended by a reason after a lease's duration
class front_requests {
 public:
  static constexpr std::uint32_t max_attempts = 3;
  /// Between two calls of on_tick() while is_busy().
  static constexpr double tick_s = 0.1;

  front_requests() = default;
  front_requests(runtime::host h, shared_cluster c);

  /// `number` must be new.
  void submit(std::uint64_t number, model_prompt p, completion_listener listener);
  /// `enough`: its client needs no more; otherwise it has left.
  void cancel(std::uint64_t number, bool enough = false);
  /// Other messages than those of decoders, and the controller's statement about them, are ignored.
  void on_message(address from, const message& m);
  void on_tick();

  /// Something waits for an answer.
  bool is_busy() const { return !requests_.empty() || !cancelled_.empty(); }
  std::size_t size() const { return requests_.size(); }
  const decoder_directory& decoders() const { return decoders_; }
  /// States of decoders that the controller has not stated.
  std::uint64_t refused() const { return refused_; }
  /// Without its incarnation and sequence.
  front_report report() const;

 private:
  struct request {
    model_prompt asked;
    completion_listener listener;
    request_name name;                    // attempt 0: none has begun
    std::optional<decoder_name> decoder;  // nothing: it waits for one
    std::set<decoder_name> failed;        // declined it, or have lost it
    std::vector<std::uint32_t> known;     // tokens of the answer
    payload body;                         // of this attempt
    reason last_failure;
    double asked_s = 0;      // when it was submitted
    double last_seen_s = 0;  // of this attempt: its begin, or its decoder's last statement
    double ask_at_s = 0, pause_s = 0;
    std::optional<double> waits_until_s;
  };
  using request_map = std::map<std::uint64_t, request>;
  struct cancellation {
    request_name name;
    decoder_name decoder;
    double ask_at_s = 0, until_s = 0;
  };

  void on_decoder_state(address from, const decoder_state& s);
  void on_generated(address from, const generated& g);
  bool is_acceptable(const request& r, const generated& g) const;
  void take(request_map::iterator at, address from, const generated& g);
  void confirm(address to, const generated& g, std::size_t tokens, bool finished) const;
  void on_cancelled(const decoder_name& sender, const generated& g);
  void fail(request_map::iterator at, const reason& why);
  void place(request_map::iterator at, bool may_wait);
  void place_all(bool lost_ones_only);
  void begin_attempt(request& r, const decoder_name& to);
  void ask(request& r);
  void notify(request& r, std::vector<generated_token> fresh, const generated& g);
  void end(request_map::iterator at, generated::ending how, reason why);
  void look_after(request_map::iterator at);
  void repeat_cancellations();
  double now() const { return host_.clock->now_s(); }
  double lease_s() const { return cluster_->settings.lease_s; }

  runtime::host host_;
  shared_cluster cluster_;
  decoder_directory decoders_;
  known_prefixes prefixes_;
  front_tally tally_;
  request_map requests_;
  std::map<std::uint64_t, cancellation> cancelled_;
  runtime::log_limiter refusals_;
  std::uint64_t refused_ = 0;
};

}  // namespace troupe::actors
