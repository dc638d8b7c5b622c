#pragma once

#include "gpu/model/export.hpp"

namespace troupe::actors {

using gpu::export_wish;
using gpu::exported;

/// A checkpoint of the built-in trainer as a Hugging Face folder: gpu::export_model.
expected<exported> export_model(const export_wish& w);

}  // namespace troupe::actors
