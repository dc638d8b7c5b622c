#include "actors/gateway/stripe_reassembler.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "messages/base/invariant.hpp"

namespace troupe::actors {

std::optional<stripe_reassembler::whole> stripe_reassembler::add(time_ns now, address gateway,
                                                                 const stripe& s, payload body) {
  ++counts_.stripes;
  const auto& t = s.what;
  const flow_key key{gateway,      t.from.lease,  t.from.pipeline,
                     t.from.stage, t.to_pipeline, t.to_stage};
  const auto of_flow = flows_.find(key);
  // Checked before anything is created for the stripe: a peer cannot make this map grow by naming
  // flows.
  const bool room = of_flow == flows_.end() ? flows_.size() < limits_.flows
                                            : of_flow->second.size() <= limits_.transfers;
  if (!room) return ++counts_.refused, std::nullopt;
  auto& f = flows_[key];
  const auto at = f.try_emplace({s.epoch, s.transfer}).first;
  auto& x = at->second;
  std::optional<whole> out;
  if (!accept(now, x, s, std::move(body))) {
    ++counts_.refused;
  } else if (x.pieces.size() == x.count) {
    out = assemble(x);
    ++(out ? counts_.tensors : counts_.refused);
    forget_pieces(x);
    x.pieces.clear();
  }
  if (x.pieces.empty()) f.erase(at);
  if (f.empty()) flows_.erase(key);
  TROUPE_INVARIANT(!flows_.empty() || (held_bytes_ == 0 && held_stripes_ == 0),
                   "nothing is held of no tensor");
  return out;
}

bool stripe_reassembler::accept(time_ns now, transfer& t, const stripe& s, payload body) {
  const auto size = body.bytes().size();
  if (s.index >= s.count || s.offset > s.what.bytes || size > s.what.bytes - s.offset) return false;
  // Bytes that have arrived, and not the announced size: that is the sender's word.
  if (held_bytes_ + size > limits_.bytes || held_stripes_ >= limits_.stripes) return false;
  if (t.pieces.empty()) t.from = s.from, t.to = s.to, t.what = s.what, t.count = s.count;
  // All stripes of one number describe one tensor, or one of them is forged or stale.
  else if (t.count != s.count || t.from != s.from || t.to != s.to || t.what != s.what)
    return false;
  if (!t.pieces.try_emplace(s.index, piece{s.offset, std::move(body)}).second) return false;
  held_bytes_ += size;
  ++held_stripes_;
  TROUPE_INVARIANT(held_bytes_ <= limits_.bytes && held_stripes_ <= limits_.stripes,
                   "the stripes that are held are bounded");
  TROUPE_INVARIANT(t.pieces.size() <= t.count,
                   "a tensor has no more stripes than its sender has cut");

  t.last_stripe_at = now;
  return true;
}

/// Puts the stripes together once all have arrived. Nothing: they do not cover the tensor's bytes
/// exactly once.
std::optional<stripe_reassembler::whole> stripe_reassembler::assemble(const transfer& t) {
  std::uint64_t end = 0;
  for (const auto& [index, p] : t.pieces) {
    if (p.offset != end) return {};
    end += p.body.bytes().size();
  }
  if (end != t.what.bytes) return {};
  TROUPE_INVARIANT(t.pieces.size() == t.count, "a tensor is put together of all of its stripes");
  // A single stripe is the tensor: no copy.
  if (t.count == 1) return whole{t.from, t.to, t.what, t.pieces.begin()->second.body};
  const auto bytes = std::make_shared_for_overwrite<std::byte[]>(end);
  for (const auto& [index, p] : t.pieces)
    if (const auto from = p.body.bytes(); !from.empty())
      std::memcpy(bytes.get() + p.offset, from.data(), from.size());
  return whole{t.from, t.to, t.what,
               payload{std::shared_ptr<const void>{bytes, bytes.get()}, {bytes.get(), end}}};
}

/// Takes its pieces off the totals.
void stripe_reassembler::forget_pieces(const transfer& t) {
  TROUPE_INVARIANT(held_stripes_ >= t.pieces.size(),
                   "the stripes of one tensor are among all that are held");
  for (const auto& [index, p] : t.pieces) {
    TROUPE_INVARIANT(held_bytes_ >= p.body.bytes().size(),
                     "the bytes of one stripe are among all that are held");
    held_bytes_ -= p.body.bytes().size();
  }
  held_stripes_ -= static_cast<std::uint32_t>(t.pieces.size());
}

void stripe_reassembler::on_tick(time_ns now) {
  for (auto& [key, f] : flows_)
    std::erase_if(f, [&](const auto& numbered) {
      const auto& t = numbered.second;
      if (now - t.last_stripe_at < limits_.patience) return false;
      forget_pieces(t);
      ++counts_.expired;
      return true;
    });
  std::erase_if(flows_, [](const auto& f) { return f.second.empty(); });
  TROUPE_INVARIANT(!flows_.empty() || held_stripes_ == 0,
                   "a tensor that is dropped leaves no stripes");
}

}  // namespace troupe::actors
