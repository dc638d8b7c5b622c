#include <fmt/format.h>

#include "bubbletea/figures.hpp"

namespace bubbletea {

namespace {

constexpr double ttft_bases_ms[] = {1000, 300};  // "around 1 second"; the paper's own prefill

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
               p.promised, 100 * r.prefill, 100 * r.bound, 100 * r.after(), 100 * r.residual,
               1e3 * r.residual_mean_s, r.served_per_s(), r.tokens_per_s(), reasons(r));
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
               r.ttft_with_transfer.p99, 100 * r.prefill, reasons(r));
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
  fmt::print("\n{:46}{:20}{:44}{}\n", "figure", "paper", "here", "why different");
  for (const auto& x : f.compared)
    fmt::print("{:46}{:20}{:44}{}\n", x.what, x.paper, x.here, x.why);
}

namespace {

/// Text without anything that JSON would escape.
std::string quoted(const std::string& text) {
  return '"' + text + '"';
}

template <class Items, class Write>
void print_list(const char* name, const Items& items, const char* after, Write write) {
  fmt::print("  \"{}\": [", name);
  for (std::size_t i = 0; i < items.size(); ++i) {
    fmt::print("{}\n    ", i == 0 ? "" : ",");
    write(items[i]);
  }
  fmt::print("\n  ]{}\n", after);
}

std::string declined(const filling& r) {
  std::string all;
  for (const auto& [why, n] : r.declined)
    all += fmt::format("{}\"{}\": {}", all.empty() ? "" : ", ", why, n);
  return "{" + all + "}";
}

}  // namespace

void print_json(const figures& f) {
  fmt::print("{{\n");
  print_list("saturated", f.saturated, ",", [](const packed& p) {
    const auto& r = p.result;
    fmt::print(
        "{{\"training\": {}, \"served\": {}, \"rule\": {}, \"promised\": {}, \"before\": {}, "
        "\"updates\": {}, \"prefill\": {}, \"after\": {}, \"upper_bound_share\": {}, "
        "\"residual_share\": {}, \"residual_mean_ms\": {}, \"requests_per_s\": {}, "
        "\"tokens_per_s\": {}, \"declined_by_reason\": {}}}",
        quoted(p.training), quoted(p.served), quoted(p.rule), p.promised, r.before, r.tails,
        r.prefill, r.after(), r.bound, r.residual, 1e3 * r.residual_mean_s, r.served_per_s(),
        r.tokens_per_s(), declined(r));
  });
  print_list("by_arrival", f.by_arrival, ",", [](const open_loop& o) {
    const auto& r = o.result;
    fmt::print(
        "{{\"served\": {}, \"rate\": {}, \"offered\": {}, \"ended\": {}, "
        "\"declined_by_reason\": {}, \"attained_share\": {}, \"ttft_without_transfer_ms\": "
        "{{\"p50\": {}, \"p90\": {}, \"p99\": {}}}, \"ttft_ms\": {{\"p50\": {}, \"p90\": {}, "
        "\"p99\": {}}}, \"prefill\": {}}}",
        quoted(o.served), o.rate, r.offered, r.served, declined(r), r.attained, 1e3 * r.ttft.p50,
        1e3 * r.ttft.p90, 1e3 * r.ttft.p99, 1e3 * r.ttft_with_transfer.p50,
        1e3 * r.ttft_with_transfer.p90, 1e3 * r.ttft_with_transfer.p99, r.prefill);
  });
  print_list("depths", f.depths, ",", [](const deep& d) {
    const auto& r = d.result;
    fmt::print(
        "{{\"served\": {}, \"depth\": {}, \"layers\": {}, \"guest_gb\": {}, \"offered\": {}, "
        "\"ended\": {}, \"declined_by_reason\": {}, \"ttft_without_transfer_ms\": {{\"p50\": {}, "
        "\"p90\": {}, \"p99\": {}}}}}",
        quoted(d.served), d.depth, d.layers, d.guest_gb, r.offered, r.served, declined(r),
        1e3 * r.ttft.p50, 1e3 * r.ttft.p90, 1e3 * r.ttft.p99);
  });
  print_list("figure13", f.figure13, ",", [&](const overhead& o) {
    fmt::print(
        "{{\"tokens\": {}, \"gpus\": {}, \"hops\": {}, \"gbit_s\": {}, \"ms\": {}, "
        "\"ttft_penalty\": [",
        o.tokens, o.gpus, o.hops, o.gbit_s, o.ms);
    for (const auto base : ttft_bases_ms)
      fmt::print("{}{{\"of_ms\": {}, \"share\": {}}}", base == ttft_bases_ms[0] ? "" : ", ", base,
                 o.ms / base);
    fmt::print("]}}");
  });
  print_list("compared", f.compared, "", [](const comparison& c) {
    fmt::print("{{\"what\": {}, \"paper\": {}, \"here\": {}, \"why\": {}}}", quoted(c.what),
               quoted(c.paper), quoted(c.here), quoted(c.why));
  });
  fmt::print("}}\n");
}

}  // namespace bubbletea
