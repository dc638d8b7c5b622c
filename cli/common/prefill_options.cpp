#include "cli/common/prefill_options.hpp"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "formats/load/load.hpp"
#include "formats/traces/trace.hpp"
#include "messages/base/units.hpp"
#include "planners/bubbletea/inference_memory.hpp"

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;

constexpr const char* shipped_trace = "azure";
constexpr double single_precision = 2;  // on CPUs, times half precision

/// Of slot jobs: prefills take what the job says, and nothing else takes any time.
served_model_files model_of_slots() {
  served_model_files m;
  m.name = "slots";
  m.shape.name = m.name;
  m.shape.family = "llama";
  m.shape.layers = m.shape.heads = 1;
  m.shape.hidden = 64;
  m.shape.sequence = 1 << 20;
  m.shape.vocabulary = 256;
  return m;
}

/// What a guest needs for prompts of up to 8,192 tokens, in half precision.
double guest_gb_for(const model& shape, std::uint32_t depth) {
  constexpr double max_tokens = 8192, rounding = 1.001;
  const auto layer = planners::served_layer_of(shape);
  if (!layer) return 1;
  const double tokens =
      shape.sequence > 0 ? std::min<double>(shape.sequence, max_tokens) : max_tokens;
  const auto layers = (shape.layers + depth - 1) / depth;
  return rounding * planners::inference_memory(*layer, layers, tokens, tokens).total() /
         bytes_per_gb;
}

/// Prompts of its vocabulary, which leave room for what is generated.
void fit_model(studies::prefill_study& study, const model& shape) {
  study.play.vocabulary = shape.vocabulary;
  for (auto& p : study.prompts) {
    p.generated_tokens = std::min(p.generated_tokens, std::max(1u, shape.sequence / 2));
    p.prompt_tokens = std::min(p.prompt_tokens, shape.sequence - p.generated_tokens);
  }
}

}  // namespace

void prefill_options::options(CLI::App& app) {
  app.add_option("--prefill", trace_,
                 "Offer the prompts of this trace to the bubbles of the training, in the virtual "
                 "world or the local one: a file of `troupe trace import azure-llm`, or 'azure', "
                 "the shipped one");
  const auto add = [&](const char* name, auto& value, const char* text) {
    return app.add_option(name, value, text)->needs("--prefill");
  };
  add("--prefill-model", model_, "Served model: config.json, or a folder with one");
  add("--prefill-rate", rate_, "Arrivals, times the trace's")->check(CLI::PositiveNumber);
  add("--saturated", saturated_, "Keep that many prompts under way, whenever they arrive");
  add("--rule", rule_, "Packing rule")
      ->check(CLI::IsMember({"whole", "look-ahead", "chunked", "resumable"}));
  add("--look-ahead", look_ahead_, "Prompts of a group among which a bubble is filled");
  add("--chunk", chunk_, "Tokens of a chunk");
  add("--guard-ms", guard_ms_, "Before a step of the training")->check(CLI::NonNegativeNumber);
  add("--op-ms", op_ms_, "Longest operation of a prefill")->check(CLI::PositiveNumber);
  add("--depth", depth_, "Guests of a prefill pipeline, at least");
  add("--guest-gb", guest_gb_, "Memory of a guest (default: what 8,192 tokens need)")
      ->check(CLI::PositiveNumber);
  add("--ttft-s", ttft_s_, "Limit of the time to first token")->check(CLI::PositiveNumber);
  add("--cancels", cancels_, "Share of requests whose client leaves")->check(CLI::Range(0.0, 1.0));
}

expected<served_model_files> prefill_options::model_of(const job_spec& job, bool real) const {
  if (model_.empty()) {
    if (job.slots) return model_of_slots();
    return refuse(reason::kind::invalid,
                  "--prefill needs --prefill-model, or a job with `pipeline: {bubbles: ...}`");
  }
  const fs::path path{model_};
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  auto shape = formats::load_model(folder ? path / "config.json" : path);
  if (!shape) return refuse(shape.error());
  served_model_files m;
  m.name = (folder ? fs::absolute(path).lexically_normal() : path.stem()).filename().string();
  if (m.name.empty()) m.name = "model";
  m.shape = std::move(*shape);
  if (folder && real) m.folder = fs::absolute(path).lexically_normal().string();
  return m;
}

expected<void> prefill_options::lend(job_spec& job, bool real) const {
  auto& how = job.pipeline.bubbles;
  const bool own = how.has_value();
  if (!own) how.emplace();
  if (!own || !model_.empty() || how->model.shape.layers == 0) {
    auto m = model_of(job, real);
    if (!m) return refuse(m.error());
    how->model = std::move(*m);
  }
  if (real && how->model.folder.empty())
    return refuse(reason::kind::invalid,
                  "--prefill-model must be a folder with weights: the prompts are computed");
  // Decoders are told a folder; simulated ones do not open it.
  if (how->model.folder.empty()) how->model.folder = "/" + how->model.name;
  if (!rule_.empty()) how->rule = rule_;
  if (look_ahead_ > 0) how->look_ahead = look_ahead_;
  if (chunk_ > 0) how->chunk = chunk_;
  if (guard_ms_) how->guard_ms = *guard_ms_;
  if (op_ms_) how->op_ms = *op_ms_;
  if (depth_ > 0) how->depth = depth_;
  if (guest_gb_)
    how->memory_gb = *guest_gb_;
  else if (!own)
    how->memory_gb =
        (real ? single_precision : 1) * guest_gb_for(how->model.shape, std::max(1u, how->depth));
  return {};
}

expected<studies::prefill_study> prefill_options::apply(job_spec& job, std::uint64_t seed,
                                                        bool real) const {
  if (auto ok = lend(job, real); !ok) return refuse(ok.error());
  const fs::path file = trace_ == shipped_trace
                            ? formats::configs_directory() / "traces/azure-code-10min.csv"
                            : fs::path{trace_};
  const auto rows = formats::load_inference_trace(file);
  if (!rows) return refuse(rows.error());
  if (rows->empty())
    return refuse(reason::kind::invalid, fmt::format("{}: has no requests", file.string()));
  studies::prefill_study study;
  for (const auto& r : *rows)
    study.prompts.push_back(
        {r.arrival_s, std::max(1u, r.prompt_tokens), std::max(1u, r.generated_tokens)});
  study.play.rate = rate_;
  study.play.saturated = saturated_;
  study.play.ttft_s = ttft_s_;
  study.play.cancels = cancels_;
  study.play.seed = seed;
  if (real) fit_model(study, job.pipeline.bubbles->model.shape);
  // The paper's figure has a barrier after each iteration.
  if (job.slots && job.train) job.train->replan_every = 1;
  return study;
}

}  // namespace troupe::cli
