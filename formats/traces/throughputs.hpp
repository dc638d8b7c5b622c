#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"

// Measured speeds of models on GPUs: docs/traces.md.

namespace troupe::formats {

struct measured_rate {
  std::string gpu_type;  // as the file names it
  double per_s = 0;      // samples, or steps; 0: it cannot run there
};

struct throughputs {
  std::string file;
  bool steps = false;  // rates are of steps, whatever the batch
  /// By model and number of GPUs.
  std::map<std::pair<std::string, std::uint32_t>, std::vector<measured_rate>> rates;
  /// By model: iterations of jobs without a number of their own.
  std::map<std::string, std::uint64_t> iterations;
};

/// A CSV file with the columns model,gpu_type,gpus,samples_per_s[,iterations], or (*.json) Gavel's
/// throughputs: by GPU type and "('model', gpus)", of which "null" is the job's steps/s alone.
expected<throughputs> load_throughputs(const std::filesystem::path& file);

/// Does a type's name of such a file mean this type of a cluster? Gavel's have no memory: v100.
bool means_gpu(const std::string& named, const gpu_type& gpu);

}  // namespace troupe::formats
