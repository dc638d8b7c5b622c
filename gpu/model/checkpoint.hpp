#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpu/model/parameters.hpp"
#include "gpu/model/safetensors.hpp"

// A checkpoint is a directory: a safetensors file from each stage and, once all are there, an index
// in Hugging Face's form. Any number of stages reads what any number wrote.

namespace troupe::gpu {

/// root/iteration-000040
std::filesystem::path checkpoint_directory(const std::filesystem::path& root,
                                           std::uint64_t iteration);
/// The name of a stage's file in it: layers-00002-00004.5-lease-7.safetensors has layers 2 and 3
/// and the attention of layer 4, as lease 7 wrote them.
std::string stage_file(const stage_spec& s);

/// A parameter as a device has it. Its moments are stored as adam.m/NAME and adam.v/NAME.
struct saved_values {
  const parameter* what = nullptr;
  std::span<const float> weights, first_moments, second_moments;
};

/// Writes a stage's file; makes the directory. `iteration`: updates done. Empty text: done.
reason save_stage(const std::filesystem::path& directory, const stage_spec& s,
                  std::uint64_t iteration, const std::vector<saved_values>& all);

/// Whoever coordinates the stages calls this once all have saved: checks that `files` (names in
/// the directory) have every parameter of the model, and writes model.safetensors.index.json,
/// which makes the checkpoint one that newest_checkpoint finds.
reason write_index(const std::filesystem::path& directory, const troupe::model& m,
                   std::uint64_t iteration, const std::vector<std::string>& files);

struct found_checkpoint {
  std::uint64_t iteration = 0;
  std::filesystem::path directory;
};
/// The latest that is complete.
std::optional<found_checkpoint> newest_checkpoint(const std::filesystem::path& root);

/// A checkpoint for reading: a directory (its index says which files, or all *.safetensors in it),
/// or one file. GPT-2 of Hugging Face is one, with or without "transformer." before its names.
class checkpoint {
 public:
  static expected<checkpoint> open(const std::filesystem::path& path);

  /// Updates done; 0 if the files do not say.
  std::uint64_t iteration() const { return iteration_; }
  /// Moments that are not there are 0. Position embeddings may be longer than the model needs.
  reason read(const parameter& p, std::span<float> weights, std::span<float> first_moments,
              std::span<float> second_moments) const;

 private:
  struct place {
    const safetensors* file = nullptr;
    const stored_tensor* tensor = nullptr;
  };
  place find(const std::string& name) const;
  reason read_one(const place& from, const parameter& p, std::span<float> out) const;

  std::filesystem::path path_;
  std::vector<safetensors> files_;
  std::uint64_t iteration_ = 0;
};

/// All values of a stage as a device has them: own parameters, then a tied embedding.
struct stage_values {
  const std::vector<parameter>& parameters;
  std::uint64_t own = 0;
  std::span<float> weights, first_moments, second_moments;

  std::uint64_t position(const parameter& p) const { return p.tied ? own : p.offset; }
};
/// save_stage with them; a tied embedding is the first stage's to save.
reason save_values(const std::filesystem::path& directory, const stage_spec& s,
                   std::uint64_t iteration, const stage_values& values);
/// Reads all of them, of a shared stage this device's share; gives the updates done.
expected<std::uint64_t> load_values(const std::filesystem::path& path, const stage_spec& s,
                                    const stage_values& values);

/// The weights alone of a checkpoint of that model, in one file as Hugging Face has them.
reason export_weights(const std::filesystem::path& checkpoint_path, const troupe::model& m,
                      const std::filesystem::path& file);

}  // namespace troupe::gpu
