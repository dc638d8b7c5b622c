#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "actors/protocol/actor_state.hpp"
#include "actors/protocol/messenger.hpp"
#include "actors/serving/decoder/batch_executor.hpp"
#include "actors/serving/decoder/bubble_prefills.hpp"
#include "actors/serving/decoder/decoder_batch.hpp"
#include "actors/serving/decoder/interface.hpp"
#include "actors/serving/decoder/request_table.hpp"
#include "messages/base/time.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/serving.hpp"
#include "runtime/host/shared_cluster.hpp"

namespace troupe::actors {

struct decoder_options {
  shared_cluster cluster;
  lease_id lease = 0;
  std::uint64_t incarnation = 0;  // of its node
  serving what;
  actors::messenger messenger;
  /// Null: a simulated device, `slowdown` times slower (null: 1), ready after start_s.
  std::shared_ptr<batch_executor> executor{};
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
///   ended      its pages are free; its end is repeated until the front has acknowledged it
///
/// Once the decoder drains, no request begins. From every phase: it ends if the front cancels it,
/// begins a newer attempt, or is silent for a lease's duration while this decoder repeats what it
/// has generated. What is decided of an attempt stands: a repeated `generate` gets the same answer.
///
/// The parts: request_table has the requests and fronts, decoder_batch the batch and its device,
/// bubble_prefills the prefills in bubbles. None knows another; this class, the actor's state,
/// moves requests between them, and has the one timer for all of their due times.
///
/// Preconditions, checked by the serving_supervisor: messages name this lease.
class decoder_behavior {
 public:
  using interface = decoder_actor;
  static constexpr const char* actor_name = "decoder";

  void start(decoder_actor::pointer self, decoder_options o);
  void on(const inbound<generate>& m);
  void on(const inbound<generated_ack>& m);
  void on(const inbound<cancel_generate>& m);
  void on(const inbound<prefill_reply>& m) { on_prefill(prefills_.on_reply(m.from, m.body)); }
  void on(const inbound<prefill_progress>& m) { on_prefill(prefills_.on_progress(m.from, m.body)); }
  void on(const inbound<prefill_block>& m) {
    on_prefill(prefills_.on_block(m.from, m.body, m.raw));
  }
  void on(const stop_serving&);
  void on(const drain_serving&);
  void on(const tick&);

  /// It has thrown, and ends: so does the lease.
  void fail_work(const std::string& why);

 private:
  using request = request_table::request;

  bool is_current(address from, const request_name& n);
  expected<void> check(const generate& g, const payload& body,
                       std::span<const std::uint32_t> tokens) const;
  bool prefills_in_bubbles(const generate& g) const;
  void hold(const generate& g, const payload& body, std::vector<std::uint32_t> tokens);
  void admit(request& r);
  void finish(request& r, generated::ending how, reason why = {});
  void drop(const request_key& k);

  void on_open(const expected<void>& opened);
  void on_round(const expected<std::vector<gpu::batch_result>>& all);
  void take(request& r, const gpu::batch_result& x);
  void add(request& r, const generated_token& t);
  void on_prefill(bubble_prefills::change c);
  void settle(std::optional<bubble_prefills::outcome> o);

  void fail(const reason& why);
  void end_if_drained();
  void go_on();
  void send(const generated& g);
  void send_state();
  void check_times();
  void wake_at(double at_s);

  double now() const { return o_.messenger.now_s(); }
  const cluster_settings& settings() const { return o_.cluster->settings; }

  decoder_actor::pointer self_ = nullptr;
  decoder_options o_;
  request_table requests_;
  decoder_batch batch_;
  bubble_prefills prefills_;
  bool over_ = false;    // failed, drained or stopped
  bool drains_ = false;  // it takes no more requests
  double wake_at_s_ = never;
  std::uint64_t states_ = 0;        // sent so far
  gpu::sequence_id sequences_ = 0;  // begun so far
};

}  // namespace troupe::actors
