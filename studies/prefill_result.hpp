#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "messages/domain/serving.hpp"
#include "messages/wire/stage.hpp"
#include "studies/paired_windows.hpp"
#include "studies/prefill_simulation.hpp"

namespace troupe::studies {

/// A trace of prompts beside a training.
struct prefill_result {
  prefill_study study;
  simulated_prefills done;
  // The same training without prompts: mean time of an iteration, and the share of its devices'
  // time in steps. None: a real run, which is not repeated.
  std::optional<double> iteration_s_without, training_without;
  std::optional<paired_windows> paired{};  // of a real run
  bool realtime = false;                   // the training's processes have real-time priority

  bool is_real() const { return !iteration_s_without; }
};

/// The use of a training's devices: shares of all their time in the iterations that count
/// (counted_of).
struct device_shares {
  double training = 0;  // forwards, recomputes and backwards
  double update = 0;    // copies of gradients, and updates
  double prefill = 0;

  double used() const { return training + prefill; }
  double idle() const { return std::max(0.0, 1 - training - update - prefill); }
};
device_shares shares_of(const training_report& r);

/// A result's requests in numbers. Times are in seconds; lists have an entry per served request, in
/// the order of arrival.
struct request_figures {
  std::map<played_request::ending, std::uint64_t> ended;
  std::map<std::string, std::uint64_t> declined_by_reason;
  std::string first_failure;  // why the first request that failed did; empty: none did

  // `over_promised`: prefill time over the promised one, only where one was promised.
  std::vector<double> ttft_s, without_transfer_s, queue_s, prefill_s, transfer_s, over_promised;
  double transfer_share = 0;  // hops between guests and KV transfers, of the sum of ttft_s
  double in_time_share = 0;   // served within the study's limit, of all offered
  double tokens_per_s = 0, requests_per_s = 0;  // served, from the first arrival to the last end

  std::uint64_t ended_once = 0;      // of all requests
  std::uint64_t yields = 0;          // suspensions for the training
  std::uint64_t received_bytes = 0;  // by decoders and guests
  std::uint64_t partial_starts = 0;  // first tokens although the KV cache was not complete

  std::uint64_t count(played_request::ending how) const {
    const auto at = ended.find(how);
    return at == ended.end() ? 0 : at->second;
  }
};
request_figures figures_of(const prefill_result& r, const model& served);

/// How much longer an iteration takes with prompts, as a fraction. `iteration_s`: with them.
double slowdown_of(const prefill_result& r, double iteration_s);

}  // namespace troupe::studies
