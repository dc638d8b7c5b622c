#include "studies/prefill_result.hpp"

#include <cmath>
#include <numeric>

#include "messages/base/time.hpp"
#include "messages/domain/served_bytes.hpp"
#include "planners/bubbletea/prefill_times.hpp"

namespace troupe::studies {

namespace {

using ending = played_request::ending;

/// Bytes of a prompt's KV cache, in whole pages, and of the last hidden state: without all of them
/// its first token cannot be computed.
double needed_bytes(const planners::served_layer& layer, std::uint32_t tokens) {
  const double page = std::floor(layer.kv_bytes * cache_page_positions);
  return layer.layers * page * cache_pages_of(tokens) + std::floor(layer.hidden_bytes(1));
}

}  // namespace

// The time runs from the end of the iteration before the first counted one, so that pauses between
// iterations (checkpoints, another plan) count, as the devices are idle then.
device_shares shares_of(const training_report& r) {
  device_shares s;
  if (r.iterations.empty()) return s;
  const auto [first, end] = counted_of(r.iterations.size());
  const double wall_s = r.iterations[end - 1].end_s -
                        (first > 0 ? r.iterations[first - 1].end_s : r.iterations[0].begin_s);
  const double all_s = wall_s * r.stages * r.pipelines;
  if (!(all_s > 0)) return s;
  double update_s = 0;  // of an iteration, by all devices
  for (const auto& m : r.measured) update_s += (m.update_s + m.gradients_s) * r.pipelines;
  for (std::size_t i = first; i < end; ++i) {
    s.training += r.iterations[i].busy_s / all_s;
    s.prefill += r.iterations[i].guest_s.value_or(0) / all_s;
    s.update += update_s / all_s;
  }
  return s;
}

// A request that was cancelled or declined has no time to first token: only served ones count,
// except in the share of those in time, which is of all that were offered.
request_figures figures_of(const prefill_result& r, const model& served) {
  const auto& requests = r.done.requests;
  const auto layer = planners::served_layer_of(served);
  request_figures f;
  double tokens = 0, in_time = 0, from_s = never, to_s = 0;
  double moved_s = std::accumulate(r.done.hops_s.begin(), r.done.hops_s.end(), 0.0);
  for (const auto& q : requests) {
    ++f.ended[q.how];
    f.ended_once += q.ends == 1 ? 1 : 0;
    f.yields += q.where.yields;
    f.received_bytes += q.where.kv_bytes + q.where.hidden_bytes;
    from_s = std::min(from_s, q.arrived_s);
    to_s = std::max(to_s, q.ended_s);
    if (layer && q.tokens > 0 && q.where.bubbles &&
        double(q.where.kv_bytes) < needed_bytes(*layer, q.prompt_tokens))
      ++f.partial_starts;
    if (q.how == ending::declined) ++f.declined_by_reason[q.why.text];
    if (q.how == ending::failed && f.ended[q.how] == 1) f.first_failure = q.why.text;
    if (q.how != ending::served) continue;
    const double ttft_s = q.first_token_s - q.arrived_s;
    f.ttft_s.push_back(ttft_s);
    f.without_transfer_s.push_back(ttft_s - q.where.transfer_s);
    f.queue_s.push_back(q.where.queue_s);
    f.prefill_s.push_back(q.where.prefill_s);
    f.transfer_s.push_back(q.where.transfer_s);
    if (q.where.promised_s > 0) f.over_promised.push_back(q.where.prefill_s / q.where.promised_s);
    tokens += q.prompt_tokens;
    moved_s += q.where.transfer_s;
    in_time += ttft_s <= r.study.play.ttft_s ? 1 : 0;
  }
  const double waited_s = std::accumulate(f.ttft_s.begin(), f.ttft_s.end(), 0.0);
  if (waited_s > 0) f.transfer_share = moved_s / waited_s;
  if (!requests.empty()) f.in_time_share = in_time / double(requests.size());
  if (to_s > from_s) {
    f.tokens_per_s = tokens / (to_s - from_s);
    f.requests_per_s = double(f.ttft_s.size()) / (to_s - from_s);
  }
  return f;
}

double slowdown_of(const prefill_result& r, double iteration_s) {
  if (r.paired) return r.paired->ratio_median - 1;
  const double alone_s = r.iteration_s_without.value_or(0);
  return alone_s > 0 ? iteration_s / alone_s - 1 : 0;
}

}  // namespace troupe::studies
