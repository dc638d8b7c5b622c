#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "messages/frame.hpp"
#include "messages/model.hpp"
#include "messages/reason.hpp"

namespace troupe::gpu {

/// Training data: a sequence of tokens, read or mapped once.
///  - *.bin: 16-bit numbers, little-endian, as nanoGPT writes them; a header of llm.c (1,024 bytes)
/// is skipped;
///  - *.u32: 32-bit numbers;
///  - other files are text: its bytes, or GPT-2's tokens if there is a vocabulary.
class token_data {
 public:
  /// vocabulary: a directory with vocab.json and merges.txt; empty: none. Fails for data shorter
  /// than one sequence of the model plus one token, and for tokens beyond the model's vocabulary.
  static expected<token_data> open(const std::filesystem::path& file,
                                   const std::filesystem::path& vocabulary, const troupe::model& m);

  struct batch {
    payload tokens, targets;  // rows x sequence 32-bit numbers; a target is the next token
  };
  /// Samples `first` to first + rows - 1 of an iteration's global batch. The start of each depends
  /// only on the seed, the iteration, its index in the global batch and the length of the data: the
  /// global batch has the same samples for any split into pipelines and micro-batches.
  batch sample(std::uint64_t seed, std::uint64_t iteration, std::uint64_t first,
               std::uint32_t rows) const;

  std::uint64_t size() const { return count_; }
  std::uint32_t operator[](std::uint64_t i) const;

 private:
  std::shared_ptr<const std::byte> bytes_;
  std::uint64_t count_ = 0;
  unsigned width_ = 1;  // bytes per token
  std::uint32_t sequence_ = 0;
};

}  // namespace troupe::gpu
