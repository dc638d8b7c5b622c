#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "messages/base/fields.hpp"

namespace troupe {

// Valid values of the keys below.
inline const std::array<std::string, 5> optimizers{"adam", "adamw", "adam8bit", "momentum", "sgd"};
inline const std::array<std::string, 5> precisions{"mixed", "bf16", "fp32", "tf32", "fp8"};
inline const std::array<std::string, 3> checkpointings{"none", "selective", "full"};
inline const std::array<std::string, 2> lora_target_names{"attention", "all"};

/// The declarations of a job about the memory of its training; planners/model/declared_memory.hpp
/// uses them. For a job without any the paper's formula is used.
struct memory_options {
  double gb = 0;          // GB per GPU, as known to the user; 0: predicted
  std::string optimizer;  // `adam`, `adamw`, `adam8bit`, `momentum`, `sgd`; empty: `adamw`
  /// `mixed`, `bf16`, `fp32`, `tf32`; empty: `mixed`. `fp8`, for estimates: mixed, with the layers'
  /// products in 8 bits.
  std::string precision;
  /// ZeRO stage, 0 to 3: the states that are sharded over the data-parallel ranks.
  std::uint32_t zero = 0;
  std::string checkpointing;      // of activations: `none`, `selective`, `full`; empty: `none`
  std::uint32_t lora_rank = 0;    // 0: all parameters are trained
  std::string lora_targets;       // `attention`, `all`; empty: `all`
  std::uint32_t micro_batch = 0;  // samples a GPU has in flight; 0: by the job's microbatches
  /// The head and the loss go through a micro-batch in chunks of tokens, and never have all of its
  /// logits; none: they have.
  std::optional<bool> chunked_loss{};
  static constexpr std::size_t required = 8;

  TROUPE_FIELDS(memory_options, gb, optimizer, precision, zero, checkpointing, lora_rank,
                lora_targets, micro_batch, chunked_loss);
};

/// Does every number have four bytes?
inline bool is_single(const memory_options& o) {
  return o.precision == "fp32" || o.precision == "tf32";
}

/// Are the layers' products in 8 bits?
inline bool is_fp8(const memory_options& o) {
  return o.precision == "fp8";
}

/// The conclusions from a job's attempts that ran out of memory.
struct memory_history {
  std::uint32_t out_of_memory = 0;  // attempts that did
  /// The memory that it turned out to need, relative to what was predicted with the cluster's
  /// headroom; plans that were made since have it.
  double factor = 1;
  double bytes_floor = 0;  // per GPU: plans that need at most this have run out of memory
  // The last of these attempts: its GPUs, and the memory of the smallest of them. 0: there was
  // none, or it is from a journal that did not record it yet.
  std::uint32_t tried_gpus = 0;
  double tried_bytes = 0;
  bool alone = false;  // one of them was in a union: it is not merged again

  TROUPE_FIELDS(memory_history, out_of_memory, factor, bytes_floor, tried_gpus, tried_bytes, alone);
};

}  // namespace troupe
