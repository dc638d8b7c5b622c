#pragma once

#include <filesystem>
#include <optional>

#include "formats/load/load.hpp"
#include "formats/parse/reader.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/profile.hpp"

// Readers of parts that files have in common, and of the parts of job files.

namespace troupe::formats {

/// A model from a map in any file: its own keys, or {huggingface: path, ...}. Paths are relative to
/// `directory` or to the current one.
model read_model(findings& found, const value& v, const std::string& place,
                 const std::filesystem::path& directory);

/// A model from the tree of a Hugging Face config.json.
model read_huggingface(findings& found, const value& v);

/// Consistency checks of a model's sizes; `line` and `place` are for the error.
void check_model(findings& found, const model& m, int line, const std::string& place);

/// Is it "organization/model" as on the Hugging Face hub, rather than a path? The error that
/// explains it.
bool is_hub_id(const std::string& name);
std::string hub_id_advice(const std::string& name);

/// Finds `name` in the directory or in the current one; empty: in neither.
std::filesystem::path find_file(const std::filesystem::path& name,
                                const std::filesystem::path& directory);

/// Reads the profile named by the map's key `profile`, relative to this directory or the current
/// one; without the key, `out` is unchanged.
void read_named_profile(map_reader& map, const std::filesystem::path& directory,
                        std::optional<device_profile>& out);

/// A job's declarations about memory: memory_gb, optimizer, precision, zero or fsdp, lora,
/// activation_checkpointing and micro_batch (docs/files.md). If it has none, job.memory stays
/// empty.
void read_memory(map_reader& map, job_spec& job);

/// `elastic:` of a program; its grace_s becomes the job's.
void read_elastic(map_reader& map, job_spec& job);

/// `retries:`, a number of attempts or a map.
void read_retries(map_reader& map, job_spec& job);

/// The keys of a job that serves a model, except those that every job has. The model's folder is
/// made absolute like other paths of a job (found_path); its shape is its config.json's, and also
/// becomes the job's `model`.
void read_serving(map_reader& map, job_spec& job, const std::filesystem::path& directory);

/// `bubbles:` of a training's `pipeline:`. `needs_folder`: guests really run, on the files of a
/// folder; otherwise a file with the model's shape will do.
bubble_lending read_bubbles(findings& found, const value& v, bool needs_folder,
                            const std::filesystem::path& directory);

/// The absolute path of a file or folder that a job names: in the job's directory, the current one
/// or that of the shipped files, whichever has it first; else in the job's.
std::string found_path(const std::string& named, const std::filesystem::path& directory);

/// Which numbers the job file has; others follow from those of the rows.
struct stated_counts {
  bool batch = false, iterations = false;
};
/// The model of such a training; `describe` completes the program's arguments, which beside others
/// are seed, global_batch and iterations meanwhile, the latter two 0 where nobody has stated them.
expected<model> describe_tuning(job_spec& job, stated_counts stated,
                                const program_description& describe);

/// A job's `train:`, `slots:` and `pipeline:`. Relative paths in `train:` are made absolute: the
/// first existing file in the job's directory, the current one or the shipped files; otherwise, and
/// for the checkpoint, in the job's directory.
void read_training(map_reader& map, job_spec& job, const std::filesystem::path& directory);

}  // namespace troupe::formats
