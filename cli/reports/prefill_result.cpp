#include "cli/reports/prefill_result.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "cli/common/human.hpp"
#include "cli/reports/training_result.hpp"
#include "messages/base/statistics.hpp"
#include "messages/base/time.hpp"
#include "messages/domain/served_bytes.hpp"
#include "planners/bubbletea/prefill_times.hpp"
#include "studies/prefill_bubbles.hpp"

namespace troupe::cli {

namespace {

using ending = studies::played_request::ending;
using all_seconds = std::vector<double>;

/// Shares of the devices' time in the iterations that count.
struct shares {
  double training = 0, update = 0, prefill = 0, wall_s = 0;

  double after() const { return training + prefill; }
  double idle() const { return std::max(0.0, 1 - training - update - prefill); }
};

shares shares_of(const training_report& r) {
  shares s;
  if (r.iterations.empty()) return s;
  const auto [first, end] = studies::counted_of(r.iterations.size());
  s.wall_s = r.iterations[end - 1].end_s -
             (first > 0 ? r.iterations[first - 1].end_s : r.iterations[0].begin_s);
  const double all_s = s.wall_s * r.stages * r.pipelines;
  if (!(all_s > 0)) return s;
  double update_s = 0;
  for (const auto& m : r.measured) update_s += (m.update_s + m.gradients_s) * r.pipelines;
  for (std::size_t i = first; i < end; ++i) {
    s.training += r.iterations[i].busy_s / all_s;
    s.prefill += r.iterations[i].guest_s.value_or(0) / all_s;
    s.update += update_s / all_s;
  }
  return s;
}

all_seconds of_served(const prefill_result& r,
                      const std::function<double(const studies::played_request&)>& what) {
  all_seconds all;
  for (const auto& q : r.done.requests)
    if (q.how == ending::served) all.push_back(what(q));
  return all;
}

double ttft_s(const studies::played_request& q) {
  return q.first_token_s - q.arrived_s;
}

json percentiles(const all_seconds& all_s, bool whole) {
  const auto at = [&](double share) { return 1e3 * statistics::quantile(all_s, share); };
  json d{{"p50", at(0.5)}, {"p99", at(0.99)}};
  if (!whole) return d;
  d["mean"] = 1e3 * statistics::mean(all_s);
  d["p90"] = at(0.9);
  d["max"] = at(1);
  return d;
}

std::map<std::string, std::uint64_t> declined_by_reason(const prefill_result& r) {
  std::map<std::string, std::uint64_t> all;
  for (const auto& q : r.done.requests)
    if (q.how == ending::declined) ++all[q.why.text];
  return all;
}

/// Why the first request that failed did; empty: none did.
std::string first_failure(const prefill_result& r) {
  const auto at = std::ranges::find(r.done.requests, ending::failed, &studies::played_request::how);
  return at == r.done.requests.end() ? "" : at->why.text;
}

std::uint64_t count(const prefill_result& r, ending how) {
  return static_cast<std::uint64_t>(
      std::ranges::count(r.done.requests, how, &studies::played_request::how));
}

std::optional<double> iteration_s_without(const prefill_result& r) {
  return r.paired ? r.paired->iteration_s_without : r.iteration_s_without;
}

double slowdown(const prefill_result& r, const training_report& training) {
  if (r.paired) return r.paired->ratio_median - 1;
  const double without = r.iteration_s_without.value_or(0);
  return without > 0 ? mean_iteration_s(training) / without - 1 : 0;
}

/// The share of all offered that were served in time.
double attained(const prefill_result& r, double limit_s) {
  const auto all = of_served(r, ttft_s);
  const auto good = std::ranges::count_if(all, [&](double s) { return s <= limit_s; });
  return r.done.requests.empty() ? 0 : double(good) / double(r.done.requests.size());
}

json document_of(const paired_windows& p) {
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

/// Requests whose first token came although less than their prompt's cache had.
std::uint64_t partial_starts(const prefill_result& r, const bubble_lending& how) {
  const auto layer = planners::served_layer_of(how.model.shape);
  if (!layer) return 0;
  return static_cast<std::uint64_t>(
      std::ranges::count_if(r.done.requests, [&](const studies::played_request& q) {
        const double page = std::floor(layer->kv_bytes * cache_page_positions);
        const double bytes = layer->layers * page * cache_pages_of(q.prompt_tokens) +
                             std::floor(layer->hidden_bytes(1));
        return q.tokens > 0 && q.where.bubbles && double(q.where.kv_bytes) < bytes;
      }));
}

/// A real run is not repeated without prompts. Its devices are CPUs: GPUs have no guests yet.
bool is_real(const prefill_result& r) {
  return !r.iteration_s_without;
}

json options_document(const prefill_result& r, const bubble_lending& how) {
  return {{"rule", how.rule},
          {"look_ahead", how.look_ahead},
          {"chunk", how.chunk},
          {"guard_ms", how.guard_ms},
          {"op_ms", how.longest_op_ms(!is_real(r))},
          {"depth", std::max(1u, how.depth)},
          {"model", how.model.name},
          {"guest_gb", how.memory_gb},
          {"saturated", r.study.play.saturated},
          {"rate", r.study.play.rate},
          {"decoders", r.done.decoders}};
}

/// Nobody sees all messages of a real run, nor when its devices were idle.
void mark_unknown(json& d, const prefill_result& r) {
  for (const auto* key : {"packing", "residual_bubbles", "hops_ms"})
    for (auto& value : d[key]) value = nullptr;
  std::uint64_t bytes = 0;  // that decoders and guests have received
  for (const auto& q : r.done.requests) bytes += q.where.kv_bytes + q.where.hidden_bytes;
  d["kv"]["bytes"] = bytes;
  d["kv"]["blocks"] = d["kv"]["resent_blocks"] = nullptr;
}

void add_times(json& d, const prefill_result& r) {
  d["ttft_ms"] = percentiles(of_served(r, ttft_s), true);
  d["ttft_without_transfer_ms"] =
      percentiles(of_served(r, [](const auto& q) { return ttft_s(q) - q.where.transfer_s; }), true);
  d["queue_ms"] = percentiles(of_served(r, [](const auto& q) { return q.where.queue_s; }), false);
  d["hops_ms"] = percentiles(r.done.hops_s, false);
  d["prefill_ms"] =
      percentiles(of_served(r, [](const auto& q) { return q.where.prefill_s; }), false);
  d["kv_transfer_ms"] =
      percentiles(of_served(r, [](const auto& q) { return q.where.transfer_s; }), false);
  double hops_s = 0, first_tokens_s = 0;
  for (const auto s : r.done.hops_s) hops_s += s;
  for (const auto& q : r.done.requests) {
    if (q.how != ending::served) continue;
    hops_s += q.where.transfer_s;
    first_tokens_s += ttft_s(q);
  }
  d["ttft_overhead_share"] = first_tokens_s > 0 ? hops_s / first_tokens_s : 0;
  all_seconds ratios;
  for (const auto& q : r.done.requests)
    if (q.how == ending::served && q.where.promised_s > 0)
      ratios.push_back(q.where.prefill_s / q.where.promised_s);
  d["predicted"] = {{"ratio_mean", statistics::mean(ratios)},
                    {"ratio_p50", statistics::median(ratios)},
                    {"ratio_p99", statistics::quantile(ratios, 0.99)}};
  d["slo"] = {{"ttft_s", nullptr}, {"attained_share", nullptr}};
  if (const double within_s = r.study.play.ttft_s; within_s > 0)
    d["slo"] = {{"ttft_s", within_s}, {"attained_share", attained(r, within_s)}};
}

}  // namespace

double training_share(const training_report& r) {
  return shares_of(r).training;
}

json document_of(const prefill_result& r, const job_spec& job, const training_report& training) {
  auto d = options_document(r, *job.pipeline.bubbles);
  d["offered"] = r.done.requests.size();
  d["all_offered"] = r.done.all_offered;
  for (const auto& [name, how] :
       {std::pair{"served", ending::served}, std::pair{"declined", ending::declined},
        std::pair{"cancelled", ending::cancelled}, std::pair{"failed", ending::failed},
        std::pair{"open", ending::open}})
    d[name] = count(r, how);
  d["declined_by_reason"] = declined_by_reason(r);
  const auto failure = first_failure(r);
  d["first_failure"] = failure.empty() ? json() : json(failure);
  add_times(d, r);
  const auto s = shares_of(training);
  // From the first arrival to the last end.
  double tokens = 0, from_s = never, to_s = 0;
  for (const auto& q : r.done.requests) {
    from_s = std::min(from_s, q.arrived_s);
    to_s = std::max(to_s, q.ended_s);
    if (q.how == ending::served) tokens += q.prompt_tokens;
  }
  d["tokens_per_s"] = to_s > from_s ? tokens / (to_s - from_s) : 0;
  d["requests_per_s"] = to_s > from_s ? double(count(r, ending::served)) / (to_s - from_s) : 0;
  d["utilization"] = {{"before", r.training_without.value_or(s.training)},
                      {"training", s.training},
                      {"update", s.update},
                      {"prefill", s.prefill},
                      {"idle", s.idle()},
                      {"after", s.after()}};
  const auto bubbles = bubble_shares_of(r.done, *job.pipeline.bubbles);
  d["packing"] = {{"achieved_share", bubbles.prefill}, {"upper_bound_share", bubbles.upper_bound}};
  d["residual_bubbles"] = {{"count", bubbles.residual_bubbles},
                           {"mean_ms", 1e3 * bubbles.residual_s},
                           {"share", bubbles.residual}};
  d["paired"] = d["realtime"] = nullptr;
  if (const auto& p = r.paired) {
    d["paired"] = document_of(*p);
    d["realtime"] = r.realtime;
    // Of the windows: half of the time no prompt is offered.
    d["utilization"] = {{"before", p->busy_without},
                        {"training", p->busy_with},
                        {"update", s.update},
                        {"prefill", p->guests_with},
                        {"idle", 1 - p->busy_with - p->guests_with - s.update},
                        {"after", p->busy_with + p->guests_with}};
  }
  const auto alone_s = iteration_s_without(r);
  d["training_slowdown"] = slowdown(r, training);
  d["iteration_s_without"] = alone_s ? json(*alone_s) : json();
  const auto used = training.bubbles.value_or(bubble_use{});
  d["delayed_steps"] = used.delayed_steps;
  d["delay_s"] = used.delay_s;
  d["worst_delay_s"] = used.worst_delay_s;
  d["delay_p99_s"] = used.delay_quantile_s(0.99);
  std::uint64_t yields = 0, ends = 0;
  for (const auto& q : r.done.requests) {
    yields += q.where.yields;
    ends += q.ends == 1 ? 1 : 0;
  }
  d["yields"] = yields;
  d["kv"] = {{"pages_leaked", r.done.pages_leaked},
             {"partial_starts", partial_starts(r, *job.pipeline.bubbles)},
             {"resent_blocks", r.done.resent_blocks},
             {"blocks", r.done.blocks},
             {"bytes", r.done.block_bytes}};
  d["ends"] = ends;
  if (is_real(r)) mark_unknown(d, r);
  return d;
}

std::string text_of(const prefill_result& r, const job_spec& job, const training_report& training) {
  const auto& how = *job.pipeline.bubbles;
  const auto s = shares_of(training);
  const auto ttft = of_served(r, ttft_s);
  std::string text = fmt::format(
      "prefills of {} in its bubbles, rule {}, {} on extra nodes: {} offered{}, {} served, {} "
      "declined, {} cancelled, {} failed\n",
      how.model.name, how.rule, counted(r.done.decoders, "decoder"), r.done.requests.size(),
      r.study.play.saturated > 0 ? fmt::format(" ({} under way)", r.study.play.saturated) : "",
      count(r, ending::served), count(r, ending::declined), count(r, ending::cancelled),
      count(r, ending::failed));
  for (const auto& [why, n] : declined_by_reason(r))
    text += fmt::format("  declined: {} ({})\n", why, n);
  if (const auto why = first_failure(r); !why.empty())
    text += fmt::format("  the first that failed: {}\n", why);
  text += fmt::format(
      "devices' time: {:.2f} % training, {:.2f} % prefills, {:.2f} % updates, {:.2f} % idle; used "
      "{:.2f} % instead of {:.2f} %\n",
      100 * s.training, 100 * s.prefill, 100 * s.update, 100 * s.idle(), 100 * s.after(),
      100 * r.training_without.value_or(s.training));
  if (!ttft.empty())
    text += fmt::format("time to first token: median {}, 90th percentile {}, 99th {}\n",
                        duration_text(statistics::quantile(ttft, 0.5)),
                        duration_text(statistics::quantile(ttft, 0.9)),
                        duration_text(statistics::quantile(ttft, 0.99)));
  const auto used = training.bubbles.value_or(bubble_use{});
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
  text += fmt::format("training slowed down by {:.4g} %, {} steps delayed",
                      100 * slowdown(r, training), used.delayed_steps);
  if (used.delayed_steps > 0)
    text +=
        fmt::format(" (99 % of them by at most {}, the longest {})",
                    duration_text(used.delay_quantile_s(0.99)), duration_text(used.worst_delay_s));
  text += '\n';
  return text;
}

}  // namespace troupe::cli
