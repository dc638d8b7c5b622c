#include "harness/published/runs.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include <fmt/format.h>

#include "formats/parse/csv.hpp"
#include "harness/published/columns.hpp"
#include "messages/admission/admission.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/model/declared_memory.hpp"
#include "planners/plans/explicit_plan.hpp"

namespace troupe::harness {

namespace {

using formats::csv_reader;

/// A column that may be absent, or its default.
std::uint32_t count_or(csv_reader& csv, std::string_view column, std::uint32_t otherwise) {
  return csv.has(column) ? count(csv, column, 0) : otherwise;
}

/// family to vocabulary.
model read_model(csv_reader& csv) {
  static const std::vector<std::string> families{"gpt", "llama", "bert", "vit"};
  model m;
  m.name = text(csv, "source"), m.family = word(csv, "family", families);
  m.layers = count(csv, "layers"), m.hidden = count(csv, "hidden"), m.heads = count(csv, "heads");
  m.sequence = count(csv, "sequence"), m.vocabulary = count(csv, "vocabulary");
  return m;
}

const std::vector<std::string> columns_of_runs{
    "source",     "set",          "gpu",         "gpus_per_node", "nodes",        "intra_gbps",
    "inter_gbps", "family",       "layers",      "hidden",        "heads",        "sequence",
    "vocabulary", "intermediate", "precision",   "checkpointing", "kernels",      "zero",
    "data",       "tensor",       "pipeline",    "virtual",       "microbatches", "rows",
    "published",  "unit",         "iteration_s", "note"};
const std::vector<std::string> more_columns_of_runs{"kv_heads",  "head_width",   "tied_head",
                                                    "context",   "overlap",      "chunked_loss",
                                                    "lora_rank", "nvlink_domain"};

published_run read_run(csv_reader& csv) {
  static const std::vector<std::string> sets{"fit", "held", "ratio"};
  published_run r;
  r.source = text(csv, "source"), r.set = word(csv, "set", sets), r.gpu = text(csv, "gpu");
  r.gpus_per_node = count(csv, "gpus_per_node"), r.nodes = count(csv, "nodes");
  r.intra = {"intra", csv.number("intra_gbps", {1, 1e5}), 3};
  r.inter = {"inter", csv.number("inter_gbps", {1, 1e5}), 5};
  r.model = read_model(csv);
  r.model.intermediate = count(csv, "intermediate", 0);
  r.model.kv_heads = count_or(csv, "kv_heads", 0);
  r.model.head_width = count_or(csv, "head_width", 0);
  r.model.tied_head = count_or(csv, "tied_head", 1) > 0;
  r.precision = word(csv, "precision", precisions);
  r.checkpointing = word(csv, "checkpointing", checkpointings);
  r.kernels = word(csv, "kernels", kernel_kinds);
  r.zero = static_cast<std::uint32_t>(csv.whole("zero", {0, 3}));
  r.data = count(csv, "data"), r.tensor = count(csv, "tensor");
  r.pipeline = count(csv, "pipeline"), r.virtual_stages = count(csv, "virtual");
  r.context = std::max(1U, count_or(csv, "context", 1));
  r.microbatches = count(csv, "microbatches"), r.rows = count(csv, "rows");
  r.overlap = count_or(csv, "overlap", 0) > 0;
  r.chunked_loss = count_or(csv, "chunked_loss", 0) > 0;
  r.lora_rank = count_or(csv, "lora_rank", 0);
  r.domain_nodes = count_or(csv, "nvlink_domain", 0);
  r.iteration_s = csv.number("iteration_s", {0, 1e9, true}), r.note = text(csv, "note");
  check_run(csv, r);
  return r;
}

published_memory read_memory(csv_reader& csv) {
  published_memory r;
  r.source = text(csv, "source"), r.gpu = text(csv, "gpu");
  r.model = read_model(csv);
  r.optimizer = text(csv, "optimizer"), r.precision = text(csv, "precision");
  r.checkpointing = text(csv, "checkpointing"), r.kernels = text(csv, "kernels");
  r.zero = count(csv, "zero", 0), r.data = count(csv, "data"), r.tensor = count(csv, "tensor");
  r.rows = count(csv, "rows"), r.head = count(csv, "head", 0) > 0;
  r.bytes = csv.number("published", {0, 1e6}) * (csv.field("unit") == "MiB" ? 1 << 20 : 1e9);
  r.note = text(csv, "note");
  return r;
}

/// Every row of a file, read by `read`.
template <class Row>
expected<std::vector<Row>> load_rows(const std::filesystem::path& file, Row (*read)(csv_reader&),
                                     const std::vector<std::string>& required,
                                     const std::vector<std::string>& optional) {
  const auto content = formats::read_text(file);
  if (!content) return refuse(content.error());
  formats::findings found{file.string()};
  csv_reader csv{found, *content};
  csv.expect(required, optional);
  std::vector<Row> out;
  while (csv.next()) out.push_back(read(csv));
  if (out.empty()) found.add(csv.line(), "", "found no rows, expected some below the header");
  if (!found.good()) return found.result();
  return out;
}

/// As many layers each; where the embedding and the head stand for a layer, the first and the last
/// stage have one less.
std::vector<planners::stage_request> stages_of(const published_run& r) {
  const auto p = r.pipeline, l = r.model.layers;
  const bool ends_count = l % p != 0 && (l + 2) % p == 0;
  std::vector<planners::stage_request> out(p, {0, 2 * ((ends_count ? l + 2 : l) / p), r.tensor});
  if (ends_count)
    out.front().pieces -= 2, out.back().pieces -= 2;
  else
    for (std::uint32_t i = 0; i < l % p; ++i) out[i].pieces += 2;
  return out;
}

expected<double> predicted_pipeline_s(const published_run& r, const cluster& c) {
  const auto job = job_of(r);
  const auto placed =
      planners::plan_of_stages(c, planners::idle_index{c}, job, stages_of(r), r.data * r.context);
  if (!placed) return refuse(placed.error());
  return job.global_batch / placed->how.samples_per_s;
}

}  // namespace

void check_run(csv_reader& csv, const published_run& r) {
  if (r.model.heads == 0) return;  // a column before has been refused
  constexpr std::uint64_t max_batch = 1'000'000'000;
  const auto gpus = std::uint64_t{r.gpus_per_node} * r.nodes;
  const auto used = std::uint64_t{r.data} * r.tensor * r.pipeline * r.context;
  if (gpus != used)
    csv.fail("data",
             "{} data x {} tensor x {} pipeline x {} context are {} GPUs, expected the {} of {} "
             "nodes",
             r.data, r.tensor, r.pipeline, r.context, used, gpus, r.nodes);
  // No product of three columns is beyond 64 bits.
  if (const auto batch = std::uint64_t{r.data} * r.microbatches * r.rows; batch > max_batch)
    csv.fail("microbatches", "{} data x {} micro-batches x {} rows are {}, expected at most {}",
             r.data, r.microbatches, r.rows, batch, max_batch);
  if (r.virtual_stages > 1 && r.pipeline == 1)
    csv.fail("virtual", "found {}, expected 1 where pipeline is 1", r.virtual_stages);
  if (std::uint64_t{r.pipeline} * r.virtual_stages > 2 * r.model.layers)
    csv.fail("pipeline", "found {} stages x {} virtual, expected at most two a layer of {}",
             r.pipeline, r.virtual_stages, r.model.layers);
  if (const auto bad = admission::objection_to(r.model)) csv.fail(bad->key, "{}", bad->problem);
}

expected<std::vector<published_run>> load_published_runs(const std::filesystem::path& file) {
  return load_rows(file, read_run, columns_of_runs, more_columns_of_runs);
}
expected<std::vector<published_memory>> load_published_memory(const std::filesystem::path& file) {
  return load_rows(
      file, read_memory,
      {"source",     "gpu",       "family",    "layers",        "hidden",  "heads", "sequence",
       "vocabulary", "optimizer", "precision", "checkpointing", "kernels", "zero",  "data",
       "tensor",     "rows",      "head",      "published",     "unit",    "note"},
      {});
}

double predicted_bytes(const published_memory& r) {
  job_spec job;
  job.model = r.model;
  job.global_batch = r.data * r.rows;
  job.kernels = r.kernels;
  auto& o = job.memory.emplace();
  o.optimizer = r.optimizer, o.precision = r.precision, o.checkpointing = r.checkpointing;
  o.zero = r.zero;
  const auto parts = planners::program_memory(job, r.data, r.tensor);
  return parts.total() - (r.head ? 0 : parts.ends);
}

double allocator_overhead(std::span<const published_memory> readings, const std::string& source) {
  double sum = 0, count = 0;
  for (const auto& r : readings) {
    if (r.source == source || r.bytes == 0) continue;
    sum += r.bytes / predicted_bytes(r);
    ++count;
  }
  return sum / count;
}

job_spec job_of(const published_run& r) {
  job_spec job;
  job.name = r.source;
  job.model = r.model;
  job.global_batch = r.data * r.microbatches * r.rows;
  job.microbatches = r.microbatches;
  job.memory.emplace();
  job.kernels = r.kernels;
  job.memory->precision = r.precision;
  job.memory->checkpointing = r.checkpointing;
  job.memory->zero = r.zero;
  job.memory->lora_rank = r.lora_rank;
  if (r.chunked_loss) job.memory->chunked_loss = true;
  if (r.context > 1) job.pipeline.context_parallel = r.context;
  if (r.overlap) job.pipeline.overlap = true;
  if (r.pipeline == 1) return job;
  job.train.emplace();
  job.train->device = "sim";
  job.train->schedule = "megatron";
  job.pipeline.rows = r.rows;
  job.pipeline.virtual_stages = r.virtual_stages;
  return job;
}

cluster cluster_of(const published_run& r, const gpu_type& gpu) {
  cluster c;
  c.name = r.source;
  c.gpus = {gpu};
  c.datacenters = {{"here", ""}};
  for (std::uint32_t n = 0; n < r.nodes; ++n) {
    c.nodes.push_back({fmt::format("n{}", n), 0, 0, r.gpus_per_node, r.intra, r.inter});
    if (r.domain_nodes > 0) c.nodes.back().nvlink_domain = n / r.domain_nodes;
  }
  return c;
}

expected<double> predicted_s(const published_run& r, std::span<const gpu_type> catalogue) {
  const auto gpu = std::ranges::find(catalogue, r.gpu, &gpu_type::name);
  if (!r.why_not.empty()) return refuse(reason::kind::invalid, r.why_not);
  if (r.outcome != "ran")
    return refuse(reason::kind::invalid,
                  fmt::format("it {}", r.outcome == "failed" ? "failed" : "ran out of memory"));
  if (gpu == catalogue.end())
    return refuse(reason::kind::invalid, fmt::format("no GPU '{}' in the catalogue", r.gpu));
  const auto c = cluster_of(r, *gpu);
  if (r.pipeline > 1) return predicted_pipeline_s(r, c);
  plan how;
  how.data_parallel = r.data * r.context, how.tensor_parallel = r.tensor;
  allocation where;
  for (node_index n = 0; n < c.nodes.size(); ++n) where.push_back({n, r.gpus_per_node});
  return planners::estimate_iteration(c, job_of(r), how, where).iteration_s;
}

bool differ_in_gpu_alone(const published_run& a, const published_run& b) {
  const auto key = [](const published_run& r) {
    const auto& m = r.model;
    return std::tuple{r.source,      m.layers,  m.hidden,        m.sequence, r.precision == "mixed",
                      r.rows,        r.data,    r.microbatches,  r.tensor,   r.pipeline,
                      r.nodes,       r.kernels, r.checkpointing, r.context,  r.lora_rank,
                      r.chunked_loss};
  };
  return a.gpu != b.gpu && key(a) == key(b);
}

double predicted_peak_bytes(const published_run& r) {
  const auto parts = planners::program_memory(job_of(r), r.data * r.context, r.tensor);
  return parts.total() - parts.context;
}

double rank_correlation(std::span<const std::pair<double, double>> all) {
  double agree = 0, pairs = 0;
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = i + 1; j < all.size(); ++j, ++pairs) {
      const double published = all[j].first - all[i].first;
      const double predicted = all[j].second - all[i].second;
      if (published * predicted != 0) agree += published * predicted > 0 ? 1 : -1;
    }
  return pairs > 0 ? agree / pairs : 0;
}

std::string name_of(const published_run& r) {
  const auto& m = r.model;
  auto name =
      fmt::format("{} of {} x {}, {} x {} x {} tokens, {}", m.name == r.source ? "" : m.name,
                  m.layers, m.hidden, r.microbatches, r.rows, m.sequence, r.precision);
  if (name.starts_with(" of ")) name.erase(0, 4);
  name += fmt::format(", {} x {}: d{} t{} p{}", r.gpus_per_node * r.nodes, r.gpu, r.data, r.tensor,
                      r.pipeline);
  if (r.virtual_stages > 1) name += fmt::format(" v{}", r.virtual_stages);
  if (r.context > 1) name += fmt::format(" c{}", r.context);
  if (r.zero > 0) name += fmt::format(" zero {}", r.zero);
  if (r.lora_rank > 0) name += fmt::format(", LoRA {}", r.lora_rank);
  return name;
}

std::string kind_name_of(const published_run& r) {
  return fmt::format("{}, {}, {}", r.gpu, r.checkpointing,
                     r.model.sequence < 8192 ? "below 8192" : "8192 and longer");
}

error_summary summary_of(std::vector<double> errors) {
  error_summary s;
  s.runs = errors.size();
  if (errors.empty()) return s;
  s.bias = std::accumulate(errors.begin(), errors.end(), 0.0) / static_cast<double>(s.runs);
  for (auto& e : errors) e = std::abs(e);
  std::ranges::sort(errors);
  s.mean = std::accumulate(errors.begin(), errors.end(), 0.0) / static_cast<double>(s.runs);
  s.median = errors[errors.size() / 2];
  s.worst = errors.back();
  return s;
}

}  // namespace troupe::harness
