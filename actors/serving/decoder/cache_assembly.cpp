#include "actors/serving/decoder/cache_assembly.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::actors {

namespace {

using block_kind = prefill_block::kind;

bool within(std::uint32_t first, std::uint32_t count, std::uint32_t end) {
  return count > 0 && first < end && count <= end - first;
}

}  // namespace

cache_assembly::cache_assembly(prefill_name name, const cache_shape& shape,
                               const std::vector<address>& guests)
    : shape_{shape}, covered_(std::size_t{shape.layers} * shape.pages), missing_{covered_.size()} {
  for (std::uint32_t g = 0; g < guests.size(); ++g)
    guests_.push_back({guests[g], {name, g, false, shape.simulated}});
}

expected<void> cache_assembly::check(address from, const prefill_block& b) const {
  using enum reason::kind;
  if (b.what == block_kind::hidden)
    return refuse(malformed, "hidden states go to guests, not to decoders");
  if (b.guest >= guests_.size())
    return refuse(malformed, "a block from guest {} of {}", b.guest, guests_.size());
  if (from != guests_[b.guest].node)
    return refuse(malformed, "a block of guest {} from another node", b.guest);
  if (b.what == block_kind::last)
    return b.guest + 1 == guests_.size()
               ? expected<void>{}
               : refuse(malformed, "only the last guest has the last hidden state");
  if (!within(b.first_layer, b.layers, shape_.layers) || !within(b.first, b.count, shape_.pages))
    return refuse(malformed, "{} layers from {} and {} pages from {} on, of {} and {}", b.layers,
                  b.first_layer, b.count, b.first, shape_.layers, shape_.pages);
  return {};
}

std::uint64_t cache_assembly::bytes_of(const prefill_block& b) const {
  if (shape_.simulated) return b.bytes;
  return b.what == block_kind::last ? shape_.hidden_bytes
                                    : std::uint64_t{b.layers} * b.count * shape_.page_bytes;
}

// Each page must come exactly once. Two blocks with the same page mean that two guests disagree
// about their layers; neither copy can be trusted then, and the whole prefill counts as broken.
void cache_assembly::cover(const prefill_block& b) {
  for (std::uint32_t l = b.first_layer; l < b.first_layer + b.layers; ++l)
    for (std::uint32_t p = b.first; p < b.first + b.count; ++p) {
      const auto cell = std::size_t{l} * shape_.pages + p;
      TROUPE_INVARIANT(cell < covered_.size(), "a block's pages are ones of its prompt's cache");
      TROUPE_INVARIANT(covered_[cell] || missing_ > 0, "a page is missing until it has come");
      if (covered_[cell])
        broken_ = {reason::kind::malformed,
                   fmt::format("page {} of layer {} was received twice", p, l)};
      else
        --missing_;
      covered_[cell] = true;
    }
}

// Sender and ranges are checked before the receiver checks size and hash, so that a refused block
// changes nothing. Times in a block are durations before its sending, on the guest's clock:
// subtracted from this clock's time they err by the block's way, which never makes an end too
// early.
expected<bool> cache_assembly::accept(address from, const prefill_block& b, const payload& body,
                                      double now_s) {
  if (auto ok = check(from, b); !ok) return refuse(ok.error());
  auto& g = guests_[b.guest];
  const auto fresh = g.blocks.accept(b, body, bytes_of(b));
  if (!fresh || !*fresh) return fresh;
  g.yields = std::max(g.yields, b.progress.yields);
  g.hidden_bytes = std::max(g.hidden_bytes, b.progress.hidden_bytes);
  if (b.guest == 0) begun_s_ = std::min(begun_s_, now_s - std::max(b.progress.begun_ago_s, 0.0));
  if (b.progress.now == prefill_progress::state::ended)
    ended_s_ = std::max(ended_s_, now_s - std::max(b.progress.ended_ago_s, 0.0));
  if (b.what == block_kind::cache) {
    cover(b);
  } else if (last_) {
    broken_ = {reason::kind::malformed, "the last hidden state was received twice"};
  } else {
    last_ = body;
  }
  if (all_blocks() && !broken_ && (missing_ > 0 || !last_))
    broken_ = {reason::kind::malformed,
               "the KV cache is incomplete although all guests have finished"};
  return true;
}

bool cache_assembly::all_blocks() const {
  return std::ranges::all_of(guests_, [](const sender& g) { return g.blocks.whole(); });
}

bool cache_assembly::whole() const {
  return !broken_ && missing_ == 0 && last_ && all_blocks();
}

const payload& cache_assembly::last_hidden() const {
  TROUPE_INVARIANT(whole(), "a prompt's last state is read when all of its blocks are there");
  return *last_;
}

void cache_assembly::write(prefill_place& to) const {
  to.guests = guests();
  for (const auto& g : guests_) {
    to.yields += g.yields;
    to.kv_bytes += g.blocks.bytes();
    to.hidden_bytes += g.hidden_bytes;
  }
}

}  // namespace troupe::actors
