#pragma once

#include <string>

#include "gpu/examples/example_file.hpp"
#include "messages/base/reason.hpp"

namespace troupe::gpu {

/// Writes the rows as a safetensors file, complete or not at all, in a folder that is made if need
/// be: `tokens` I32 and `trained` U8,
/// row behind row; `examples` I64, where in these each example begins, and the end; `rows` I64,
/// which example each row begins with, and their number. Metadata: format, sequence, vocabulary.
expected<void> write_rows(const std::string& file, const example_set& s, const example_model& m);

}  // namespace troupe::gpu
