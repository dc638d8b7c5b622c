#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpu/model/checkpoint_folders.hpp"
#include "gpu/model/checkpoint_retention.hpp"
#include "gpu/model/parameters.hpp"
#include "gpu/model/safetensors.hpp"

// A checkpoint is a directory with a safetensors file of each stage and, once all are written, an
// index in Hugging Face's form. It can be read with any number of stages.

namespace troupe::gpu {

/// The name of a stage's file: layers-00002-00004.5-lease-7.safetensors has layers 2 and 3 and the
/// attention of layer 4, written by lease 7.
std::string stage_file(const stage_spec& s);

/// A parameter of a device. Its moments are stored as adam.m/NAME and adam.v/NAME.
struct saved_values {
  const parameter* what = nullptr;
  std::span<const float> weights, first_moments, second_moments;
};

/// Writes a stage's file; makes the directory. `iteration`: updates done.
expected<void> save_stage(const std::filesystem::path& directory, const stage_spec& s,
                          std::uint64_t iteration, const std::vector<saved_values>& all);

/// Called when all stages have saved: checks that `files` (names in the directory) contain every
/// parameter of the model, and writes model.safetensors.index.json. Only then does
/// newest_checkpoint find it.
expected<void> write_index(const std::filesystem::path& directory, const troupe::model& m,
                           std::uint64_t iteration, const std::vector<std::string>& files);

/// The files of a checkpoint or model folder: those in its index, or all *.safetensors; a file
/// alone is itself. Fails if there is none.
expected<std::vector<std::filesystem::path>> checkpoint_files(const std::filesystem::path& path);

struct sound_checkpoint {
  std::uint64_t iteration = 0;
  std::vector<std::string> damaged;  // newer ones: a sentence with the file and what is wrong
};
/// The newest complete checkpoint whose files are all there, as long as their headers say, and have
/// all parameters of the model; their values are not read. Fails with the newest one's reason if
/// there are checkpoints and none is sound: a training must not begin anew without being asked.
expected<sound_checkpoint> newest_sound_checkpoint(const std::filesystem::path& root,
                                                   const troupe::model& m);

/// A checkpoint for reading, and not removed meanwhile: a directory (the files in its index, or all
/// *.safetensors), or one file. Hugging Face's GPT-2 can be read, with or without the prefix
/// "transformer.".
class checkpoint {
 public:
  static expected<checkpoint> open(const std::filesystem::path& path);

  /// Number of updates; 0 if the files do not say.
  std::uint64_t iteration() const { return iteration_; }
  const std::vector<safetensors>& files() const { return files_; }
  /// Fails as read() would, without reading values.
  expected<void> check(const parameter& p) const;
  /// Missing moments are 0. Position embeddings may be longer than needed.
  expected<void> read(const parameter& p, std::span<float> weights, std::span<float> first_moments,
                      std::span<float> second_moments) const;

 private:
  /// Its weights; fails if there are none.
  expected<found_tensor> weights_of(const parameter& p) const;

  std::filesystem::path path_;
  std::shared_ptr<const reading_lock> lock_;
  std::vector<safetensors> files_;
  std::uint64_t iteration_ = 0;
};

/// All values of a stage on a device: own parameters, then a tied embedding.
struct stage_values {
  const std::vector<parameter>& parameters;
  std::uint64_t own = 0;
  std::span<float> weights, first_moments, second_moments;

  std::uint64_t position(const parameter& p) const { return p.tied ? own : p.offset; }
};
/// save_stage for these values; the first stage saves a tied embedding, and if `whole` the last one
/// as well.
expected<void> save_values(const std::filesystem::path& directory, const stage_spec& s,
                           std::uint64_t iteration, const stage_values& values, bool whole = false);
/// Reads all values, of a shared stage this device's slice; returns the number of updates.
expected<std::uint64_t> load_values(const std::filesystem::path& path, const stage_spec& s,
                                    const stage_values& values);

/// Only the weights of a checkpoint of that model, in one file as Hugging Face has them.
expected<void> export_weights(const std::filesystem::path& checkpoint_path, const troupe::model& m,
                              const std::filesystem::path& file);

}  // namespace troupe::gpu
