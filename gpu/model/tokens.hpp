#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "messages/frame.hpp"
#include "messages/model.hpp"
#include "messages/reason.hpp"

namespace troupe::gpu {

/// What a model learns from: one long row of tokens, read or mapped once.
///  - *.bin: numbers of 16 bits, little end first, as nanoGPT writes them; a header of llm.c (1,024
///    bytes) is skipped;
///  - *.u32: numbers of 32 bits;
///  - any other file is text: its bytes, or GPT-2's tokens if there is a vocabulary.
class token_data {
 public:
  /// vocabulary: a directory with vocab.json and merges.txt; empty: none. Refuses what is shorter
  /// than one sequence of the model and the token behind it, and what the model has no words for.
  static expected<token_data> open(const std::filesystem::path& file,
                                   const std::filesystem::path& vocabulary, const troupe::model& m);

  struct batch {
    payload tokens, targets;  // rows x sequence numbers of 32 bits; a target is the next token
  };
  /// Samples first to first + rows - 1 of an iteration's global batch. Where each begins depends on
  /// the seed, the iteration, its index in the global batch and the data's length alone: however
  /// the batch is cut into pipelines and micro-batches, it holds the same samples.
  batch sample(std::uint64_t seed, std::uint64_t iteration, std::uint64_t first,
               std::uint32_t rows) const;

  std::uint64_t size() const { return count_; }
  std::uint32_t operator[](std::uint64_t i) const;

 private:
  std::shared_ptr<const std::byte> bytes_;
  std::uint64_t count_ = 0;
  unsigned width_ = 1;  // bytes a token
  std::uint32_t sequence_ = 0;
};

}  // namespace troupe::gpu
