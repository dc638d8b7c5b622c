#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "messages/base/fields.hpp"
#include "messages/domain/model.hpp"

// A job's requests for serving a model, or for lending the bubbles of its training to one.

namespace troupe {

/// A served model and the place of its files.
struct served_model_files {
  std::string name;  // as clients name it
  /// Its files: config.json, safetensors, tokenizer; the same path on every node.
  std::string folder;
  std::optional<std::uint64_t> random_weights{};  // seed of random weights instead of the folder's
  troupe::model shape;                            // from config.json
  /// Hash of config.json, the weights' index and samples of the weights when the job was read; 0:
  /// unknown.
  std::uint64_t hash = 0;
  static constexpr std::size_t required = 4;

  /// Would both compute the same? A hash that is unknown is no difference.
  bool same_files(const served_model_files& other) const {
    return folder == other.folder && random_weights == other.random_weights &&
           shape == other.shape && (hash == other.hash || hash == 0 || other.hash == 0);
  }

  TROUPE_FIELDS(served_model_files, name, folder, random_weights, shape, hash);
};

/// A LoRA adapter of PEFT's format that is served beside its base.
struct served_adapter {
  std::string name;        // as clients name it, in place of the model
  std::string folder;      // the same path on every node
  std::uint64_t hash = 0;  // of its files when the job was read

  TROUPE_FIELDS(served_adapter, name, folder, hash);
};

/// A decoder: one GPU that completes prompts until the job is cancelled. Key `serve:` of a job.
struct serving {
  served_model_files model;
  double kv_gb = 1;                   // of the cache
  std::uint32_t context = 0;          // prompt and completion, at most; 0: the model's positions
  std::uint32_t max_running = 64;     // sequences that are decoded together; others wait
  std::uint32_t max_sequences = 256;  // running and waiting; beyond them, it declines
  bool bubbles = true;   // asks for prefill in bubbles first; otherwise it prefills by itself
  bool fallback = true;  // prefills by itself what no bubble takes; otherwise declines it
  double ttft_s = 2;     // goal for the time to the first token
  /// Threads that compute, of a device on processors; none: 1. The bits are the same for all.
  std::optional<std::uint32_t> threads{};
  std::optional<std::vector<served_adapter>> adapters{};  // none: the model alone
  static constexpr std::size_t required = 8;

  TROUPE_FIELDS(serving, model, kv_gb, context, max_running, max_sequences, bubbles, fallback,
                ttft_s, threads, adapters);
};

/// How a training lends its bubbles to a served model. Key `bubbles:` of `pipeline:`.
struct bubble_lending {
  served_model_files model;
  double memory_gb = 1;     // of each of its GPUs, for the guest beside the stage
  std::uint32_t depth = 0;  // guests of a prefill pipeline, at least; 0: as few as memory allows
  /// Whole, look-ahead, chunked or resumable (planners/bubbletea/prefill_work.hpp).
  std::string rule = "resumable";
  std::uint32_t look_ahead = 8;  // prompts that `look-ahead` chooses from
  std::uint32_t chunk = 512;     // tokens
  /// Longest operation; of a job 0: as suits the device; of an offer or setup above 0.
  double op_ms = 0;
  double guard_ms = 0.5;        // before the training's next step
  double delay_budget = 0.005;  // share of an iteration by which its steps may be delayed

  /// Shorter on a GPU: there the training waits for the operation to end.
  double longest_op_ms(bool on_gpu) const { return op_ms > 0 ? op_ms : on_gpu ? 1 : 2; }

  TROUPE_FIELDS(bubble_lending, model, memory_gb, depth, rule, look_ahead, chunk, op_ms, guard_ms,
                delay_budget);
};

}  // namespace troupe
