#pragma once

#include "formats/parse/reader.hpp"
#include "messages/domain/job.hpp"

namespace troupe::formats {

/// A job's declarations about memory: memory_gb, optimizer, precision, zero or fsdp, lora,
/// activation_checkpointing and micro_batch (docs/files.md). If it has none, job.memory stays
/// empty.
void read_memory(map_reader& map, job_spec& job);

}  // namespace troupe::formats
