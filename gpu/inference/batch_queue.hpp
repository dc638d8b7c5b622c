#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gpu/inference/batch_round.hpp"
#include "gpu/inference/prefix_index.hpp"

namespace troupe::gpu {

/// A sequence to complete.
struct batch_sequence {
  sequence_id id = 0;  // not used before
  completion_request what;
  std::vector<std::uint32_t> prompt;  // what.prompt_tokens
  // The completion's first tokens: they are fed one by one, as when they were generated, so that
  // the bits of what follows are the same.
  std::vector<std::uint32_t> known;
  bool computes = true;   // its prompt, on this device; false: not until compute(), or never
  adapter_ref adapter{};  // that it is computed with

  std::uint32_t positions() const { return static_cast<std::uint32_t>(what.positions()); }
};

/// Continuous batching, without the device: which sequences wait, run, and what is computed next.
/// One round is executed at a time.
///
/// Pages are counted for a sequence when it is admitted, in the order of arrival: those of its
/// prompt and of its known tokens. Further ones follow when it comes to them. If there are none,
/// the youngest sequence is set back: its pages are freed, it waits as if it had just come, before
/// all that came later, and is computed again with the same tokens. The oldest one is never set
/// back, so that there is always one that ends.
///
/// Whole pages of a prompt begin other prompts with the same tokens and the same adapter, which do
/// not compute them; a page that no sequence has any more stays until there is no free one.
class batch_queue {
 public:
  struct limits {
    std::uint32_t running = 64;   // sequences at a time; beyond them, sequences wait
    std::uint32_t prefill = 256;  // positions of prompts in a round; a multiple of tile_positions
    // Those of one prompt, a multiple, too: what comes now waits for no more of a long one. 0: no
    // limit, and prompts are computed one after the other.
    std::uint32_t chunk = tile_positions;
    bool shares = true;  // pages of prompts
  };
  /// Since the beginning.
  struct counts {
    std::uint64_t set_back = 0;         // sequences, each time
    std::uint64_t computed_prompt = 0;  // positions of prompts that were computed here
    std::uint64_t cached_prompt = 0;    // and that other prompts had computed
  };

  /// pages: of the device's cache, all free. owner: of what it computes.
  batch_queue(const limits& l, std::uint32_t pages, prefix_owner owner = {})
      : limits_{l}, owner_{std::move(owner)}, pages_{pages}, free_{pages} {}

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
  /// Is its prompt computed here?
  bool computes(sequence_id s) const { return sequences_.at(s).about.computes; }
  /// Positions of its prompt that would not be computed if it began here now.
  std::uint32_t known_prefix(sequence_id s) const;
  /// A part of the cache of a sequence that was admitted and does not compute.
  void put(batch_round::cache_part p);
  /// All parts of its cache have been put. `hidden`: of its prompt's last position.
  void cached(sequence_id s, payload hidden);

  /// The device could not keep a page: no other prompt begins with it. Sequences that were to get
  /// it, and have not asked the device for it yet, are set back.
  void forget(page_name p);

  /// The round after the last one, whose results have been given to took(), and whose failures to
  /// end().
  batch_round next();
  /// There is nothing to do: next() would be empty.
  bool idle() const;
  /// A round has chosen this token next. Ignored if the sequence has ended meanwhile.
  void took(sequence_id s, std::uint32_t token);

  std::uint32_t pages() const { return pages_; }
  /// Those that can be had: cached_pages() of them have the beginning of a prompt.
  std::uint32_t free_pages() const { return free_ + cached_pages(); }
  std::uint32_t cached_pages() const { return static_cast<std::uint32_t>(index_.idle()); }
  std::size_t running() const { return running_.size(); }
  std::size_t waiting() const { return waiting_.size(); }
  const counts& counted() const { return counts_; }
  /// Positions of a sequence's prompt that were not computed for it.
  std::uint32_t cached_prompt(sequence_id s) const { return sequences_.at(s).cached; }

 private:
  struct sequence {
    batch_sequence about;         // `known` grows by the chosen tokens
    std::uint64_t arrival = 0;    // its place in the order
    std::size_t computed = 0;     // positions of the prompt in the cache
    std::size_t sure = 0;         // of those, after the last round that is known to have succeeded
    std::size_t fed = 0;          // tokens of the completion in the cache
    std::uint32_t cached = 0;     // positions of the prompt that were there when it began
    std::uint32_t on_device = 0;  // pages that the device has for it
    // Its pages: the first are shared, the others counted for it alone.
    std::vector<page_name> shared;
    std::uint32_t own = 0;
    bool awaits = false;    // a token that the present round chooses
    bool arrives = false;   // from elsewhere: the cache of its prompt
    bool stalled = false;   // for lack of pages
    bool restarts = false;  // it was set back
    std::shared_ptr<const std::vector<std::uint32_t>> repeated{};  // prompt_for_penalty()

    bool prefilled() const { return computed == about.prompt.size(); }
    bool decodes() const { return prefilled() && !awaits && fed < about.known.size(); }
    bool prefills() const { return about.computes && !prefilled(); }
    std::uint32_t pages() const { return own + static_cast<std::uint32_t>(shared.size()); }
    std::uint32_t first_pages() const {
      return pages_for(static_cast<std::uint32_t>(about.prompt.size() + about.known.size()));
    }
  };
  /// By its adapter, its tokens and the page before it.
  struct next_page {
    prefix_owner owner;
    page_name before = 0;
    std::span<const std::uint32_t> tokens;
  };
  std::optional<next_page> page_to_share(const sequence& s) const;
  bool waits_for(const sequence& s, const next_page& other) const;
  bool can_be_set_back(const sequence& s) const;
  next_token next_of(sequence& s);
  prefix_owner owner_of(const sequence& s) const;
  page_name find_page(const sequence& s, std::size_t page, page_name before) const;
  void attach(sequence& s);
  void detach(sequence& s);
  void publish(sequence& s);
  void leave(sequence& s);
  void set_back(sequence_id id);
  void take_pages(std::uint32_t n);
  void check_pages() const;
  bool take_page_for(sequence& s);
  void reach(batch_round& r, sequence& s, std::uint32_t positions);
  void decode(batch_round& r);
  std::vector<sequence_id> prefilling() const;
  void prefill(batch_round& r);

  limits limits_;
  prefix_owner owner_;
  std::uint32_t pages_, free_;  // free_: those that nothing is in
  std::map<sequence_id, sequence> sequences_;
  std::deque<sequence_id> waiting_, running_;  // in the order of arrival
  prefix_index index_;
  std::vector<sequence_id> released_;
  std::vector<page_name> dropped_;
  std::vector<batch_round::kept_page> kept_;
  std::vector<batch_round::cache_part> parts_;
  std::vector<std::pair<sequence_id, payload>> last_;
  std::uint64_t arrivals_ = 0;
  counts counts_;
};

}  // namespace troupe::gpu
