#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "actors/serving/decoder/block_receiver.hpp"
#include "messages/base/time.hpp"
#include "messages/wire/generation.hpp"
#include "messages/wire/prefill.hpp"

namespace troupe::actors {

/// The parts of a prompt's cache: `pages` pages in each of `layers` layers, and the last
/// position's hidden state.
struct cache_shape {
  std::uint32_t layers = 0, pages = 0;
  std::uint64_t page_bytes = 0;    // of one page in one layer
  std::uint64_t hidden_bytes = 0;  // of one position
  bool simulated = false;          // blocks have no bodies, and any size
};

/// The blocks of one prefill in bubbles, as they come to its decoder: which parts of the cache are
/// there. It is whole once every guest's blocks have come, they have all pages of all layers, and
/// the last hidden state. Pure: times are arguments.
class cache_assembly {
 public:
  /// `guests`: their nodes, by number; at least one.
  cache_assembly(prefill_name name, const cache_shape& shape, const std::vector<address>& guests);

  /// A block with this name. True: it is new; of kind cache, its body belongs into the cache.
  /// False: it has come before. An error: it does not come from its guest, its ranges are not in
  /// this cache, or block_receiver refuses it; nothing is changed. After each that is no error,
  /// state() goes to its sender.
  expected<bool> accept(address from, const prefill_block& b, const payload& body, double now_s);
  blocks_received state(std::uint32_t guest) const { return guests_[guest].blocks.state(); }

  /// The guests' blocks contradict each other, so that it will never be whole: why.
  const std::optional<reason>& broken() const { return broken_; }
  bool whole() const;
  /// It must be whole.
  const payload& last_hidden() const;

  std::uint32_t guests() const { return static_cast<std::uint32_t>(guests_.size()); }
  /// Adds its guests: their number, yields and bytes.
  void write(prefill_place& to) const;
  /// When the first operation of the first guest began, and the last one of the last guest ended,
  /// on this clock; it must be whole.
  double begun_s() const { return begun_s_; }
  double ended_s() const { return ended_s_; }

 private:
  struct sender {
    address node = 0;
    block_receiver blocks;
    std::uint32_t yields = 0;        // as far as its blocks report them
    std::uint64_t hidden_bytes = 0;  // likewise
  };

  expected<void> check(address from, const prefill_block& b) const;
  bool all_blocks() const;
  std::uint64_t bytes_of(const prefill_block& b) const;
  void cover(const prefill_block& b);

  cache_shape shape_;
  std::vector<sender> guests_;
  std::vector<bool> covered_;  // by layer, then page
  std::uint64_t missing_ = 0;  // of covered_
  std::optional<payload> last_;
  std::optional<reason> broken_;
  double begun_s_ = never, ended_s_ = 0;
};

}  // namespace troupe::actors
