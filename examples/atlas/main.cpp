// The ATLAS paper's Figures 6 and 8 to 11, in virtual time: README.md.
#include "atlas/testbed.hpp"
#include "messages/domain/schedules.hpp"
#include "planners/schedule/named_schedule.hpp"

namespace {

void figure6() {
  fmt::print("Figure 6: 6 stages, 2 a datacenter, 2 pipelines, 4 micro-batches, C = 2; slots\n\n");
  const auto job = must(formats::load_job(formats::configs_directory() / "jobs/figure6.yaml"));
  auto trained = job;
  trained.train.emplace();
  const auto c = std::make_shared<const cluster>(studies::cluster_of_slots(job));
  std::map<std::string, measured> all;
  for (auto name : {"gpipe", "megatron", "varuna", "varuna-forward-first", "atlas",
                    "atlas-least-progress", "best"}) {
    all[name] = run(c, trained, name);
    fmt::print("{:24}{:4.0f}{:8.1f} % of the GPUs' time\n", name, all[name].s,
               100 * all[name].used);
  }
  compared.push_back({"6: slots, Varuna / ATLAS", "38 / 36",
                      fmt::format("{:.0f} / {:.0f}", all["varuna"].s, all["atlas"].s), ""});
  compared.push_back(
      {"6: the same, forward first / least progress first", "",
       fmt::format("{:.0f} / {:.0f}", all["varuna-forward-first"].s, all["atlas-least-progress"].s),
       "not in the paper: the order alone; and another tie-break"});
}

/// Figure 9 without a model: C = 3, as in section 4.2, and only the pipeline.
void figure9_in_slots() {
  fmt::print("\nFigure 9 in slots: 3 pipelines of 4 stages (2, 1, 1), C = 3\n\n");
  ranges min, searched;
  for (const auto m : {4u, 16u}) {
    planners::pipeline_shape shape{4, 3, m, {2, 1, 1}, 0, {}, {}};
    shape.costs.wan = 3;
    fmt::print("M = {:2}", m);
    std::map<std::string, double> s;
    for (const auto name : schedule_names) {
      s[std::string{name}] = must(planners::schedule_pipeline(shape, name)).length;
      fmt::print("   {} {:.0f}", name, s[std::string{name}]);
    }
    fmt::print("   bound {:.0f}\n", planners::pipeline_lower_bound(shape));
    for (const auto& [name, x] : s)
      min[name].add(x / s["atlas-least-progress"]), searched[name].add(x / s["best"]);
  }
  const auto max = [](ranges& r) {
    return fmt::format("{:.2f}, {:.2f}, {:.2f}", r["gpipe"].max, r["megatron"].max,
                       r["varuna"].max);
  };
  compared.push_back({"9 in slots, C = 3: the three / ATLAS, at most", "1.82, 1.72, 1.52",
                      fmt::format("{}; / best {}", max(min), max(searched)),
                      "Varuna: 1.09 with 16 micro-batches"});
  compared.push_back({"9 in slots: Varuna, forward first / ATLAS, at most", "",
                      fmt::format("{:.2f}", min["varuna-forward-first"].max), "not in the paper"});
}

void print_ratios(const std::string& figure, const char* const (&paper)[3], ranges& strict,
                  ranges& min) {
  for (std::size_t i = 0; i < 3; ++i)
    compared.push_back(
        {fmt::format("{}: {} / ATLAS, at most", figure, baselines[i]), paper[i],
         fmt::format("{:.2f}; strict rank {:.2f}", min[baselines[i]].max, strict[baselines[i]].max),
         i == 0 ? "layers, batch and kernel times are not published" : "same"});
  compared.push_back({figure + ": Varuna, forward first / ATLAS, at most", "",
                      fmt::format("{:.2f}", min["varuna-forward-first"].max),
                      "not in the paper: what is left without the order's gain"});
}

void figures8and9() {
  ranges strict8, least8, strict9, least9;
  range used8, used9;
  fmt::print(
      "\nFigure 8: seconds per iteration; baselines over one connection, ATLAS over many. "
      "One layer per stage\n\n");
  heads();
  for (const auto* model : {"gpt-a", "gpt-b"})
    for (const auto m : {4u, 16u})
      for (const double ms : {10.0, 20.0, 30.0, 40.0})
        compare(model, 1, m, ms, 1, strict8, least8, used8);
  fmt::print("\nFigure 9: the same, all over many connections; one and two layers per stage\n\n");
  heads();
  for (const auto layers : {1u, 2u})
    for (const auto* model : {"gpt-a", "gpt-b"})
      for (const auto m : {4u, 16u}) compare(model, layers, m, 40, 0, strict9, least9, used9);
  figure9_in_slots();
  print_ratios("8", {"17", "13", "12"}, strict8, least8);
  print_ratios("9", {"1.82", "1.72", "1.52"}, strict9, least9);
  compared.push_back({"9: GPU utilization under ATLAS, %", "near 45", used9.text(),
                      "least: GPT-A, M = 4; most: GPT-B, M = 16, two layers per stage"});
}

void figure10() {
  fmt::print(
      "\nFigure 10: pipelines per iteration time (1000 slots), 60 stages and micro-batches\n\n"
      "{:34}{:>10}{:>12}{:>10}{:>10}\n",
      "", "varuna", "V. f.first", "ATLAS", "ATLAS lp");
  const std::vector<std::vector<std::uint32_t>> sets{{600},
                                                     {600, 600},
                                                     {600, 600, 600},
                                                     {600, 600, 600, 600},
                                                     {600, 600, 600, 600, 600},
                                                     {600, 500, 400, 300, 200}};
  for (const int c : {2, 3}) {
    std::map<std::string, std::vector<double>> all;
    for (const auto& gpus : sets) {
      fmt::print("C = {}  {:26}", c, fmt::format("{}", fmt::join(gpus, " ")));
      for (const auto& name : studied) {
        all[name].push_back(1000 * select(gpus, c, name).chosen()->throughput);
        fmt::print("{:{}.2f}", all[name].back(), name == studied[1] ? 12 : 10);
      }
      fmt::print("\n");
    }
    const auto gain = [&](const std::string& name, std::size_t set) {
      return fmt::format("{:+.1f}", 100 * (all[name][set] / all["varuna"][set] - 1));
    };
    compared.push_back(
        {fmt::format("10: 5 DCs / 1 DC, ATLAS, C = {}", c), c == 2 ? "4.3" : "4.7",
         fmt::format("{:.2f}", all["atlas-least-progress"][4] / all["atlas-least-progress"][0]),
         c == 2 ? "an iteration grows by 2.7 %; the paper's by about 16"
                : "cells of 3: 9 pipelines in one DC, 48 in five"});
    for (const std::size_t set : {4, 5})
      compared.push_back({fmt::format("10: ATLAS over Varuna, C = {}, DC-set-{}, %", c, set - 3),
                          c == 2 ? "up to +11" : "up to +24",
                          fmt::format("{}; strict rank {}; Varuna, forward first {}",
                                      gain("atlas-least-progress", set), gain("atlas", set),
                                      gain("varuna-forward-first", set)),
                          "most of it is the order of forward and recompute"});
  }
}

void figure11() {
  fmt::print("\nFigure 11: 600 + F * 600 GPUs, C = 2; throughput over one datacenter's\n\n{:24}",
             "F, %");
  for (std::uint32_t f = 0; f <= 100; f += 10) fmt::print("{:6}", f);
  for (const auto& name : studied) {
    fmt::print("\n{:24}", name);
    double one = 0;
    std::string steps;
    double before = 0;
    for (std::uint32_t f = 0; f <= 100; f += 10) {
      const double x = select({600, 6 * f}, 2, name).chosen()->throughput;
      if (f == 0) one = before = x;
      fmt::print("{:6.2f}", x / one);
      if (x > before * 1.001) steps += fmt::format("{}{}", steps.empty() ? "" : ", ", f);
      before = x;
    }
    if (name == "atlas-least-progress")
      compared.push_back({"11: throughput grows at F, %", "20, ... (flat 20 to 30)", steps,
                          "pipelines come in cells of C = 2"});
  }
  const auto longer = [](const std::string& name) {
    return 100 * (must(planners::schedule_pipeline({60, 2, 60, {30, 30}, 0, {}, {}}, name)).length /
                      must(planners::schedule_pipeline({60, 2, 60, {60}, 0, {}, {}}, name)).length -
                  1);
  };
  compared.push_back(
      {"11: a second DC makes an iteration longer by, %", "about 11",
       fmt::format("{:.1f}; strict rank {:.1f}; Varuna {:.1f}", longer("atlas-least-progress"),
                   longer("atlas"), longer("varuna")),
       "recompute-first (Varuna) is near the paper's 11"});
  fmt::print("\n");
}

}  // namespace

int main() {
  figure6();
  figures8and9();
  figure10();
  figure11();
  print_compared(52, 26, 54);
}
