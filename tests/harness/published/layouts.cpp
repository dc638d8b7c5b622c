#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "formats/load/load.hpp"
#include "formats/parse/csv.hpp"
#include "harness/published/columns.hpp"
#include "harness/published/runs.hpp"
#include "messages/base/shown.hpp"

// Readers of the other forms of published runs (tests/planners/published/README.md), which name a
// model of models.csv: MLPerf's and Megatron-Bridge's layouts, and prime-rl's runs with peak
// memory.

namespace troupe::harness {

namespace {

using formats::csv_reader;

/// A model that rows name. `experts`: it has some, for which there is no formula.
struct named_model {
  troupe::model model;
  bool experts = false;
};
using named_models = std::map<std::string, named_model, std::less<>>;

expected<named_models> load_models(const std::filesystem::path& file) {
  const auto content = formats::read_text(file);
  if (!content) return refuse(content.error());
  formats::findings found{file.string()};
  csv_reader csv{found, *content};
  csv.expect({"name", "layers", "hidden", "heads", "kv_heads", "head_dim", "intermediate",
              "vocabulary", "tied_head", "experts"},
             {"active_experts", "shared_experts", "expert_intermediate", "dense_layers", "source"});
  named_models out;
  while (csv.next()) {
    named_model x;
    auto& m = x.model;
    m.name = std::string{csv.field("name")}, m.family = "llama";
    m.layers = count(csv, "layers"), m.hidden = count(csv, "hidden");
    m.heads = count(csv, "heads"), m.kv_heads = count(csv, "kv_heads");
    if (const auto width = count(csv, "head_dim"); width * m.heads != m.hidden)
      m.head_width = width;
    m.intermediate = count(csv, "intermediate", 0), m.vocabulary = count(csv, "vocabulary");
    m.tied_head = csv.whole("tied_head", {0, 1}) > 0;
    x.experts = csv.whole("experts", {0, 1e6}) > 0;
    out[m.name] = x;
  }
  if (!found.good()) return found.result();
  return out;
}

/// The GPU's links: NVLink of its generation inside a node, if it is a type with NVLink, and a card
/// of 400 Gbit/s for each GPU.
void set_links(published_run& r) {
  const auto is = [&](std::string_view name) { return r.gpu.starts_with(name); };
  const auto* intra = r.gpu.find("PCIe") != std::string::npos ? "pcie4"
                      : is("B200") || is("GB")                ? "nvlink5"
                      : is("H") || is("GH")                   ? "nvlink4"
                      : is("A100") || is("A800")              ? "nvlink"
                                                              : "pcie4";
  r.intra = *std::ranges::find(formats::known_links(), intra, &link::name);
  r.inter = {"inter", 400.0 * r.gpus_per_node, 5};
  if (is("GB")) r.domain_nodes = 18;  // GB200 NVL72: 72 GPUs
}

void set_model(csv_reader& csv, published_run& r, const named_models& models,
               const std::string& name) {
  const auto at = models.find(name);
  if (at == models.end())
    return csv.fail("model", "found '{}', which models.csv has not", shown(name));
  r.model = at->second.model;
  r.model.sequence = count(csv, "sequence");
  if (at->second.experts) r.why_not = "a model with experts: no formula has their work and memory";
}

/// Tensor communication and gradients are overlapped in MLPerf's runs, and by default in
/// Megatron-Bridge; FlashAttention, an optimizer that the replicas share, no recomputation.
published_run read_layout(csv_reader& csv, const named_models& models) {
  published_run r;
  const bool is_mlperf = csv.has("submitter");
  r.source = is_mlperf ? "mlperf" : "megatron-bridge", r.set = "held";
  r.gpu = std::string{csv.field("gpu")};
  r.gpus_per_node = count(csv, "gpus_per_node");
  const auto gpus = count(csv, "gpus"), of_a_node = std::max(1U, r.gpus_per_node);
  r.nodes = gpus / of_a_node;
  set_links(r);
  set_model(csv, r, models, is_mlperf ? "llama-3.1-405b" : std::string{csv.field("model")});
  // The products of mxfp8, with scales by block, are those of fp8.
  if (csv.field("precision") == "mxfp8")
    r.precision = "fp8";
  else
    r.precision = word(csv, "precision", precisions);
  r.checkpointing = "none", r.kernels = "flash", r.overlap = true;
  r.data = count(csv, "data"), r.tensor = count(csv, "tensor"), r.pipeline = count(csv, "pipeline");
  r.virtual_stages = count(csv, "virtual"), r.context = count(csv, "context");
  r.zero = csv.has("fsdp") && csv.whole("fsdp", {0, 1e6}) > 0 ? 3 : 1;
  r.microbatches = count(csv, "microbatches"), r.rows = count(csv, "rows");
  r.iteration_s = csv.number("step_s", {0, 1e9, true});
  r.note = std::string{csv.field(is_mlperf ? "system" : "release")};
  if (gpus % of_a_node != 0)
    csv.fail("gpus", "found {}, expected a multiple of gpus_per_node ({})", gpus, r.gpus_per_node);
  check_run(csv, r);
  return r;
}

/// FSDP2 in PyTorch with FlashAttention: weights and optimizer sharded, recomputed block by block.
/// Reinforcement learning computes the head in chunks; fine-tuning has the whole logits.
published_run read_prime_rl(csv_reader& csv, const named_models& models) {
  static const std::vector<std::string> kinds{"sft", "rl"};
  static const std::vector<std::string> recomputations{"none", "full", "offload"};
  static const std::vector<std::string> outcomes{"ran", "failed", "out_of_memory"};
  published_run r;
  r.source = "prime-rl", r.set = "held", r.gpu = std::string{csv.field("gpu")};
  r.gpus_per_node = r.data = count(csv, "gpus");
  r.virtual_stages = 1;
  set_links(r);
  set_model(csv, r, models, std::string{csv.field("model")});
  r.precision = "mixed", r.kernels = "sdpa", r.zero = 3;
  r.chunked_loss = word(csv, "kind", kinds) == "rl";
  r.lora_rank = count(csv, "lora_rank", 0);
  r.checkpointing = word(csv, "recompute", recomputations);
  if (r.checkpointing == "offload" && r.why_not.empty())
    r.why_not = "blocks' inputs on the host: no formula has them";
  r.microbatches = count(csv, "microbatches"), r.rows = count(csv, "rows");
  r.outcome = word(csv, "outcome", outcomes);
  r.note = fmt::format("{} {}", csv.field("kind"), csv.field("date"));
  if (r.why_not.empty()) check_run(csv, r);
  if (r.outcome != "ran") return r;
  r.iteration_s = csv.number("step_s", {0, 1e9, true});
  r.peak_bytes = csv.number("peak_gib", {0, 1e4, true}) * (1 << 30);
  return r;
}

/// The form of a file, by its header.
enum class form : std::uint8_t { runs, layouts, prime_rl };

form form_of(csv_reader& csv) {
  if (csv.has("peak_gib")) return form::prime_rl;
  return csv.has("step_s") ? form::layouts : form::runs;
}

void expect_columns(csv_reader& csv, form f) {
  if (f == form::prime_rl)
    return csv.expect({"kind", "model", "lora_rank", "gpu", "gpus", "sequence", "microbatches",
                       "rows", "recompute", "outcome", "step_s", "peak_gib"},
                      {"attention", "step_sd_s", "mfu_percent", "source_mfu_percent",
                       "source_tokens_per_s", "date"});
  std::vector<std::string> needed{
      "gpus",    "gpu",          "gpus_per_node", "data",     "tensor",    "pipeline", "virtual",
      "context", "microbatches", "rows",          "sequence", "precision", "step_s"};
  if (!csv.has("submitter")) needed.emplace_back("model");
  csv.expect(needed, {"global_batch", "fastest_run_s", "slowest_run_s", "runs", "steps",
                      "submitter", "system", "release", "model", "fsdp", "tokens_per_s_per_gpu",
                      "model_tflops_per_gpu"});
}

}  // namespace

expected<std::vector<published_run>> load_any_runs(const std::filesystem::path& file,
                                                   const std::filesystem::path& models) {
  const auto content = formats::read_text(file);
  if (!content) return refuse(content.error());
  formats::findings found{file.string()};
  csv_reader csv{found, *content};
  const auto what = form_of(csv);
  if (what == form::runs) return load_published_runs(file);
  expect_columns(csv, what);
  const auto beside = file.parent_path() / "models.csv";
  const auto named = load_models(std::filesystem::exists(beside) ? beside : models);
  if (!named) return refuse(named.error());
  std::vector<published_run> out;
  while (csv.next())
    out.push_back(what == form::layouts ? read_layout(csv, *named) : read_prime_rl(csv, *named));
  if (out.empty()) found.add(csv.line(), "", "found no rows, expected some below the header");
  if (!found.good()) return found.result();
  return out;
}

const std::vector<std::string>& published_files() {
  static const std::vector<std::string> all{"published_runs.csv",
                                            "foundry_runs.csv",
                                            "published/foundry_fp8.csv",
                                            "published/mlperf_405b.csv",
                                            "published/megatron_bridge.csv",
                                            "published/prime_rl.csv"};
  return all;
}

expected<std::vector<published_run>> load_all_runs(const std::filesystem::path& root) {
  const auto folder = root / "tests/planners";
  std::vector<published_run> all;
  for (const auto& name : published_files()) {
    const auto more = load_any_runs(folder / name, folder / "published" / "models.csv");
    if (!more) return more;
    all.insert(all.end(), more->begin(), more->end());
  }
  return all;
}

}  // namespace troupe::harness
