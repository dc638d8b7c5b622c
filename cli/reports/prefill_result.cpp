#include "cli/reports/prefill_result.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "cli/output/human.hpp"
#include "cli/reports/training_figures.hpp"
#include "messages/base/statistics.hpp"
#include "studies/prefill_bubbles.hpp"

namespace troupe::cli {

namespace {

using statistics::quantile;
using ending = studies::played_request::ending;
using all_seconds = std::vector<double>;

struct named_ending {
  const char* name;
  ending how;
};
constexpr named_ending endings[] = {{"served", ending::served},
                                    {"declined", ending::declined},
                                    {"cancelled", ending::cancelled},
                                    {"failed", ending::failed},
                                    {"open", ending::open}};

/// Percentiles in milliseconds. `whole`: with the mean and the extremes.
json percentiles(const all_seconds& all, bool whole = false) {
  json d{{"p50", 1e3 * quantile(all, 0.5)}, {"p99", 1e3 * quantile(all, 0.99)}};
  if (whole)
    d.update({{"mean", 1e3 * statistics::mean(all)},
              {"p90", 1e3 * quantile(all, 0.9)},
              {"max", 1e3 * quantile(all, 1)}});
  return d;
}

json document_of(const studies::paired_windows& p) {
  return {{"windows", p.windows},
          {"iterations_with", p.iterations_with},
          {"iterations_without", p.iterations_without},
          {"iteration_s_with", p.iteration_s_with},
          {"iteration_s_without", p.iteration_s_without},
          {"ratio_median", p.ratio_median},
          {"ratio_low", p.ratio_low},
          {"ratio_high", p.ratio_high},
          {"aa_low", p.aa_low},
          {"aa_high", p.aa_high}};
}

/// A real run's shares are those of the windows with prompts: in half of the time none is offered,
/// and means over all of it would show half of the effect.
json utilization_document(const studies::prefill_result& r, studies::device_shares s) {
  double before = r.training_without.value_or(s.training);
  if (const auto& p = r.paired) {
    before = p->busy_without;
    s.training = p->busy_with;
    s.prefill = p->guests_with;
  }
  return {{"before", before},     {"training", s.training}, {"update", s.update},
          {"prefill", s.prefill}, {"idle", s.idle()},       {"after", s.used()}};
}

// A simulation is repeated without prompts; a real run has windows without them.
json iteration_s_without(const studies::prefill_result& r) {
  if (r.paired) return r.paired->iteration_s_without;
  return r.iteration_s_without ? json(*r.iteration_s_without) : json();
}

/// Null where only a simulation can observe the network and the devices' idle times.
void mark_unknown(json& d, std::uint64_t received_bytes) {
  for (const auto* key : {"packing", "residual_bubbles", "hops_ms"})
    for (auto& value : d[key]) value = nullptr;
  d["kv"].update({{"blocks", nullptr}, {"resent_blocks", nullptr}, {"bytes", received_bytes}});
}

}  // namespace

json delays_document(const bubble_use& used) {
  return {{"delayed_steps", used.delayed_steps},
          {"delay_s", used.delay_s},
          {"worst_delay_s", used.worst_delay_s},
          {"delay_p99_s", used.delay_quantile_s(0.99)}};
}

// docs/papers/bubbletea.md has the meaning of the keys. A key stays in the document when its value
// is unknown, as null: programs need not distinguish kinds of runs.
json document_of(const studies::prefill_result& r, const job_spec& job,
                 const training_report& training) {
  const auto& how = *job.pipeline.bubbles;
  const auto f = figures_of(r, how.model.shape);
  const auto bubbles = bubble_shares_of(r.done, how);
  const double limit_s = r.study.play.ttft_s;
  json d{{"rule", how.rule},
         {"look_ahead", how.look_ahead},
         {"chunk", how.chunk},
         {"guard_ms", how.guard_ms},
         {"op_ms", how.longest_op_ms(!r.is_real())},  // real devices are CPUs: GPUs have no guests
         {"depth", std::max(1u, how.depth)},
         {"model", how.model.name},
         {"guest_gb", how.memory_gb},
         {"saturated", r.study.play.saturated},
         {"rate", r.study.play.rate},
         {"decoders", r.done.decoders},
         {"offered", r.done.requests.size()},
         {"all_offered", r.done.all_offered}};
  for (const auto& e : endings) d[e.name] = f.count(e.how);
  d.update({
      {"declined_by_reason", f.declined_by_reason},
      {"first_failure", f.first_failure.empty() ? json() : json(f.first_failure)},
      {"ttft_ms", percentiles(f.ttft_s, true)},
      {"ttft_without_transfer_ms", percentiles(f.without_transfer_s, true)},
      {"queue_ms", percentiles(f.queue_s)},
      {"hops_ms", percentiles(r.done.hops_s)},
      {"prefill_ms", percentiles(f.prefill_s)},
      {"kv_transfer_ms", percentiles(f.transfer_s)},
      {"ttft_overhead_share", f.transfer_share},
      {"predicted",
       {{"ratio_mean", statistics::mean(f.over_promised)},
        {"ratio_p50", statistics::median(f.over_promised)},
        {"ratio_p99", quantile(f.over_promised, 0.99)}}},
      {"slo",
       {{"ttft_s", limit_s > 0 ? json(limit_s) : json()},
        {"attained_share", limit_s > 0 ? json(f.in_time_share) : json()}}},
      {"tokens_per_s", f.tokens_per_s},
      {"requests_per_s", f.requests_per_s},
      {"utilization", utilization_document(r, studies::shares_of(training))},
      {"packing",
       {{"achieved_share", bubbles.prefill}, {"upper_bound_share", bubbles.upper_bound}}},
      {"residual_bubbles",
       {{"count", bubbles.residual_bubbles},
        {"mean_ms", 1e3 * bubbles.residual_s},
        {"share", bubbles.residual}}},
      {"realtime", r.paired ? json(r.realtime) : json()},
      {"paired", r.paired ? document_of(*r.paired) : json()},
      {"training_slowdown", slowdown_of(r, mean_iteration_s(training))},
      {"iteration_s_without", iteration_s_without(r)},
  });
  d.update(delays_document(training.bubbles.value_or(bubble_use{})));
  d["yields"] = f.yields;
  d["kv"] = {{"pages_leaked", r.done.pages_leaked},
             {"partial_starts", f.partial_starts},
             {"resent_blocks", r.done.resent_blocks},
             {"blocks", r.done.blocks},
             {"bytes", r.done.block_bytes}};
  d["ends"] = f.ended_once;
  if (r.is_real()) mark_unknown(d, f.received_bytes);
  return d;
}

std::string text_of(const studies::prefill_result& r, const job_spec& job,
                    const training_report& training) {
  const auto& how = *job.pipeline.bubbles;
  const auto f = figures_of(r, how.model.shape);
  const auto s = studies::shares_of(training);
  std::string text = fmt::format(
      "prefills of {} in its bubbles, rule {}, {} on extra nodes: {} offered{}, {} served, {} "
      "declined, {} cancelled, {} failed\n",
      how.model.name, how.rule, counted(r.done.decoders, "decoder"), r.done.requests.size(),
      r.study.play.saturated > 0 ? fmt::format(" ({} under way)", r.study.play.saturated) : "",
      f.count(ending::served), f.count(ending::declined), f.count(ending::cancelled),
      f.count(ending::failed));
  for (const auto& [why, n] : f.declined_by_reason)
    text += fmt::format("  declined: {} ({})\n", why, n);
  if (!f.first_failure.empty())
    text += fmt::format("  the first that failed: {}\n", f.first_failure);
  text += fmt::format(
      "devices' time: {:.2f} % training, {:.2f} % prefills, {:.2f} % updates, {:.2f} % idle; used "
      "{:.2f} % instead of {:.2f} %\n",
      100 * s.training, 100 * s.prefill, 100 * s.update, 100 * s.idle(), 100 * s.used(),
      100 * r.training_without.value_or(s.training));
  if (!f.ttft_s.empty())
    text +=
        fmt::format("time to first token: median {}, 90th percentile {}, 99th {}\n",
                    duration_text(quantile(f.ttft_s, 0.5)), duration_text(quantile(f.ttft_s, 0.9)),
                    duration_text(quantile(f.ttft_s, 0.99)));
  if (const auto& p = r.paired)
    text += fmt::format(
        "in {} windows by turns: an iteration takes {} with prompts and {} without; the ratio is "
        "{:.3f} ({:.3f} to {:.3f}; of windows without prompts among themselves {:.3f} to {:.3f})\n"
        "in windows with prompts devices are busy {:.1f} % of the time, in others {:.1f} %\n"
        "the training ran at {} priority\n",
        p->windows, duration_text(p->iteration_s_with), duration_text(p->iteration_s_without),
        p->ratio_median, p->ratio_low, p->ratio_high, p->aa_low, p->aa_high,
        100 * (p->busy_with + p->guests_with), 100 * p->busy_without,
        r.realtime ? "real-time" : "normal");
  const auto used = training.bubbles.value_or(bubble_use{});
  text += fmt::format("training slowed down by {:.4g} %, {} steps delayed",
                      100 * slowdown_of(r, mean_iteration_s(training)), used.delayed_steps);
  if (used.delayed_steps > 0)
    text +=
        fmt::format(" (99 % of them by at most {}, the longest {})",
                    duration_text(used.delay_quantile_s(0.99)), duration_text(used.worst_delay_s));
  return text + '\n';
}

}  // namespace troupe::cli
