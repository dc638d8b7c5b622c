#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/base/untrusted_file.hpp"
#include "messages/domain/model.hpp"
#include "messages/wire/frame.hpp"

namespace troupe::gpu {

/// Training data: a sequence of tokens. What a file has as tokens or bytes is read when it is used,
/// so it may be larger than memory; it may change, but not become shorter.
///  - *.bin: 16-bit numbers, little-endian, as nanoGPT writes them; or what a header of llm.c says:
/// 16 or 32 bits, and how many;
///  - *.u32: 32-bit numbers;
///  - other files are text: its bytes, or GPT-2's tokens if there is a vocabulary.
class token_data {
 public:
  /// vocabulary: a directory with vocab.json and merges.txt; empty: none. Fails for data shorter
  /// than one sequence of the model plus one token, and for a vocabulary larger than the model's.
  static expected<token_data> open(const std::filesystem::path& file,
                                   const std::filesystem::path& vocabulary, const troupe::model& m);

  struct batch {
    payload tokens, targets;  // rows x sequence 32-bit numbers; a target is the next token
  };
  /// Samples `first` to first + rows - 1 of an iteration's global batch. The start of each depends
  /// only on the seed, the iteration, its index in the global batch and the length of the data: the
  /// global batch has the same samples for any split into pipelines and micro-batches.
  /// Fails if the file has become too short.
  expected<batch> sample(std::uint64_t seed, std::uint64_t iteration, std::uint64_t first,
                         std::uint32_t rows) const;

  std::uint64_t size() const { return count_; }
  /// Tokens from `first` on.
  expected<void> read(std::uint64_t first, std::span<std::uint32_t> out) const;

 private:
  std::shared_ptr<const untrusted_file> file_;
  std::uint64_t begin_ = 0;            // in the file
  std::vector<std::uint32_t> tokens_;  // of a text with a vocabulary, instead of the file
  std::uint64_t count_ = 0;
  unsigned width_ = 1;  // bytes per token
  std::uint32_t sequence_ = 0;
};

}  // namespace troupe::gpu
