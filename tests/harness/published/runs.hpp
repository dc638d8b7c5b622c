#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/job.hpp"

// Training times that others have published (tests/planners/published_runs.csv names each source),
// and the cost model's times of the same runs.

namespace troupe::harness {

struct published_run {
  std::string source;
  std::string set;  // fit: constants were chosen by it; held: not; ratio: between GPU types alone
  std::string gpu;
  std::uint32_t gpus_per_node = 1, nodes = 1;
  link intra, inter;
  troupe::model model;
  std::string precision;      // as of job files
  std::string checkpointing;  // none, selective, full
  std::string kernels;        // eager, fused, flash, sdpa
  std::uint32_t zero = 0;
  std::uint32_t data = 1, tensor = 1, pipeline = 1;
  std::uint32_t virtual_stages = 1;  // parts of the model that each stage of a pipeline has
  std::uint32_t microbatches = 1, rows = 1;
  double iteration_s = 0;  // as published
  std::string note;
  std::uint32_t context = 1;       // GPUs that divide each sequence
  std::uint32_t lora_rank = 0;     // 0: all parameters are trained
  std::uint32_t domain_nodes = 0;  // nodes that reach each other by NVLink; 0: none does
  bool overlap = false;            // of communication and work (pipeline.overlap)
  bool chunked_loss = false;
  std::string outcome = "ran";  // failed, out_of_memory: no times
  std::string why_not;          // it cannot be said as a job file; empty: it can
  double peak_bytes = 0;        // without CUDA's context; 0: not published
};

/// A name for people: the model's sizes, the GPUs and how they divide it.
std::string name_of(const published_run& run);
/// GPU type, recomputation and length class (from 8,192 tokens on a sequence is long).
std::string kind_name_of(const published_run& run);

/// Refuses a file that is not exactly right, with line and column.
expected<std::vector<published_run>> load_published_runs(const std::filesystem::path& file);
/// Rows of any source: in these columns or, by the header, those of
/// tests/planners/published/README.md. `models`: sizes of models that rows name, if the file's
/// folder has no models.csv.
expected<std::vector<published_run>> load_any_runs(const std::filesystem::path& file,
                                                   const std::filesystem::path& models);
/// All of the tree. `root`: of the source tree.
expected<std::vector<published_run>> load_all_runs(const std::filesystem::path& root);
/// The files of tests/planners that have runs.
const std::vector<std::string>& published_files();

/// The same as a job, and on a cluster of its own.
job_spec job_of(const published_run& run);
cluster cluster_of(const published_run& run, const gpu_type& gpu);

/// A reading of a GPU's memory that others have published, of a run on one stage.
struct published_memory {
  std::string source;
  std::string gpu;
  troupe::model model;
  std::string optimizer, precision, checkpointing, kernels;
  std::uint32_t zero = 0, data = 1, tensor = 1, rows = 1;
  bool head = true;  // are there logits of the vocabulary?
  double bytes = 0;  // 0: it ran out of memory
  std::string note;
};
expected<std::vector<published_memory>> load_published_memory(const std::filesystem::path& file);
/// The bytes in use by the memory model. A reading is higher by the cache of the allocator.
double predicted_bytes(const published_memory& reading);
/// The allocator's overhead: the mean ratio of reading to prediction in all sources but `source`.
double allocator_overhead(std::span<const published_memory> readings, const std::string& source);

/// The bytes in use by the memory model, without CUDA's context.
double predicted_peak_bytes(const published_run& run);
/// Kendall's tau of what was published and predicted; 0 for less than two runs.
double rank_correlation(std::span<const std::pair<double, double>> published_and_predicted);

/// The time of an iteration by the cost model. Refuses a GPU that the catalogue does not have.
expected<double> predicted_s(const published_run& run, std::span<const gpu_type> catalogue);

/// Do two runs differ in nothing but their GPUs and links?
bool differ_in_gpu_alone(const published_run& a, const published_run& b);

/// Statistics of absolute errors.
struct error_summary {
  std::size_t runs = 0;
  double mean = 0, median = 0, worst = 0;
  double bias = 0;  // the mean of the errors themselves
};
error_summary summary_of(std::vector<double> errors);

}  // namespace troupe::harness
