#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "messages/base/reason.hpp"

namespace troupe::runtime {

/// The GPUs that this process may use: those of its own CUDA_VISIBLE_DEVICES, in that order, which
/// its children get parts of. Without the variable all GPUs, by their numbers.
class visible_gpus {
 public:
  /// As CUDA reads the variable: numbers, UUIDs (GPU-...) and MIG devices (MIG-...), separated by
  /// commas, up to the first entry that is none of these, as -1. Refuses an entry that is listed
  /// twice, with which CUDA finds no GPU at all. Null: the variable is not set.
  static expected<visible_gpus> read(const char* value);
  /// By this process's environment; a value that is refused shows no GPU.
  static visible_gpus own();

  /// Nothing if there are this many, or the number is not limited; else why not, with both counts.
  expected<void> suffice(std::string_view node, std::uint32_t gpus) const;

  /// CUDA's names of the GPUs with these numbers ("0,2") among the visible ones: "4,6". A number
  /// without a GPU is left out.
  std::string names_of(std::string_view numbers) const;
  /// Replaces the numbers in a child's CUDA_VISIBLE_DEVICES, if it has that, by names.
  void name_in(std::vector<std::pair<std::string, std::string>>& environment) const;

 private:
  std::optional<std::vector<std::string>> names_;  // none: every GPU, by its number
  std::string rest_;                               // from the entry on at which CUDA stops reading
};

/// suffice() of this process's environment; or why that cannot be read.
expected<void> check_visible_gpus(std::string_view node, std::uint32_t gpus);

}  // namespace troupe::runtime
