#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/protocol/messenger.hpp"
#include "actors/serving/decoder/batch_executor.hpp"
#include "actors/serving/decoder/ended_requests.hpp"
#include "actors/serving/decoder/interface.hpp"
#include "actors/serving/decoder/prefill_attempt.hpp"
#include "actors/serving/decoder/unacknowledged_tokens.hpp"
#include "gpu/inference/batch_queue.hpp"
#include "messages/base/time.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/serving.hpp"
#include "runtime/host/log_limiter.hpp"
#include "runtime/host/shared_cluster.hpp"

namespace troupe::actors {

struct decoder_options {
  shared_cluster cluster;
  lease_id lease = 0;
  std::uint64_t incarnation = 0;  // of its node
  serving what;
  actors::messenger messenger;
  /// Null: a simulated device, `slowdown` times slower (null: 1), ready after start_s.
  std::shared_ptr<batch_executor> executor;
  std::function<double()> slowdown;
  double start_s = 0;
};

/// Completes prompts for fronts, on one GPU (docs/serving_protocol.md). Phases of a request:
///
///   waiting    for pages, in the order of arrival
///     -> asking, once it has them, if the job wants prefill in bubbles; else -> running
///   asking     the prefill controller for a promise, then for the blocks of its cache
///     -> running, when the cache is whole; or, to compute the prompt itself, when the prefill was
///     declined or given up, unless the job has no fallback: -> ended
///   running    it is part of the batch: its prompt is computed, then token after token
///     -> ended, after one of its last tokens, or as many as it may have; or the device failed
///   ended      its pages are free; its end is repeated until the front has heard it
///
/// From every phase: it ends if the front cancels it, begins a newer attempt, or is silent for a
/// lease's duration while this decoder repeats what it has generated. What is decided of an attempt
/// stands: a repeated `generate` gets the same answer.
///
/// Preconditions, checked by the serving_supervisor: messages name this lease.
/// Sources: decoder.cpp (requests), decoder_batch.cpp (the batch and its device),
/// decoder_prefill.cpp (prefill in bubbles).
class decoder_behavior {
 public:
  decoder_behavior() = default;
  void start(decoder_actor::pointer self, decoder_options o);
  void on_generate(address from, const generate& g, const payload& body);
  void on_ack(address from, const generated_ack& h);
  void on_cancel(address from, const cancel_generate& c);
  void on_prefill_reply(address from, const prefill_reply& r);
  void on_prefill_progress(address from, const prefill_progress& p);
  void on_block(address from, const prefill_block& b, const payload& body);
  void on_tick();
  void on_stop();

 private:
  struct request {
    generate about;
    std::vector<std::uint32_t> tokens;  // the prompt, then the completion's known ones
    gpu::sequence_id sequence = 0;
    double arrived_s = 0, admitted_s = 0;
    unacknowledged_tokens output;
    prefill_place where;
    std::optional<prefill_attempt> prefill;
    std::uint32_t scored = 0;  // tokens of the prompt
  };
  /// A front, and since when it has not answered statements that it must answer.
  struct front_contact {
    std::uint64_t incarnation = 0;
    double silent_since_s = never;
  };
  /// A prefill that the controller may forget; repeated until it says that it has.
  struct cancelled_prefill {
    double due_s = 0;
    std::uint32_t left = 0;  // repetitions
  };

  // decoder.cpp
  expected<void> check(const generate& g, const payload& body) const;
  bool prefills_in_bubbles(const completion_request& r) const;
  bool is_current(address from, const request_name& n);
  void hold(const generate& g, const payload& body);
  void decline(const generate& g, reason why);
  void finish(request& r, generated::ending how, reason why = {});
  void drop(const request_key& k);
  void drop_front(address front, std::uint64_t incarnation);
  void send(const generated& g);
  void send_state();
  std::size_t held() const;
  request* find(const request_name& n);
  request* find(gpu::sequence_id s);

  // decoder_batch.cpp
  void open();
  void on_open(const expected<decoder_model>& m);
  void fail(const reason& why);
  void go_on();
  void on_round(const expected<std::vector<gpu::batch_result>>& all);
  void take(request& r, const gpu::batch_result& x);
  void add(request& r, const generated_token& t);
  void check_times();
  void wake_at(double at_s);

  // decoder_prefill.cpp
  void begin_prefill(request& r);
  void check_prefill(request& r);
  void prefill_here(request& r, reason declined);
  void end_prefill(request& r);
  double repeat_cancels();
  cache_shape shape_for(const request& r) const;
  void log_refused(address from, const reason& why);

  double now() const { return o_.messenger.now_s(); }
  const cluster_settings& settings() const { return o_.cluster->settings; }
  address gateway() const { return gateway_of(*o_.cluster, o_.messenger.self()); }

  decoder_actor::pointer self_ = nullptr;
  decoder_options o_;
  std::optional<decoder_model> model_;  // once it is ready
  std::optional<gpu::batch_queue> queue_;
  std::uint32_t context_ = 0;
  bool busy_ = false;  // a round is being executed
  bool over_ = false;  // failed or stopped
  double wake_at_s_ = never;
  std::uint64_t sequence_ = 0;  // of statements of its state
  gpu::sequence_id sequences_ = 0;
  std::uint64_t prefills_ = 0;
  std::map<request_key, request> requests_;
  std::map<gpu::sequence_id, request_key> by_sequence_;
  std::map<std::uint64_t, request_key> by_prefill_;  // those that are not over
  std::map<std::uint64_t, cancelled_prefill> cancelled_;
  std::set<request_key> changed_;  // has news for its front
  std::map<address, front_contact> fronts_;
  ended_requests ended_;
  runtime::log_limiter refused_;  // blocks
};

decoder_actor::behavior_type decoder(decoder_actor::stateful_pointer<decoder_behavior> self,
                                     decoder_options o);

}  // namespace troupe::actors
