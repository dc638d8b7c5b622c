#include "cli/options/prefill_options.hpp"

#include <algorithm>
#include <filesystem>
#include <type_traits>

#include <fmt/format.h>

#include "formats/load/load.hpp"
#include "formats/traces/trace.hpp"
#include "messages/base/absolute_path.hpp"
#include "messages/base/units.hpp"
#include "messages/domain/served_bytes.hpp"
#include "planners/bubbletea/inference_memory.hpp"

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;

/// Slot jobs name no model: the job gives the time of prefills, and nothing else takes any.
served_model_files model_of_slots() {
  served_model_files m;
  m.name = m.shape.name = "slots";
  m.shape.family = "llama";
  m.shape.layers = m.shape.heads = 1;
  m.shape.hidden = 64;
  m.shape.sequence = 1 << 20;
  m.shape.vocabulary = 256;
  return m;
}

/// The memory of a guest for the longest prompts. Devices of a real training are CPUs, which
/// compute in single precision; simulated ones are GPUs and compute in half precision.
double guest_gb_for(const model& shape, std::uint32_t depth, bool real) {
  constexpr double max_tokens = longest_lent_prompt, single_over_half = 2, rounding = 1.001;
  const auto layer = planners::served_layer_of(shape);
  if (!layer) return real ? single_over_half : 1;
  const double tokens =
      shape.sequence > 0 ? std::min<double>(shape.sequence, max_tokens) : max_tokens;
  const auto layers = (shape.layers + depth - 1) / depth;
  return (real ? single_over_half : 1) *
         (rounding * planners::inference_memory(*layer, layers, tokens, tokens).total() /
          bytes_per_gb);
}

/// Cuts prompts so that they and the tokens to generate fit the model's context.
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
  // Instead of the job's value; 0 of a count is the job's.
  const auto lend = [&]<class T>(const char* name, T bubble_lending::*field, const char* text) {
    const auto take = [this, field](const T& v) {
      if (std::is_floating_point_v<T> || v != T{})
        overrides_.push_back([field, v](bubble_lending& b) { b.*field = v; });
    };
    return app.add_option_function<T>(name, take, text)->needs("--prefill");
  };
  using how = bubble_lending;
  add("--prefill-model", model_, "Served model: config.json, or a folder with one");
  add("--prefill-rate", play_.rate, "Arrivals, times the trace's")->check(CLI::PositiveNumber);
  add("--saturated", play_.saturated, "Ignore arrival times; keep this many prompts in flight");
  lend("--rule", &how::rule, "Packing rule")
      ->check(CLI::IsMember({"whole", "look-ahead", "chunked", "resumable"}));
  lend("--look-ahead", &how::look_ahead, "Queued prompts considered when filling a bubble");
  lend("--chunk", &how::chunk, "Tokens of a chunk");
  lend("--guard-ms", &how::guard_ms, "Idle time kept free before each training step, in ms")
      ->check(CLI::NonNegativeNumber);
  lend("--op-ms", &how::op_ms, "Longest operation of a prefill, in ms")->check(CLI::PositiveNumber);
  lend("--depth", &how::depth, "Guests of a prefill pipeline, at least");
  lend("--guest-gb", &how::memory_gb, "Memory of a guest in GB (default: enough for 8,192 tokens)")
      ->check(CLI::PositiveNumber);
  add("--ttft-s", play_.ttft_s, "Limit of the time to first token, in s")
      ->check(CLI::PositiveNumber);
  add("--cancels", play_.cancels, "Fraction of requests that the client cancels")
      ->check(CLI::Range(0.0, 1.0));
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
  const auto whole = absolute_path(model_);
  if (folder && !whole) return refuse(whole.error());
  const auto from_root = whole ? fs::path{*whole}.lexically_normal() : path;
  served_model_files m;
  m.name = (folder ? from_root : path.stem()).filename().string();
  if (m.name.empty()) m.name = "model";
  m.shape = std::move(*shape);
  if (folder && real) m.folder = from_root.string();
  return m;
}

// The job's own `bubbles` are the base; a job without them gets the defaults and a guest's memory
// for the model. Options override either.
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
  // The order to a decoder needs a folder; simulated ones do not open it.
  if (how->model.folder.empty()) how->model.folder = "/" + how->model.name;
  if (!own) how->memory_gb = 0;  // unknown until the depth is known
  for (const auto& change : overrides_) change(*how);
  if (!own && how->memory_gb == 0)
    how->memory_gb = guest_gb_for(how->model.shape, std::max(1u, how->depth), real);
  return {};
}

expected<studies::prefill_study> prefill_options::apply(job_spec& job, std::uint64_t seed,
                                                        bool real) const {
  if (auto ok = lend(job, real); !ok) return refuse(ok.error());
  const auto file = trace_ == "azure" ? formats::configs_directory() / "traces/azure-code-10min.csv"
                                      : fs::path{trace_};
  const auto rows = formats::load_inference_trace(file);
  if (!rows) return refuse(rows.error());
  if (rows->empty())
    return refuse(reason::kind::invalid, fmt::format("{}: has no requests", file.string()));
  studies::prefill_study study{play_, {}};
  study.play.seed = seed;
  for (const auto& r : *rows)
    study.prompts.push_back(
        {r.arrival_s, std::max(1u, r.prompt_tokens), std::max(1u, r.generated_tokens)});
  if (real) fit_model(study, job.pipeline.bubbles->model.shape);
  // BubbleTea's figure has a barrier after each iteration.
  if (job.slots && job.train) job.train->replan_every = 1;
  return study;
}

}  // namespace troupe::cli
