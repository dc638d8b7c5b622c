#include "actors/gateway/stripe_reassembler.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "messages/invariant.hpp"

namespace troupe::actors {

payload cut_body::piece(const payload& whole, std::uint32_t i) const {
  const auto from = begin(i);
  return {whole.owner(), whole.bytes().subspan(from, begin(i + 1) - from)};
}

std::vector<stripe_reassembler::whole> stripe_reassembler::add(time_ns now, address gateway,
                                                               const stripe& s, payload body) {
  std::vector<whole> out;
  ++counts_.stripes;
  const auto& t = s.what;
  const flow_key key{gateway,      t.from.lease,  t.from.pipeline,
                     t.from.stage, t.to_pipeline, t.to_stage};
  auto at = flows_.find(key);
  if (at == flows_.end()) {
    if (flows_.size() >= limits_.flows) return ++counts_.refused, out;
    at = flows_.try_emplace(key).first;
    at->second.epoch = s.epoch;
    // This gateway may have started in the middle of the flow. Others may overtake the first one
    // seen, so half of the places are for those before it; look() gives up what never comes.
    at->second.next = s.transfer - std::min<std::uint64_t>(s.transfer, limits_.transfers / 2);
  }
  auto& f = at->second;
  if (s.epoch > f.epoch) {
    drop_all(f);
    f.epoch = s.epoch;
    f.next = 0;
  }
  if (s.epoch == f.epoch && accept(now, f, s, std::move(body)))
    release(f, out);
  else
    ++counts_.refused;
  return out;
}

bool stripe_reassembler::accept(time_ns now, flow& f, const stripe& s, payload body) {
  const auto size = body.bytes().size();
  if (s.transfer < f.next || s.transfer - f.next >= limits_.transfers) return false;
  if (s.index >= s.count || s.offset > s.what.bytes || size > s.what.bytes - s.offset) return false;
  if (held_bytes_ + size > limits_.bytes || held_stripes_ >= limits_.stripes) return false;
  const auto [at, fresh] = f.transfers.try_emplace(s.transfer);
  auto& t = at->second;
  if (fresh) {
    t.from = s.from, t.to = s.to, t.what = s.what, t.count = s.count, t.since = now;
  } else if (t.complete || t.count != s.count || t.from != s.from || t.to != s.to ||
             t.what != s.what) {
    return false;
  }
  if (!t.pieces.try_emplace(s.index, piece{s.offset, std::move(body)}).second) return false;
  held_bytes_ += size;
  ++held_stripes_;
  f.last_used = now;
  if (t.pieces.size() < t.count) return true;
  if (put_together(t)) return true;
  // Torn: the flow waits for it no longer than for one that was lost.
  drop(t);
  f.transfers.erase(at);
  return false;
}

/// All stripes are there; false: they are not the tensor's bytes, each once.
bool stripe_reassembler::put_together(transfer& t) {
  std::uint64_t end = 0;
  for (const auto& [index, p] : t.pieces) {
    if (p.offset != end) return false;
    end += p.body.bytes().size();
  }
  if (end != t.what.bytes) return false;
  if (t.count == 1) {
    t.body = t.pieces.begin()->second.body;
  } else {
    const auto bytes = std::make_shared_for_overwrite<std::byte[]>(end);
    for (const auto& [index, p] : t.pieces)
      if (const auto from = p.body.bytes(); !from.empty())
        std::memcpy(bytes.get() + p.offset, from.data(), from.size());
    t.body = payload{std::shared_ptr<const void>{bytes, bytes.get()}, {bytes.get(), end}};
    drop(t);
    held_bytes_ += end;
  }
  t.complete = true;
  return true;
}

/// Its pieces are no longer held.
void stripe_reassembler::drop(transfer& t) {
  TROUPE_INVARIANT(held_stripes_ >= t.pieces.size());
  for (const auto& [index, p] : t.pieces) held_bytes_ -= p.body.bytes().size();
  held_stripes_ -= static_cast<std::uint32_t>(t.pieces.size());
  t.pieces.clear();
}

void stripe_reassembler::drop_all(flow& f) {
  for (auto& [number, t] : f.transfers) {
    if (t.pieces.empty()) held_bytes_ -= t.body.bytes().size();
    drop(t);
    ++counts_.lost;
  }
  f.transfers.clear();
}

/// Those that nothing before them is missing of.
void stripe_reassembler::release(flow& f, std::vector<whole>& out) {
  while (!f.transfers.empty()) {
    const auto at = f.transfers.begin();
    auto& t = at->second;
    if (at->first != f.next || !t.complete) return;
    if (t.pieces.empty()) held_bytes_ -= t.body.bytes().size();
    drop(t);
    out.push_back({t.from, t.to, t.what, std::move(t.body)});
    ++counts_.tensors;
    f.transfers.erase(at);
    ++f.next;
  }
}

std::vector<stripe_reassembler::whole> stripe_reassembler::look(time_ns now) {
  std::vector<whole> out;
  for (auto at = flows_.begin(); at != flows_.end();) {
    auto& f = at->second;
    while (!f.transfers.empty() && now - f.transfers.begin()->second.since >= limits_.patience) {
      // What came first of all that waits has waited long enough: for one before it, or for itself.
      const auto first = f.transfers.begin();
      counts_.lost += first->first - f.next;
      f.next = first->first;
      if (!first->second.complete) {
        drop(first->second);
        f.transfers.erase(first);
        ++f.next;
        ++counts_.lost;
      }
      release(f, out);
    }
    // A flow that is long idle is forgotten, but its place in the order only much later.
    const bool idle = f.transfers.empty() && now - f.last_used > 1000 * limits_.patience;
    at = idle ? flows_.erase(at) : std::next(at);
  }
  return out;
}

}  // namespace troupe::actors
