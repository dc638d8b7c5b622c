#include "actors/serving/decoder/cache_assembly.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "messages/base/invariant.hpp"

namespace troupe::actors {

namespace {

using block_kind = prefill_block::kind;

bool within(std::uint32_t first, std::uint32_t count, std::uint32_t end) {
  return count > 0 && first < end && count <= end - first;
}

}  // namespace

cache_assembly::cache_assembly(prefill_name name, const cache_shape& shape,
                               std::vector<address> guests)
    : shape_{shape},
      name_{name},
      nodes_{std::move(guests)},
      yields_(nodes_.size()),
      hidden_bytes_(nodes_.size()),
      covered_(std::size_t{shape.layers} * shape.pages),
      missing_{covered_.size()} {
  for (std::uint32_t g = 0; g < nodes_.size(); ++g)
    receivers_.emplace_back(name, g, false, shape.simulated);
}

expected<void> cache_assembly::check(address from, const prefill_block& b) const {
  const auto failure = [](std::string why) {
    return refuse(reason::kind::malformed, std::move(why));
  };
  if (b.what == block_kind::hidden) return failure("hidden states go to guests, not to decoders");
  if (b.guest >= nodes_.size())
    return failure(fmt::format("a block from guest {} of {}", b.guest, nodes_.size()));
  if (from != nodes_[b.guest])
    return failure(fmt::format("a block of guest {} from another node", b.guest));
  if (b.what == block_kind::last)
    return b.guest + 1 == nodes_.size() ? expected<void>{}
                                        : failure("only the last guest has the last hidden state");
  if (!within(b.first_layer, b.layers, shape_.layers) || !within(b.first, b.count, shape_.pages))
    return failure(fmt::format("{} layers from {} and {} pages from {} on, of {} and {}", b.layers,
                               b.first_layer, b.count, b.first, shape_.layers, shape_.pages));
  return {};
}

std::uint64_t cache_assembly::bytes_of(const prefill_block& b) const {
  if (shape_.simulated) return b.bytes;
  return b.what == block_kind::last ? shape_.hidden_bytes
                                    : std::uint64_t{b.layers} * b.count * shape_.page_bytes;
}

void cache_assembly::cover(const prefill_block& b) {
  for (std::uint32_t l = b.first_layer; l < b.first_layer + b.layers; ++l)
    for (std::uint32_t p = b.first; p < b.first + b.count; ++p) {
      const auto cell = std::size_t{l} * shape_.pages + p;
      if (covered_[cell])
        broken_ = {reason::kind::malformed,
                   fmt::format("two blocks have page {} of layer {}", p, l)};
      else
        --missing_;
      covered_[cell] = true;
    }
}

expected<bool> cache_assembly::accept(address from, const prefill_block& b, const payload& body,
                                      double now_s) {
  if (auto ok = check(from, b); !ok) return refuse(ok.error());
  const auto fresh = receivers_[b.guest].accept(b, body, bytes_of(b));
  if (!fresh || !*fresh) return fresh;
  yields_[b.guest] = std::max(yields_[b.guest], b.progress.yields);
  hidden_bytes_[b.guest] = std::max(hidden_bytes_[b.guest], b.progress.hidden_bytes);
  if (b.guest == 0) begun_s_ = std::min(begun_s_, now_s - std::max(b.progress.begun_ago_s, 0.0));
  if (b.progress.now == prefill_progress::state::ended)
    ended_s_ = std::max(ended_s_, now_s - std::max(b.progress.ended_ago_s, 0.0));
  if (b.what == block_kind::cache) {
    cover(b);
  } else if (last_) {
    broken_ = {reason::kind::malformed, "two blocks have the last hidden state"};
  } else {
    last_ = body;
  }
  const bool all = std::all_of(receivers_.begin(), receivers_.end(),
                               [](const block_receiver& r) { return r.whole(); });
  if (all && !broken_ && (missing_ > 0 || !last_))
    broken_ = {reason::kind::malformed, "the guests' blocks do not have the whole cache"};
  return true;
}

bool cache_assembly::whole() const {
  return !broken_ && missing_ == 0 && last_ &&
         std::all_of(receivers_.begin(), receivers_.end(),
                     [](const block_receiver& r) { return r.whole(); });
}

const payload& cache_assembly::last_hidden() const {
  TROUPE_INVARIANT(whole());
  return *last_;
}

std::uint32_t cache_assembly::yields() const {
  std::uint32_t all = 0;
  for (const auto y : yields_) all += y;
  return all;
}

std::uint64_t cache_assembly::hidden_bytes() const {
  return std::accumulate(hidden_bytes_.begin(), hidden_bytes_.end(), std::uint64_t{0});
}

std::uint64_t cache_assembly::bytes() const {
  std::uint64_t all = 0;
  for (const auto& r : receivers_) all += r.bytes();
  return all;
}

}  // namespace troupe::actors
