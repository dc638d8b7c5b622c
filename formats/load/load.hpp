#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/domain/faults.hpp"
#include "messages/domain/job.hpp"
#include "messages/domain/model.hpp"
#include "messages/domain/profile.hpp"

// Readers of all files (docs/files.md). An invalid file is rejected with one sentence: FILE:LINE:
// key: what was found, what was expected, and the most similar known name. Nothing here throws.

namespace troupe::formats {

/// Directory of the shipped files: $TROUPE_CONFIGS, else share/troupe/configs or configs/ near the
/// program, else in the source tree that it was built from.
std::filesystem::path configs_directory();

/// GPU types by name, in the file's order.
expected<std::vector<gpu_type>> load_catalogue(const std::filesystem::path& file);

/// The gpus.yaml for a cluster file: in its directory or the nearest parent directory, else the
/// shipped one.
std::filesystem::path catalogue_for(const std::filesystem::path& cluster_file);

/// A cluster whose GPUs are all in the catalog; node groups are expanded.
expected<cluster> load_cluster(const std::filesystem::path& file,
                               std::span<const gpu_type> catalogue);
/// The same with the catalogue of catalogue_for().
expected<cluster> load_cluster(const std::filesystem::path& file);

/// A number of a policy that its user sets.
struct policy_setting {
  std::string origin;        // the beginning of a sentence about it: "FILE:LINE: KEY: "
  std::string policy, name;  // no policy: of each that has it
  double value = 0;
};
/// `policy_options:` of a cluster file, in its order; whether there are such policies is not known
/// here.
expected<std::vector<policy_setting>> load_policy_settings(
    const std::filesystem::path& cluster_file);

/// A model: Troupe's YAML, or a Hugging Face config.json (GPT-2, Llama, Mistral, Qwen2, BERT, ViT).
expected<model> load_model(const std::filesystem::path& file);

/// Makes the model of a program, and completes what its file decides (sha256).
using program_description = std::function<expected<model>(layer_file&)>;

/// A job. Its model may be a path (from the job's directory, the current one, or a shipped one's
/// name), a map, or {huggingface: path}. With a catalogue, `gpu_type` must be in it. `notices`
/// receives a sentence about each key that has been renamed. `describe`: for a training of a
/// program that names no model; null: then the key is required.
expected<job_spec> load_job(const std::filesystem::path& file,
                            std::span<const gpu_type> catalogue = {},
                            std::vector<std::string>* notices = nullptr,
                            const program_description& describe = nullptr);

/// A job without a file: keys and values as JSON. `name` takes the file's place in errors; paths
/// are relative to the current directory.
expected<job_spec> parse_job(const std::string& name, const std::string& json,
                             const program_description& describe = nullptr);

/// A job file (YAML) that reads as this job, without its training's profile, costs and timeline.
std::string job_text(const job_spec& job);

/// A model file (YAML) that reads as this model.
std::string model_text(const model& m);

/// A fault plan for a virtual run; check_faults compares its hosts with the cluster.
expected<fault_plan> load_faults(const std::filesystem::path& file);
/// Does every host of the plan exist in the cluster? `file` is for the error.
expected<void> check_faults(const fault_plan& plan, const cluster& c, const std::string& file);

/// A profile written by `troupe profile`.
expected<device_profile> load_profile(const std::filesystem::path& file);
/// The contents of such a file.
std::string profile_text(const device_profile& p);

/// The built-in links by name: nvlink, nvlink4, pcie3, ...
std::span<const link> known_links();

}  // namespace troupe::formats
