#include "actors/serving/decoder/block_receiver.hpp"

#include <fmt/format.h>

#include "messages/base/refuse.hpp"
#include "runtime/host/fingerprint.hpp"

namespace troupe::actors {

namespace {

// Blocks behind a gap in one state.
constexpr std::size_t max_others = 1024;

}  // namespace

std::uint64_t block_hash(const payload& body) {
  if (body.empty()) return 0;
  runtime::fingerprint hash;
  hash.add(body.bytes());
  return hash.value() == 0 ? 1 : hash.value();
}

block_receiver::block_receiver(prefill_name name, std::uint32_t guest, bool hidden, bool simulated)
    : name_{name}, guest_{guest}, hidden_{hidden}, simulated_{simulated} {}

// The sender is another process, perhaps on another host. Index and count are compared with each
// other and with those of the first block before anything is allocated for them; the size with what
// the ranges imply; the body with its hash. A simulated block has no body, so neither size nor hash
// can be compared.
expected<void> block_receiver::check(const prefill_block& b, const payload& body,
                                     std::uint64_t expected_bytes) const {
  const auto failure = [&](std::string why) {
    return refuse(reason::kind::malformed, "block {} of {} from guest {}: {}", b.index, b.blocks,
                  b.guest, why);
  };
  if (b.blocks == 0 || b.blocks > max_blocks)
    return failure(fmt::format("a guest sends 1 to {} blocks", max_blocks));
  if (!has_.empty() && b.blocks != has_.size())
    return failure(fmt::format("expected {} blocks, as in an earlier one", has_.size()));
  if (b.index >= b.blocks) return failure("index out of range");
  if (b.bytes != expected_bytes)
    return failure(
        fmt::format("header says {} bytes, its ranges need {}", b.bytes, expected_bytes));
  if (simulated_ && body.empty()) return {};
  if (body.bytes().size() != b.bytes)
    return failure(fmt::format("header says {} bytes, found {}", b.bytes, body.bytes().size()));
  if (block_hash(body) != b.hash) return failure("hash mismatch");
  return {};
}

// Blocks come in any order and repeatedly. One bit for each tells new ones from repetitions; the
// first one fixes how many there are.
expected<bool> block_receiver::accept(const prefill_block& b, const payload& body,
                                      std::uint64_t expected_bytes) {
  if (auto ok = check(b, body, expected_bytes); !ok) return refuse(ok.error());
  has_.resize(b.blocks);
  if (has_[b.index]) return false;
  has_[b.index] = true;
  ++received_;
  bytes_ += b.bytes;
  while (all_below_ < has_.size() && has_[all_below_]) ++all_below_;
  return true;
}

// While nothing is missing in between, the state is a single number. Gaps cost some bytes for each
// block behind them, so a long list is cut; what is cut is stated once earlier gaps are closed.
blocks_received block_receiver::state() const {
  blocks_received r;
  r.name = name_;
  r.guest = guest_;
  r.hidden = hidden_;
  r.all_below = all_below_;
  r.whole = whole();
  if (r.whole) return r;
  for (auto i = all_below_; i < has_.size() && r.others.size() < max_others; ++i)
    if (has_[i]) r.others.push_back(i);
  return r;
}

blocks_received not_needed(const prefill_block& b) {
  blocks_received r;
  r.name = b.name;
  r.guest = b.guest;
  r.hidden = b.what == prefill_block::kind::hidden;
  r.whole = true;
  return r;
}

}  // namespace troupe::actors
