#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "gpu/model/checkpoint.hpp"
#include "messages/base/reason.hpp"

namespace troupe::gpu {

/// Values of the training that wrote a program's checkpoint, as the first layer's file says. Older
/// files say less.
struct layer_origin {
  std::string sha256;                         // of the program's file; empty: unknown
  std::optional<std::string> arguments;       // of its functions: a JSON object
  std::optional<std::uint64_t> global_batch;  // samples of its last iteration
  std::uint64_t samples = 0;                  // that it had read, with `global_batch`
};

/// A JSON object with its names in order, so that equal ones are equal texts; "{}" of an empty
/// text.
std::string in_order(const std::string& object);

/// Nothing for a checkpoint of the built-in model.
expected<std::optional<layer_origin>> origin_of(const checkpoint& c);

}  // namespace troupe::gpu
