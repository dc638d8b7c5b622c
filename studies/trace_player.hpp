#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "actors/serving/front/completions.hpp"
#include "messages/base/random.hpp"

namespace troupe::studies {

/// A prompt of a trace.
struct traced_prompt {
  double arrival_s = 0;  // since the trace's begin
  std::uint32_t prompt_tokens = 1, generated_tokens = 1;
};

struct trace_options {
  std::string model;  // the served name
  double rate = 1;    // arrivals, times the trace's
  // Number of requests to keep in flight: arrival times are ignored, each front has the same share,
  // the trace repeats, and every request asks for one token. 0: requests arrive at their times.
  std::size_t saturated = 0;
  double ttft_s = 0;  // limit of each request's time to first token; 0: the decoder's
  double cancels =
      0;  // fraction of requests that the client cancels, up to `leaves_s` after arrival
  double leaves_s = 2;
  std::uint32_t vocabulary = 0;  // of the model, for random prompts; 0: simulated, without tokens
  std::uint64_t seed = 1;
};

/// Prompts for the bubbles of a training, whose job lends them (`pipeline.bubbles`).
struct prefill_study {
  trace_options play;  // `model` is set from the job
  std::vector<traced_prompt> prompts;
};

/// The outcome of a request. Times are the world's.
struct played_request {
  enum class ending : std::uint8_t { open, served, declined, cancelled, failed };
  std::uint32_t prompt_tokens = 0, tokens = 0;  // `tokens`: of the completion
  double arrived_s = 0, first_token_s = 0, ended_s = 0;
  ending how = ending::open;
  std::uint32_t ends = 0;  // times that an end was reported: one, unless the front has a bug
  std::uint32_t attempts = 1;
  std::size_t front = 0;
  std::uint64_t number = 0;  // at the front
  reason why;                // of declined and failed
  prefill_place where;       // known with the first token
};

/// Offers a trace's prompts to fronts, in turn, and records the outcome of each. Not thread-safe:
/// begin(), resume(), end_offers() and what the world calls must come from one thread; ready() and
/// pages_reserved() may be called from any.
class trace_player {
 public:
  /// The world in which it plays. `run` calls a function on the player's thread, now or soon:
  /// fronts report on threads of their own.
  struct world {
    std::size_t fronts = 0;
    std::function<const actors::completions&(std::size_t front)> front;
    std::function<double()> now_s;
    std::function<void(double at_s, std::function<void()>)> at;
    std::function<void(std::function<void()>)> run;
  };

  /// Precondition: there is a prompt and a front.
  trace_player(prefill_study study, world w);

  /// Do all fronts know a decoder of the model beside each front?
  bool ready() const;
  /// KV pages of all decoders that are reserved, as the first front knows.
  std::uint64_t pages_reserved() const;

  /// The trace begins now.
  void begin();
  /// Nothing more is offered.
  void end_offers() { over_ = true; }
  /// Nothing is offered until resume(); prompts that arrive in between are left out.
  void pause() { paused_ = true; }
  void resume();

  /// In the order of their arrivals.
  const std::vector<played_request>& requests() const { return requests_; }
  /// Number of requests that have not ended.
  std::size_t open() const { return open_; }
  /// All prompts have been offered; never, if saturated and end_offers() has not been called.
  bool all_offered() const { return over_; }

 private:
  void schedule_next();
  void offer(const traced_prompt& p, std::size_t front);
  void saturate();
  void on_update(std::size_t index, const actors::completion_update& n);
  void cancel_later(std::size_t index);
  void end(std::size_t index, played_request::ending how);

  const trace_options o_;
  const std::vector<traced_prompt> prompts_;
  const world world_;
  random_source random_;
  double began_s_ = 0;
  std::size_t next_ = 0, open_ = 0;
  std::vector<std::size_t> open_at_;  // by front
  bool over_ = false, paused_ = false;
  std::vector<played_request> requests_;
};

}  // namespace troupe::studies
