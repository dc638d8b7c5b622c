#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/serving/front/front_requests.hpp"
#include "messages/base/random.hpp"

namespace troupe::studies {

/// A prompt of a trace.
struct traced_prompt {
  double arrival_s = 0;  // since the trace's begin
  std::uint32_t prompt_tokens = 1, generated_tokens = 1;
};

struct trace_options {
  std::string model;          // the served name
  double rate = 1;            // times the trace's
  std::size_t saturated = 0;  // keep that many requests under way, as many at each front, in the
                              // trace's order, again and again, each for one token; 0: at their
                              // times
  double ttft_s = 0;          // of each request; 0: the decoder's
  double cancels = 0;         // share of requests whose client leaves after up to `leaves_s`
  double leaves_s = 2;
  std::uint32_t vocabulary = 0;  // of the model, for random prompts; 0: simulated, without tokens
  std::uint64_t seed = 1;
};

/// What became of a request.
struct played_request {
  enum class ending : std::uint8_t { open, served, declined, cancelled, failed };
  std::uint32_t prompt_tokens = 0, tokens = 0;  // of the completion
  double arrived_s = 0, first_token_s = 0, ended_s = 0;
  ending how = ending::open;
  std::uint32_t ends = 0;  // times that it has ended: one, if all is well
  std::uint32_t attempts = 1;
  std::size_t front = 0;
  std::uint64_t number = 0;  // at the front
  reason why;                // declined, failed
  prefill_place where;       // with the first token
};

/// Offers a trace's prompts to fronts, in turn, and records what becomes of them. Not thread-safe:
/// all calls and callbacks come from one thread.
class trace_player {
 public:
  /// A front's interface, and the world's clock.
  struct front_door {
    std::function<std::uint64_t(model_prompt, completion_listener)> submit;
    std::function<void(std::uint64_t number)> cancel;
  };
  struct clock {
    std::function<double()> now_s;
    std::function<void(double at_s, std::function<void()>)> at;
  };

  /// Precondition: there is a prompt and a front.
  trace_player(trace_options o, std::vector<traced_prompt> prompts, std::vector<front_door> fronts,
               clock world);

  /// The trace begins now.
  void begin();
  /// Nothing more is offered.
  void end_offers() { over_ = true; }
  /// Nothing is offered until resume(); prompts that arrive meanwhile are left out.
  void pause() { paused_ = true; }
  void resume();

  /// In the order of their arrivals.
  const std::vector<played_request>& requests() const { return requests_; }
  /// Requests that have not ended.
  std::size_t open() const { return open_; }
  /// All prompts have been offered; never, if saturated and end_offers() has not been called.
  bool all_offered() const { return over_; }

 private:
  void offer_next();
  void schedule_next();
  void offer(const traced_prompt& p, std::size_t front);
  void saturate();
  void on_update(std::size_t index, const completion_update& n);
  void leave_later(std::size_t index);
  std::vector<std::uint32_t> random_prompt(std::uint32_t tokens);
  void end(std::size_t index, played_request::ending how);

  trace_options o_;
  std::vector<traced_prompt> prompts_;
  std::vector<front_door> fronts_;
  clock world_;
  random_source random_;
  double began_s_ = 0;
  std::size_t next_ = 0, open_ = 0;
  std::vector<std::size_t> open_at_;  // by front
  bool over_ = false, paused_ = false;
  std::vector<played_request> requests_;
};

}  // namespace troupe::studies
