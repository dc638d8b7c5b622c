#include "gpu/inference/batch_queue.hpp"

#include <algorithm>
#include <utility>

#include "messages/base/invariant.hpp"

namespace troupe::gpu {

void batch_queue::add(batch_sequence s) {
  TROUPE_INVARIANT(!s.prompt.empty() && s.prompt.size() == s.what.prompt_tokens);
  TROUPE_INVARIANT(pages_for(s.positions()) <= pages_);
  TROUPE_INVARIANT(s.computes || !s.what.scores_prompt);
  const auto id = s.id;
  waiting_.push_back(id);
  sequences_[id].about = std::move(s);
}

// Strictly in the order of arrival, although a shorter sequence behind may fit: a long one would be
// overtaken for ever. Pages for all positions at once, although a sequence needs them one after the
// other: two that grow could otherwise take each other's last page, and neither could go on.
std::vector<sequence_id> batch_queue::admit() {
  std::vector<sequence_id> now;
  while (!waiting_.empty() && running_.size() < limits_.running) {
    const auto id = waiting_.front();
    const auto need = pages_for(sequences_.at(id).about.positions());
    if (need > free_) break;
    free_ -= need;
    waiting_.pop_front();
    running_.push_back(id);
    admitted_.push_back(id);
    now.push_back(id);
  }
  return now;
}

// Its pages count as free at once, while the device still has them: a round releases before it
// reserves, so what is admitted now finds them free. One that was admitted and never reserved
// leaves nothing to release.
void batch_queue::end(sequence_id id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  if (std::erase(waiting_, id) == 0) {
    std::erase(running_, id);
    std::erase(admitted_, id);
    std::erase_if(parts_, [&](const auto& p) { return p.sequence == id; });
    std::erase_if(last_, [&](const auto& l) { return l.first == id; });
    free_ += pages_for(found->second.about.positions());
    if (found->second.reserved) released_.push_back(id);
  }
  sequences_.erase(found);
}

// Parts of a prompt that was to be computed elsewhere are dropped: the prefill here writes every
// page.
void batch_queue::compute(sequence_id id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end() || found->second.prefilled()) return;
  found->second.about.computes = true;
  std::erase_if(parts_, [&](const auto& p) { return p.sequence == id; });
}

void batch_queue::put(batch_round::cache_part p) {
  TROUPE_INVARIANT(!sequences_.at(p.sequence).about.computes);
  parts_.push_back(std::move(p));
}

// The prompt's last hidden state chooses the first token. A sequence that is continued has that
// token already, and needs only the cache.
void batch_queue::cached(sequence_id id, payload hidden) {
  auto& s = sequences_.at(id);
  TROUPE_INVARIANT(!s.about.computes && s.computed == 0);
  s.computed = s.about.prompt.size();
  if (s.about.known.empty()) {
    s.awaits = true;
    last_.emplace_back(id, std::move(hidden));
  }
}

/// The choice of its next token, after the last known one, which the present round computes.
next_token batch_queue::next_of(sequence& s) {
  s.awaits = true;
  const auto& what = s.about.what;
  next_token next{what.how, s.about.prompt.size() + s.about.known.size(), what.top, {}};
  if (what.how.depends_on_completion()) next.completion = s.about.known;
  return next;
}

/// One token of each sequence whose prompt is in the cache. Known tokens are fed like generated
/// ones, one in a round; only the last of them leads to a choice.
void batch_queue::decode(batch_round& r) {
  for (const auto id : running_) {
    auto& s = sequences_.at(id);
    if (!s.decodes()) continue;
    TROUPE_INVARIANT(s.computed == s.about.prompt.size());
    batch_round::decoded d;
    d.row = {id, static_cast<std::uint32_t>(s.about.prompt.size() + s.fed), s.about.known[s.fed]};
    if (++s.fed == s.about.known.size()) d.next = next_of(s);
    r.decode.push_back(std::move(d));
  }
}

/// Those whose prompts are computed here. Where a round has only a part of each, the one with the
/// shortest rest is the first: it came last, or has waited longest.
std::vector<sequence_id> batch_queue::prefilling() const {
  std::vector<sequence_id> all;
  std::ranges::copy_if(running_, std::back_inserter(all),
                       [this](sequence_id id) { return sequences_.at(id).prefills(); });
  if (limits_.chunk > 0)
    std::ranges::stable_sort(all, {}, [this](sequence_id id) {
      const auto& s = sequences_.at(id);
      return s.about.prompt.size() - s.computed;
    });
  return all;
}

/// Chunks begin at multiples of a tile, so that values do not depend on how prompts share the
/// positions of a round. The limit bounds how long running sequences wait for their next token;
/// beyond it the longest prompt has a tile nevertheless, or short ones could keep it waiting for
/// ever.
void batch_queue::prefill(batch_round& r) {
  std::size_t left = limits_.prefill;
  const auto all = prefilling();
  for (const auto id : all) {
    if (left < tile_positions && (limits_.chunk == 0 || id != all.back())) continue;
    auto& s = sequences_.at(id);
    auto whole = std::max<std::size_t>(left / tile_positions * tile_positions, tile_positions);
    if (limits_.chunk > 0) whole = std::min<std::size_t>(whole, limits_.chunk);
    const auto n = std::min(whole, s.about.prompt.size() - s.computed);
    left -= std::min(left, n);
    batch_round::chunk c{id, static_cast<std::uint32_t>(s.computed), {}, {}};
    const auto begin = s.about.prompt.begin() + static_cast<std::ptrdiff_t>(s.computed);
    c.tokens.assign(begin, begin + static_cast<std::ptrdiff_t>(n));
    s.computed += n;
    if (s.about.what.scores_prompt) {
      const auto end = s.prefilled() ? 0 : 1;  // the last token has none after it
      c.scored.assign(begin + 1, begin + static_cast<std::ptrdiff_t>(n) + end);
      c.top = s.about.what.top;
    }
    if (s.prefilled() && s.about.known.empty() && s.about.what.max_tokens > 0) c.next = next_of(s);
    r.prefill.push_back(std::move(c));
  }
}

// The order matches the members of a round: pages that end are released before new ones are
// reserved. `computed` and `fed` count what the round contains as done, since there is one round at
// a time and a failed one ends its sequences.
batch_round batch_queue::next() {
  batch_round r;
  r.release = std::exchange(released_, {});
  for (const auto id : std::exchange(admitted_, {})) {
    auto& s = sequences_.at(id);
    s.reserved = true;
    r.reserve.push_back({id, s.about.positions()});
  }
  r.parts = std::exchange(parts_, {});
  decode(r);
  prefill(r);
  for (auto& [id, hidden] : std::exchange(last_, {}))
    r.last.push_back({id, std::move(hidden), next_of(sequences_.at(id))});
  return r;
}

// A sequence that waits for its cache from elsewhere, or for its pages, gives the device nothing to
// do.
bool batch_queue::idle() const {
  return released_.empty() && admitted_.empty() && parts_.empty() && last_.empty() &&
         std::ranges::none_of(running_, [this](sequence_id id) {
           const auto& s = sequences_.at(id);
           return s.decodes() || s.prefills();
         });
}

void batch_queue::took(sequence_id id, std::uint32_t token) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  auto& s = found->second;
  TROUPE_INVARIANT(s.awaits);
  s.awaits = false;
  s.about.known.push_back(token);
}

}  // namespace troupe::gpu
