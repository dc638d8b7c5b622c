// BubbleTea's utilization and overheads, by its planners in virtual time: README.md.
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "bubbletea/figures.hpp"
#include "bubbletea/pipeline_overhead.hpp"
#include "harness/figures.hpp"

using namespace troupe;
using bubbletea::figures;
using planners::packing_rule;
using trace_rows = std::vector<formats::inference_row>;

namespace {

constexpr auto schedule = "atlas-least-progress";
const std::string slots = "Slots for seconds, C = 3";
constexpr std::size_t devices = 12, waiting = 64, look_ahead = 32;
constexpr double iterations = 40;  // of a saturated run

void saturate(figures& f, const std::string& training, const std::string& served,
              const bubbletea::lender& from, const trace_rows& trace, double op_s, double guard_s) {
  for (const auto rule : {packing_rule::whole, packing_rule::look_ahead, packing_rule::chunked,
                          packing_rule::resumable}) {
    bubbletea::filling_options o;
    o.packing.rule = rule;
    o.packing.look_ahead = look_ahead;
    o.packing.op_s = op_s;
    o.guard_s = guard_s;
    // For each device as many as the rule looks ahead.
    o.saturated = rule == packing_rule::look_ahead ? devices * look_ahead : waiting;
    o.horizon_s = iterations * from.times.length / from.times.iterations;
    auto& row = f.saturated.emplace_back();
    row.training = training;
    row.served = served;
    row.rule = to_string(rule);
    row.promised = o.saturated;
    row.result = bubbletea::fill(from, trace, o);
  }
}

/// With a limit of two seconds for the time to first token.
bubbletea::filled by_arrival(const std::string& served, double rate, const bubbletea::lender& from,
                             const trace_rows& trace) {
  bubbletea::filling_options o;
  o.rate = rate;
  o.ttft_s = 2;
  bubbletea::filled row;
  row.served = served;
  row.rate = rate;
  row.layers = from.groups[0].guests[0].layers;
  row.guest_gb = from.guest_gb;
  row.result = bubbletea::fill(from, trace, o);
  return row;
}

/// Four testbeds, so that a stage has eight peers.
void depths(figures& f, const trace_rows& trace) {
  for (const std::string served : {"llama3.2-1b", "llama3-8b"})
    for (const std::uint32_t depth : {1u, 2u, 4u}) {
      const auto from = bubbletea::gpt_a(schedule, served + ".json", 8, depth);
      f.depths.push_back(by_arrival(served, 10, from, trace));
      f.depths.back().depth = depth;
    }
}

planners::served_layer llama_8b() {
  const auto file = formats::configs_directory() / "models/llama3-8b.json";
  return must(planners::served_layer_of(must(formats::load_model(file))));
}

void figure13(figures& f) {
  for (std::uint32_t tokens = 1024; tokens <= 8192; tokens += 1024)
    for (const std::uint32_t gpus : {32u, 16u})
      for (const double gbit_s : {200.0, 100.0})
        for (const auto hops : {gpus, gpus - 1})
          f.figure13.push_back(
              {tokens, gpus, hops, gbit_s,
               1e3 * bubbletea::pipeline_overhead_s(llama_8b(), gbit_s, tokens, hops)});
}

/// "before to after, after, ...": the used share by packing rule, in %.
std::string shares(const figures& f, const std::string& training, const std::string& served) {
  std::string before, after;
  for (const auto& row : f.saturated) {
    if (row.training != training || row.served != served) continue;
    before = fmt::format("{:.1f} to ", 100 * row.result.before);
    after += fmt::format("{}{:.1f}", after.empty() ? "" : ", ", 100 * row.result.after());
  }
  return before + after;
}

/// `gpt_a_c`: a WAN transfer of GPT-A over the forward of its fastest stage.
void compare(const figures& f, double gpt_a_c) {
  const auto layer = llama_8b();
  const auto testbed = cluster_named("atlas-testbed");
  const auto& a100 = testbed->gpu_of(0);
  const double prefill_ms =
      1e3 * planners::prefill_s(planners::prefill_rate_of(layer, a100), 32, 8192, 0);
  const double share = 100 * a100.efficiency;
  const auto overhead_ms = [&](std::uint32_t hops, double gbit_s) {
    return 1e3 * bubbletea::pipeline_overhead_s(layer, gbit_s, 8192, hops);
  };
  const double ms = overhead_ms(32, 200);
  compared = {
      {"12: utilization with and without prefills, %", "45 to 94",
       shares(f, slots, "1,000 tokens in 0.25"),
       "in slots, C = 3; whole, look-ahead, chunked, resumable"},
      {"12: the same, GPT-A beside Llama 3.2 1B", "45 to 94", shares(f, "GPT-A", "llama3.2-1b"),
       fmt::format("C is {:.1f} for a layer, less for the head; the rest is updates", gpt_a_c)},
      {"12: the same, GPT-A beside Llama 3 8B", "", shares(f, "GPT-A", "llama3-8b"),
       "most prompts are longer than most bubbles"},
      {"12: impact on the training", "none", "none",
       "by construction: bubbles of the timetable, less the guard"},
      {"6.6: 8K tokens of Llama 3 8B, ms", "300", fmt::format("{:.0f}", prefill_ms),
       fmt::format("an A100 at {:.0f} % of its peak; 300 ms would be {:.0f} %", share,
                   share * prefill_ms / 300)},
      {"13: overhead of N = 32 at 8K tokens, ms", "86",
       fmt::format("{:.1f}; {:.1f} with 31 hops; 100 Gbit/s: {:.1f}", ms, overhead_ms(31, 200),
                   overhead_ms(32, 100)),
       "86 is 32 hops at 200 Gbit/s; 32 GPUs have 31, the testbed 100 Gbit/s"},
      {"13: overhead of N = 16 at 8K tokens, ms", "",
       fmt::format("{:.1f}; {:.1f} with 15 hops", overhead_ms(16, 200), overhead_ms(15, 200)), ""},
      {"1.2: penalty on TTFT, %", "under 10",
       fmt::format("{:.1f} of 1 s; {:.1f} of 300 ms; {:.1f} of {:.0f} ms", ms / 10, ms / 3,
                   100 * ms / prefill_ms, prefill_ms),
       "the paper's is of a TTFT of 1 s, not of its own prefill"}};
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
  double gpt_a_c = 0;
  for (const std::string served : {"llama3.2-1b", "llama3-8b"}) {
    const auto from = bubbletea::gpt_a(schedule, served + ".json");
    gpt_a_c = from.c;
    saturate(f, "GPT-A", served, from, *trace, 1e-3, 0.5e-3);
    const bool large = served == "llama3-8b";
    for (const double rate : large ? std::vector<double>{1, 5} : std::vector<double>{1, 10, 40})
      f.by_arrival.push_back(by_arrival(served, rate, from, *trace));
  }
  depths(f, *trace);
  figure13(f);
  compare(f, gpt_a_c);
  json ? bubbletea::print_json(f) : bubbletea::print_text(f);
}
