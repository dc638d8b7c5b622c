#include "harness/published_runs.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <sstream>
#include <tuple>

#include <fmt/format.h>

#include "formats/parse/csv.hpp"
#include "planners/cost/plan_time.hpp"
#include "planners/model/declared_memory.hpp"
#include "planners/plans/explicit_plan.hpp"

namespace troupe::harness {

namespace {

using formats::csv_reader;

std::uint32_t count(csv_reader& csv, std::string_view column) {
  return static_cast<std::uint32_t>(csv.whole(column, {0, 1e6}));
}

std::string text(csv_reader& csv, std::string_view column) {
  return std::string{csv.field(column)};
}

/// family to vocabulary.
model read_model(csv_reader& csv) {
  model m;
  m.name = text(csv, "source"), m.family = text(csv, "family");
  m.layers = count(csv, "layers"), m.hidden = count(csv, "hidden"), m.heads = count(csv, "heads");
  m.sequence = count(csv, "sequence"), m.vocabulary = count(csv, "vocabulary");
  return m;
}

published_run read_run(csv_reader& csv) {
  published_run r;
  r.source = text(csv, "source"), r.set = text(csv, "set"), r.gpu = text(csv, "gpu");
  r.gpus_per_node = count(csv, "gpus_per_node"), r.nodes = count(csv, "nodes");
  r.intra = {"intra", csv.number("intra_gbps", {1, 1e5}), 3};
  r.inter = {"inter", csv.number("inter_gbps", {1, 1e5}), 5};
  r.model = read_model(csv);
  r.model.intermediate = count(csv, "intermediate");
  r.precision = text(csv, "precision"), r.checkpointing = text(csv, "checkpointing");
  r.kernels = text(csv, "kernels"), r.zero = count(csv, "zero");
  r.data = count(csv, "data"), r.tensor = count(csv, "tensor");
  r.pipeline = count(csv, "pipeline"), r.virtual_stages = count(csv, "virtual");
  r.microbatches = count(csv, "microbatches"), r.rows = count(csv, "rows");
  r.iteration_s = csv.number("iteration_s", {0, 1e9}), r.note = text(csv, "note");
  return r;
}

published_memory read_memory(csv_reader& csv) {
  published_memory r;
  r.source = text(csv, "source"), r.gpu = text(csv, "gpu");
  r.model = read_model(csv);
  r.optimizer = text(csv, "optimizer"), r.precision = text(csv, "precision");
  r.checkpointing = text(csv, "checkpointing"), r.kernels = text(csv, "kernels");
  r.zero = count(csv, "zero"), r.data = count(csv, "data"), r.tensor = count(csv, "tensor");
  r.rows = count(csv, "rows"), r.head = count(csv, "head") > 0;
  r.bytes = csv.number("published", {0, 1e6}) * (csv.field("unit") == "MiB" ? 1 << 20 : 1e9);
  r.note = text(csv, "note");
  return r;
}

/// Every row of a file, read by `read`.
template <class Row>
expected<std::vector<Row>> load_rows(const std::filesystem::path& file, Row (*read)(csv_reader&)) {
  std::ifstream in{file};
  std::ostringstream all;
  all << in.rdbuf();
  const auto content = all.str();
  formats::findings found{file.string()};
  csv_reader csv{found, content};
  std::vector<Row> out;
  while (csv.next()) out.push_back(read(csv));
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
      planners::plan_of_stages(c, planners::idle_index{c}, job, stages_of(r), r.data);
  if (!placed) return refuse(placed.error());
  return job.global_batch / placed->how.samples_per_s;
}

}  // namespace

expected<std::vector<published_run>> load_published_runs(const std::filesystem::path& file) {
  return load_rows(file, read_run);
}
expected<std::vector<published_memory>> load_published_memory(const std::filesystem::path& file) {
  return load_rows(file, read_memory);
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
  for (std::uint32_t n = 0; n < r.nodes; ++n)
    c.nodes.push_back({fmt::format("n{}", n), 0, 0, r.gpus_per_node, r.intra, r.inter});
  return c;
}

expected<double> predicted_s(const published_run& r, std::span<const gpu_type> catalogue) {
  const auto gpu = std::ranges::find(catalogue, r.gpu, &gpu_type::name);
  if (gpu == catalogue.end())
    return refuse(reason::kind::invalid, fmt::format("no GPU '{}' in the catalogue", r.gpu));
  const auto c = cluster_of(r, *gpu);
  if (r.pipeline > 1) return predicted_pipeline_s(r, c);
  plan how;
  how.data_parallel = r.data, how.tensor_parallel = r.tensor;
  allocation where;
  for (node_index n = 0; n < c.nodes.size(); ++n) where.push_back({n, r.gpus_per_node});
  return planners::estimate_iteration(c, job_of(r), how, where).iteration_s;
}

bool differ_in_gpu_alone(const published_run& a, const published_run& b) {
  const auto key = [](const published_run& r) {
    const auto& m = r.model;
    return std::tuple{r.source, m.layers,  m.hidden,       m.sequence, r.precision == "mixed",
                      r.rows,   r.data,    r.microbatches, r.tensor,   r.pipeline,
                      r.nodes,  r.kernels, r.checkpointing};
  };
  return a.gpu != b.gpu && key(a) == key(b);
}

error_summary summary_of(std::vector<double> errors) {
  error_summary s;
  s.runs = errors.size();
  if (errors.empty()) return s;
  for (auto& e : errors) e = std::abs(e);
  std::ranges::sort(errors);
  s.mean = std::accumulate(errors.begin(), errors.end(), 0.0) / static_cast<double>(s.runs);
  s.median = errors[errors.size() / 2];
  s.worst = errors.back();
  return s;
}

}  // namespace troupe::harness
