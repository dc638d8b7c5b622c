#pragma once

#include <cstdint>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/wire/frame.hpp"
#include "messages/wire/prefill.hpp"

namespace troupe::actors {

/// prefill_block::hash of a body: XXH3; 0 only if it is empty.
std::uint64_t block_hash(const payload& body);

/// The blocks of one prefill that come from one guest: its hidden states, or those to the decoder.
/// Tells new ones from repetitions and states which have come; it keeps no data. After every block,
/// refused ones excepted, state() goes to the sender. The caller checks a block's ranges, since
/// only it knows the layers and the prompt.
class block_receiver {
 public:
  /// Blocks of one guest; more are refused.
  static constexpr std::uint32_t max_blocks = 1u << 18;

  /// `simulated`: bodies are empty.
  block_receiver(prefill_name name, std::uint32_t guest, bool hidden, bool simulated);

  /// A block with this name, from this guest, of this kind. `expected_bytes`: what its kind and its
  /// ranges imply. True: it is new, and its body is whole. False: it has come before. An error: its
  /// index, `blocks`, size or hash are wrong, and nothing is changed.
  expected<bool> accept(const prefill_block& b, const payload& body, std::uint64_t expected_bytes);

  /// All of them have come. False before the first.
  bool whole() const { return !has_.empty() && received_ == has_.size(); }
  std::uint32_t received() const { return received_; }
  std::uint64_t bytes() const { return bytes_; }  // of those that have come

  blocks_received state() const;

 private:
  expected<void> check(const prefill_block& b, const payload& body,
                       std::uint64_t expected_bytes) const;

  prefill_name name_;
  std::uint32_t guest_ = 0;
  bool hidden_ = false, simulated_ = false;
  std::vector<bool> has_;  // by index
  std::uint32_t all_below_ = 0, received_ = 0;
  std::uint64_t bytes_ = 0;
};

/// The answer to a block that is not needed (any more): its sender may forget all of them.
blocks_received not_needed(const prefill_block& b);

}  // namespace troupe::actors
