// BubbleTea's utilization and overheads, by its planners in virtual time: README.md.
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "bubbletea/figures.hpp"
#include "formats/load/load.hpp"

using namespace troupe;
using bubbletea::figures;
using planners::packing_rule;

namespace {

constexpr auto schedule = "atlas-least-progress";
const std::string slots = "Slots for seconds, C = 3";
constexpr std::size_t devices = 12, waiting = 64, look_ahead = 32;
constexpr double iterations = 40;  // of a saturated run

void saturate(figures& f, const std::string& training, const std::string& served,
              const bubbletea::lender& from, const std::vector<formats::inference_row>& trace,
              double op_s, double guard_s) {
  for (const auto rule : {packing_rule::whole, packing_rule::look_ahead, packing_rule::chunked,
                          packing_rule::resumable}) {
    bubbletea::filling_options o;
    o.packing.rule = rule;
    o.packing.look_ahead = look_ahead;
    o.packing.op_s = op_s;
    o.guard_s = guard_s;
    // As many for each device as it looks ahead.
    o.saturated = rule == packing_rule::look_ahead ? devices * look_ahead : waiting;
    o.horizon_s = iterations * from.times.length / from.times.iterations;
    f.saturated.push_back({training, served, std::string{to_string(rule)}, o.saturated,
                           bubbletea::fill(from, trace, o)});
  }
}

void by_arrival(figures& f, const std::string& served, const bubbletea::lender& from,
                const std::vector<formats::inference_row>& trace, std::vector<double> rates) {
  for (const auto rate : rates) {
    bubbletea::filling_options o;
    o.rate = rate;
    o.ttft_s = 2;
    f.by_arrival.push_back({served, rate, bubbletea::fill(from, trace, o)});
  }
}

/// On four testbeds, so that a stage has eight peers.
void depths(figures& f, const std::vector<formats::inference_row>& trace) {
  for (const std::string served : {"llama3.2-1b", "llama3-8b"})
    for (const std::uint32_t depth : {1u, 2u, 4u}) {
      const auto from = bubbletea::gpt_a(schedule, served + ".json", 8, depth);
      bubbletea::filling_options o;
      o.rate = 10;
      o.ttft_s = 2;
      f.depths.push_back({served, depth, from.groups[0].guests[0].layers, from.guest_gb,
                          bubbletea::fill(from, trace, o)});
    }
}

void figure13(figures& f) {
  const auto configs = formats::configs_directory();
  const auto m = formats::load_model(configs / "models/llama3-8b.json");
  const auto layer = planners::served_layer_of(*m);
  for (std::uint32_t tokens = 1024; tokens <= 8192; tokens += 1024)
    for (const std::uint32_t gpus : {32u, 16u})
      for (const double gbit_s : {200.0, 100.0})
        for (const auto hops : {gpus, gpus - 1})
          f.figure13.push_back({tokens, gpus, hops, gbit_s,
                                1e3 * planners::pipeline_overhead_s(*layer, gbit_s, tokens, hops)});
  const auto c = formats::load_cluster(configs / "clusters/atlas-testbed.yaml");
  f.own_prefill_ms =
      1e3 * planners::prefill_s(planners::prefill_rate_of(*layer, c->gpu_of(0)), 32, 8192, 0);
}

const bubbletea::packed& of(const figures& f, const std::string& training,
                            const std::string& served, const std::string& rule) {
  for (const auto& p : f.saturated)
    if (p.training == training && p.served == served && p.rule == rule) return p;
  return f.saturated.front();
}

double overhead_ms(const figures& f, std::uint32_t gpus, std::uint32_t hops, double gbit_s) {
  for (const auto& o : f.figure13)
    if (o.tokens == 8192 && o.gpus == gpus && o.hops == hops && o.gbit_s == gbit_s) return o.ms;
  return 0;
}

void compare(figures& f) {
  const auto shares = [&](const std::string& training, const std::string& served) {
    std::string before, after;
    for (const auto* rule : {"whole", "look-ahead", "chunked", "resumable"}) {
      const auto& r = of(f, training, served, rule).result;
      before = fmt::format("{:.1f}", 100 * r.before);
      after += fmt::format("{}{:.1f}", after.empty() ? "" : ", ", 100 * r.after());
    }
    return before + " to " + after;
  };
  auto& table = f.compared;
  table.push_back({"12: utilization with and without prefills, %", "45 to 94",
                   shares(slots, "1,000 tokens in 0.25"),
                   "in slots, C = 3; whole, look-ahead, chunked, resumable"});
  table.push_back(
      {"12: the same, GPT-A beside Llama 3.2 1B", "45 to 94", shares("GPT-A", "llama3.2-1b"),
       fmt::format("C is {:.1f} for a layer, less for the head; the rest is updates", f.gpt_a_c)});
  table.push_back({"12: the same, GPT-A beside Llama 3 8B", "", shares("GPT-A", "llama3-8b"),
                   "most prompts are longer than most bubbles"});
  table.push_back({"12: impact on the training", "none", "none",
                   "by construction: bubbles of the timetable, less the guard"});
  table.push_back({"6.6: 8K tokens of Llama 3 8B, ms", "300",
                   fmt::format("{:.0f}", f.own_prefill_ms),
                   fmt::format("an A100 at 60 % of its peak; 300 ms would be {:.0f} %",
                               60 * f.own_prefill_ms / 300)});
  table.push_back(
      {"13: overhead of N = 32 at 8K tokens, ms", "86",
       fmt::format("{:.1f}; {:.1f} with 31 hops; 100 Gbit/s: {:.1f}", overhead_ms(f, 32, 32, 200),
                   overhead_ms(f, 32, 31, 200), overhead_ms(f, 32, 32, 100)),
       "86 is 32 hops at 200 Gbit/s; 32 GPUs have 31, the testbed 100 Gbit/s"});
  table.push_back({"13: overhead of N = 16 at 8K tokens, ms", "",
                   fmt::format("{:.1f}; {:.1f} with 15 hops", overhead_ms(f, 16, 16, 200),
                               overhead_ms(f, 16, 15, 200)),
                   ""});
  const double ms = overhead_ms(f, 32, 32, 200);
  table.push_back({"1.2: penalty on TTFT, %", "under 10",
                   fmt::format("{:.1f} of 1 s; {:.1f} of 300 ms; {:.1f} of {:.0f} ms", ms / 10,
                               ms / 3, 100 * ms / f.own_prefill_ms, f.own_prefill_ms),
                   "the paper's is of a TTFT of 1 s, not of its own prefill"});
}

int fail(const reason& why) {
  fmt::print(stderr, "{}\n", why.text);
  return 2;
}

}  // namespace

/// example_bubbletea [--json] [TRACE.csv], as `troupe trace import azure-llm` writes it.
int main(int argc, char** argv) {
  const bool json = argc > 1 && std::strcmp(argv[1], "--json") == 0;
  const int next = json ? 2 : 1;
  if (argc > next + 1) return fail({{}, "usage: example_bubbletea [--json] [TRACE.csv]"});
  const auto file = next < argc ? std::filesystem::path{argv[next]}
                                : formats::configs_directory() / "traces/azure-code-10min.csv";
  const auto trace = formats::load_inference_trace(file);
  if (!trace) return fail(trace.error());
  if (trace->back().arrival_s <= 0)
    return fail({{},
                 fmt::format("{}: all requests arrive at once; expected some time between them",
                             file.string())});
  figures f;
  f.trace = fmt::format("Prompts of {}: {} requests, {:.1f}/s", file.filename().string(),
                        trace->size(), double(trace->size()) / trace->back().arrival_s);
  saturate(f, slots, "1,000 tokens in 0.25", bubbletea::slots_job(schedule), *trace, 0.02, 1e-3);
  for (const std::string served : {"llama3.2-1b", "llama3-8b"}) {
    const auto from = bubbletea::gpt_a(schedule, served + ".json");
    f.gpt_a_c = from.c;
    saturate(f, "GPT-A", served, from, *trace, 1e-3, 0.5e-3);
    by_arrival(f, served, from, *trace,
               served == "llama3-8b" ? std::vector<double>{1, 5} : std::vector<double>{1, 10, 40});
  }
  depths(f, *trace);
  figure13(f);
  compare(f);
  if (json)
    bubbletea::print_json(f);
  else
    bubbletea::print_text(f);
}
