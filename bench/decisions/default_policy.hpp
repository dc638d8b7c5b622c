#pragma once

#include <filesystem>
#include <optional>

#include "messages/base/reason.hpp"

// The processor time of the default policy beside that of frenzy.

namespace troupe::bench {

struct beside_frenzy {
  double frenzy_s = 0, troupe_s = 0;
};

/// `troupe plan` of GPT-2 7B, batch 1,024, on an idle cluster of 100,000 GPUs. Medians of 3.
expected<beside_frenzy> planning_s();

/// A whole simulation of a trace as Philly's artifact has it, on configs/clusters/philly.yaml.
/// Medians of `runs`.
expected<beside_frenzy> replay_s(const std::filesystem::path& philly, int runs);

}  // namespace troupe::bench
