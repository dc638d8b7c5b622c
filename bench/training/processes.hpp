#pragma once

#include <cstdint>

#include "messages/domain/model.hpp"

namespace troupe::bench {

/// A model as `troupe train` runs it, stages in processes of their own: one stage, and two that
/// recompute and that do not. rows: sequences a micro-batch.
void print_processes(const model& m, std::uint32_t rows, int rounds);

}  // namespace troupe::bench
