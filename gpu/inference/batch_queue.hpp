#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "gpu/inference/batch_round.hpp"

namespace troupe::gpu {

/// A sequence to complete.
struct batch_sequence {
  sequence_id id = 0;  // not used before
  completion_request what;
  std::vector<std::uint32_t> prompt;  // what.prompt_tokens
  // The completion's first tokens: they are fed one by one, as when they were generated, so that
  // the bits of what follows are the same.
  std::vector<std::uint32_t> known;
  bool computes = true;  // its prompt, on this device; false: not until compute(), or never

  std::uint32_t positions() const { return static_cast<std::uint32_t>(what.positions()); }
};

/// Continuous batching, without the device: which sequences wait, run, and what is computed next.
/// Pages for all positions of a sequence are taken when it is admitted, in the order of arrival, so
/// what runs always has the memory to end. One round is executed at a time.
class batch_queue {
 public:
  struct limits {
    std::uint32_t running = 64;   // sequences at a time; beyond them, sequences wait
    std::uint32_t prefill = 256;  // positions of prompts in a round; a multiple of tile_positions
    // Those of one prompt, a multiple, too: what comes now waits for no more of a long one. 0: no
    // limit, and prompts are computed one after the other.
    std::uint32_t chunk = tile_positions;
  };

  /// pages: of the device's cache, all free.
  batch_queue(const limits& l, std::uint32_t pages) : limits_{l}, pages_{pages}, free_{pages} {}

  /// Waits. Its pages must not be more than the cache has.
  void add(batch_sequence s);
  /// Those that have been admitted now.
  std::vector<sequence_id> admit();
  /// Its pages are free: for what is admitted next, since a round releases before it reserves.
  /// Unknown ones are ignored.
  void end(sequence_id s);

  /// From now on its prompt is computed here. Parts of its cache that are not in a round yet are
  /// dropped.
  void compute(sequence_id s);
  /// A part of the cache of a sequence that was admitted and does not compute.
  void put(batch_round::cache_part p);
  /// All parts of its cache have been put. `hidden`: of its prompt's last position.
  void cached(sequence_id s, payload hidden);

  /// The round after the last one, whose results have been given to took().
  batch_round next();
  /// There is nothing to do: next() would be empty.
  bool idle() const;
  /// A round has chosen this token next. Ignored if the sequence has ended meanwhile.
  void took(sequence_id s, std::uint32_t token);

  std::uint32_t pages() const { return pages_; }
  std::uint32_t free_pages() const { return free_; }
  std::size_t running() const { return running_.size(); }
  std::size_t waiting() const { return waiting_.size(); }

 private:
  struct sequence {
    batch_sequence about;      // `known` grows by the chosen tokens
    std::size_t computed = 0;  // positions of the prompt in the cache
    std::size_t fed = 0;       // tokens of the completion in the cache
    bool reserved = false;     // on the device
    bool awaits = false;       // a token that the present round chooses

    bool prefilled() const { return computed == about.prompt.size(); }
    bool decodes() const { return prefilled() && !awaits && fed < about.known.size(); }
    bool prefills() const { return about.computes && !prefilled(); }
  };
  next_token next_of(sequence& s);
  void decode(batch_round& r);
  std::vector<sequence_id> prefilling() const;
  void prefill(batch_round& r);

  limits limits_;
  std::uint32_t pages_, free_;
  std::map<sequence_id, sequence> sequences_;
  std::deque<sequence_id> waiting_, running_;  // in the order of arrival, and of admission
  std::vector<sequence_id> released_, admitted_;
  std::vector<batch_round::cache_part> parts_;
  std::vector<std::pair<sequence_id, payload>> last_;
};

}  // namespace troupe::gpu
