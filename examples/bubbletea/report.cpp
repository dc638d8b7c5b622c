#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bubbletea/figures.hpp"
#include "harness/figures.hpp"

namespace bubbletea {

namespace {

std::string reasons(const filling& r) {
  std::string all;
  for (const auto& [why, n] : r.declined)
    all += fmt::format("{}{} {}", all.empty() ? "" : ", ", n, why);
  return all.empty() ? "0" : all;
}

void print_saturated(const figures& f) {
  std::string training;
  for (const auto& p : f.saturated) {
    const auto& r = p.result;
    const auto& b = r.bubbles;
    if (training != p.training + p.served) {
      training = p.training + p.served;
      fmt::print(
          "\n{}, {}; shares of all devices' time, %; steps of the training {:.2f}, copies of "
          "gradients and updates {:.2f}\n\n{:13}{:>9}{:>9}{:>8}{:>9}{:>10}{:>14}{:>13}{:>12}   "
          "declined\n",
          p.training, p.served, 100 * r.before, 100 * r.tails, "rule", "promised", "prefill",
          "bound", "after", "residual", "residual, ms", "requests/s", "tokens/s");
    }
    fmt::print("{:13}{:9}{:9.2f}{:8.2f}{:9.2f}{:10.2f}{:14.2f}{:13.1f}{:12.0f}   {}\n", p.rule,
               p.promised, 100 * b.prefill, 100 * b.upper_bound, 100 * r.after(), 100 * b.residual,
               1e3 * b.residual_s, r.served_per_s(), r.tokens_per_s(), reasons(r));
  }
}

void print_by_arrival(const figures& f) {
  fmt::print(
      "\nBy arrival beside GPT-A, resumable, TTFT limit 2 s; seconds without decode and first "
      "token;\n\"with transfer\": the whole cache is sent after the prefill\n\n"
      "{:14}{:>6}{:>9}{:>9}{:>11}{:>8}{:>8}{:>8}{:>20}{:>8}{:>11}   declined\n",
      "model", "rate", "offered", "served", "in time, %", "p50", "p90", "p99", "with transfer p50",
      "p99", "prefill, %");
  for (const auto& o : f.by_arrival) {
    const auto& r = o.result;
    fmt::print("{:14}{:>6}{:9}{:9}{:11.1f}{:8.3f}{:8.3f}{:8.3f}{:20.3f}{:8.3f}{:11.2f}   {}\n",
               o.served, fmt::format("x{}", o.rate), r.offered, r.served, 100 * r.attained,
               r.ttft.p50, r.ttft.p90, r.ttft.p99, r.ttft_with_transfer.p50,
               r.ttft_with_transfer.p99, 100 * r.bubbles.prefill, reasons(r));
  }
}

void print_depths(const figures& f) {
  fmt::print(
      "\nPrefill pipelines by depth, 48 GPUs (8 pipelines), resumable, x10, TTFT limit 2 s; "
      "seconds\n\n{:14}{:>6}{:>14}{:>10}{:>9}{:>8}{:>8}{:>8}   declined\n",
      "model", "depth", "layers a GPU", "GB a GPU", "served", "p50", "p90", "p99");
  for (const auto& d : f.depths) {
    const auto& r = d.result;
    fmt::print("{:14}{:6}{:14}{:10.2f}{:9}{:8.3f}{:8.3f}{:8.3f}   {}\n", d.served, d.depth,
               d.layers, d.guest_gb, r.served, r.ttft.p50, r.ttft.p90, r.ttft.p99, reasons(r));
  }
}

void print_figure13(const figures& f) {
  fmt::print("\nFigure 13: Llama 3 8B over N GPUs, B L H x 2 bytes a hop; ms\n\n{:8}", "tokens");
  std::vector<const overhead*> first;
  for (const auto& o : f.figure13)
    if (o.tokens == f.figure13[0].tokens) {
      first.push_back(&o);
      fmt::print("{:>27}", fmt::format("N={} {} hops {} Gbit/s", o.gpus, o.hops, o.gbit_s));
    }
  std::uint32_t tokens = 0;
  for (const auto& o : f.figure13) {
    if (o.tokens != tokens) fmt::print("\n{:<8}", tokens = o.tokens);
    fmt::print("{:27.1f}", o.ms);
  }
  fmt::print("\n");
}

}  // namespace

void print_text(const figures& f) {
  fmt::print(
      "{}\nVirtual: timetables and packings of the planners; no actor, no network, no "
      "decoder is involved.\n",
      f.trace);
  print_saturated(f);
  print_by_arrival(f);
  print_depths(f);
  print_figure13(f);
  troupe::print_compared(46, 20, 44);
}

namespace {

using json = nlohmann::ordered_json;

json milliseconds(const seconds_of& s) {
  return {{"p50", 1e3 * s.p50}, {"p90", 1e3 * s.p90}, {"p99", 1e3 * s.p99}};
}

json declined(const filling& r) {
  auto all = json::object();
  for (const auto& [why, n] : r.declined) all[why] = n;
  return all;
}

json saturated(const filled& p) {
  const auto& r = p.result;
  return {{"training", p.training},
          {"served", p.served},
          {"rule", p.rule},
          {"promised", p.promised},
          {"before", r.before},
          {"updates", r.tails},
          {"prefill", r.bubbles.prefill},
          {"after", r.after()},
          {"upper_bound_share", r.bubbles.upper_bound},
          {"residual_share", r.bubbles.residual},
          {"residual_mean_ms", 1e3 * r.bubbles.residual_s},
          {"requests_per_s", r.served_per_s()},
          {"tokens_per_s", r.tokens_per_s()},
          {"declined_by_reason", declined(r)}};
}

json by_arrival(const filled& o) {
  const auto& r = o.result;
  return {{"served", o.served},
          {"rate", o.rate},
          {"offered", r.offered},
          {"ended", r.served},
          {"declined_by_reason", declined(r)},
          {"attained_share", r.attained},
          {"ttft_without_transfer_ms", milliseconds(r.ttft)},
          {"ttft_ms", milliseconds(r.ttft_with_transfer)},
          {"prefill", r.bubbles.prefill}};
}

json by_depth(const filled& d) {
  const auto& r = d.result;
  return {{"served", d.served},
          {"depth", d.depth},
          {"layers", d.layers},
          {"guest_gb", d.guest_gb},
          {"offered", r.offered},
          {"ended", r.served},
          {"declined_by_reason", declined(r)},
          {"ttft_without_transfer_ms", milliseconds(r.ttft)}};
}

json penalties(const overhead& o) {
  json d{
      {"tokens", o.tokens}, {"gpus", o.gpus}, {"hops", o.hops}, {"gbit_s", o.gbit_s}, {"ms", o.ms}};
  for (const double base : {1000, 300})  // TTFT of "around 1 second"; the paper's own prefill
    d["ttft_penalty"].push_back({{"of_ms", base}, {"share", o.ms / base}});
  return d;
}

}  // namespace

void print_json(const figures& f) {
  json d;
  for (const auto& p : f.saturated) d["saturated"].push_back(saturated(p));
  for (const auto& o : f.by_arrival) d["by_arrival"].push_back(by_arrival(o));
  for (const auto& o : f.depths) d["depths"].push_back(by_depth(o));
  for (const auto& o : f.figure13) d["figure13"].push_back(penalties(o));
  for (const auto& c : troupe::compared)
    d["compared"].push_back(
        {{"what", c.what}, {"paper", c.paper}, {"here", c.here}, {"why", c.why}});
  fmt::print("{}\n", d.dump(2));
}

}  // namespace bubbletea
