#include "gpu/inference/batch_queue.hpp"

#include <algorithm>
#include <ranges>
#include <utility>

#include "messages/base/find_in.hpp"
#include "messages/base/invariant.hpp"

namespace troupe::gpu {

void batch_queue::add(batch_sequence s) {
  TROUPE_INVARIANT(!s.prompt.empty() && s.prompt.size() == s.what.prompt_tokens,
                   "a sequence has the tokens of its prompt");
  TROUPE_INVARIANT(pages_for(s.positions()) <= pages_,
                   "a sequence fits into the pages of an empty device");
  TROUPE_INVARIANT(s.computes || !s.what.scores_prompt, "a prompt that is scored is computed here");
  const auto id = s.id;
  TROUPE_INVARIANT(!sequences_.contains(id), "a sequence has a number that no other has had");
  waiting_.push_back(id);
  auto& added = sequences_[id];
  added.about = std::move(s);
  added.arrival = ++arrivals_;
}

// ---- pages

/// Pages of the same tokens have other keys and values with another adapter.
prefix_owner batch_queue::owner_of(const sequence& s) const {
  auto owner = owner_;
  if (s.about.adapter) owner.adapter = s.about.adapter->key;
  return owner;
}

/// The index's page with the tokens of a page of a prompt; 0: none.
page_name batch_queue::find_page(const sequence& s, std::size_t page, page_name before) const {
  return index_.find(owner_of(s), before,
                     std::span{s.about.prompt}.subspan(page * tile_positions, tile_positions));
}

// The last token is always computed: its hidden state chooses the first of the completion. A prompt
// whose tokens are scored needs the hidden states of all. Pages that the device already has for the
// sequence, and that have no name, are not replaced.
void batch_queue::attach(sequence& s) {
  if (!limits_.shares || !s.about.computes || s.about.what.scores_prompt) return;
  if (s.on_device > s.shared.size() || s.computed != s.shared.size() * tile_positions) return;
  while (s.computed + tile_positions < s.about.prompt.size()) {
    const auto page =
        find_page(s, s.shared.size(), s.shared.empty() ? page_name{} : s.shared.back());
    if (page == 0) return;
    index_.hold(page);
    s.shared.push_back(page);
    s.computed += tile_positions;
    s.sure = s.computed;
    if (s.own > 0) --s.own, ++free_;
  }
}

/// Undoes attach() for a sequence that cannot be admitted yet.
void batch_queue::detach(sequence& s) {
  for (const auto page : s.shared | std::views::reverse) index_.let_go(page);
  s.shared.clear();
  s.computed = s.sure = 0;
}

std::uint32_t batch_queue::known_prefix(sequence_id id) const {
  const auto& s = sequences_.at(id);
  if (!limits_.shares || s.about.what.scores_prompt) return 0;
  std::uint32_t known = 0;
  for (page_name before = 0; known + tile_positions < s.about.prompt.size();
       known += tile_positions) {
    before = find_page(s, known / tile_positions, before);
    if (before == 0) break;
  }
  return known;
}

// Only what a round has certainly computed: a page of a round that failed must not begin another
// prompt. Where another sequence has computed the same page meanwhile, that one takes the place of
// this one's, which has the same values.
void batch_queue::publish(sequence& s) {
  if (!limits_.shares) return;
  TROUPE_INVARIANT(s.sure <= s.computed, "what is sure of a prompt has been computed");
  for (auto page = s.shared.size(); (page + 1) * tile_positions <= s.sure; ++page) {
    const auto before = s.shared.empty() ? page_name{} : s.shared.back();
    auto name = find_page(s, page, before);
    if (name != 0) {
      index_.hold(name);
      ++free_;
    } else {
      name = index_.add(owner_of(s), before,
                        std::span{s.about.prompt}.subspan(page * tile_positions, tile_positions));
    }
    TROUPE_INVARIANT(s.own > 0 && page < s.on_device,
                     "a page that becomes shared is one of the sequence's own, on the device");
    --s.own;
    s.shared.push_back(name);
    kept_.push_back({s.about.id, static_cast<std::uint32_t>(page), name});
  }
}

// Whoever has computed the page keeps it as a page with a name, which it lets go at its end like
// others; the device does not know the name, and ignores that it is dropped.
void batch_queue::forget(page_name p) {
  index_.hide(p);
  std::vector<sequence_id> without;
  for (const auto id : running_) {
    const auto& s = sequences_.at(id);
    const auto at = std::ranges::find(s.shared, p) - s.shared.begin();
    if (static_cast<std::size_t>(at) < s.shared.size() && s.on_device <= at) without.push_back(id);
  }
  for (const auto id : without) set_back(id);
}

/// There are as many that can be had.
void batch_queue::take_pages(std::uint32_t n) {
  TROUPE_INVARIANT(n <= free_pages(), "no more pages are taken than can be had");
  while (free_ < n) {
    const auto page = index_.evict();
    TROUPE_INVARIANT(page, "there are as many pages as are taken");
    dropped_.push_back(*page);
    ++free_;
  }
  free_ -= n;
  TROUPE_INVARIANT(free_ <= pages_, "no more pages are free than the device has");
}

// Its pages count as free at once, while the device still has them: a round releases before it
// reserves, so what is admitted now finds them free. One that never came to the device leaves
// nothing to release.
void batch_queue::leave(sequence& s) {
  const auto id = s.about.id;
  publish(s);
  std::erase_if(parts_, [&](const auto& p) { return p.sequence == id; });
  std::erase_if(last_, [&](const auto& l) { return l.first == id; });
  for (const auto page : s.shared | std::views::reverse) index_.let_go(page);
  s.shared.clear();
  free_ += std::exchange(s.own, 0);
  if (std::exchange(s.on_device, 0) > 0) released_.push_back(id);
  std::erase(running_, id);
  for (const auto other : running_) sequences_.at(other).stalled = false;
}

/// A sequence whose cache comes from elsewhere, or that has given out scores of a part of its
/// prompt, goes on with the pages that it has: it needs no more of them until its prompt is in the
/// cache.
bool batch_queue::can_be_set_back(const sequence& s) const {
  return s.prefilled() || (s.about.computes && !s.about.what.scores_prompt);
}

// Its known tokens are fed again one by one, so that the bits of those that follow are the same.
// Scores of its prompt have been given out.
void batch_queue::set_back(sequence_id id) {
  auto& s = sequences_.at(id);
  leave(s);
  s.computed = s.sure = s.fed = 0;
  s.awaits = s.stalled = false;
  s.restarts = true;
  s.about.computes = true;
  s.about.what.scores_prompt = false;
  const auto place = std::ranges::find_if(
      waiting_, [&](sequence_id w) { return sequences_.at(w).arrival > s.arrival; });
  waiting_.insert(place, id);
  ++counts_.set_back;
}

/// One more page for a sequence, from the youngest one that came after it, if there is no other.
bool batch_queue::take_page_for(sequence& s) {
  while (free_pages() == 0) {
    const auto from = std::ranges::find_if(running_ | std::views::reverse, [&](sequence_id id) {
      const auto& other = sequences_.at(id);
      return other.arrival > s.arrival && can_be_set_back(other);
    });
    if (from == running_.rend()) return false;
    set_back(*from);
  }
  take_pages(1);
  ++s.own;
  return true;
}

// ---- sequences

// Strictly in the order of arrival, although a shorter sequence behind may fit: a long one would be
// overtaken for ever. One that was set back waits until there is a page more for each that runs, or
// it would soon be set back again.
std::vector<sequence_id> batch_queue::admit() {
  std::vector<sequence_id> now;
  while (!waiting_.empty() && running_.size() < limits_.running) {
    const auto id = waiting_.front();
    auto& s = sequences_.at(id);
    attach(s);
    const auto need = s.first_pages() - s.pages();
    const auto margin = s.restarts ? static_cast<std::uint32_t>(running_.size()) : 0;
    if (need + margin > free_pages()) {
      detach(s);
      break;
    }
    TROUPE_INVARIANT(s.own == 0, "a sequence that waits has no pages of its own");
    take_pages(need);
    s.own = need;
    counts_.cached_prompt += s.computed;
    if (!s.restarts) s.cached = static_cast<std::uint32_t>(s.computed);
    waiting_.pop_front();
    const auto place = std::ranges::find_if(
        running_, [&](sequence_id r) { return sequences_.at(r).arrival > s.arrival; });
    running_.insert(place, id);
    now.push_back(id);
  }
  TROUPE_INVARIANT(running_.size() <= limits_.running, "no more sequences run than may");
  TROUPE_INVARIANT(running_.size() + waiting_.size() == sequences_.size(),
                   "a sequence runs or waits");
  return now;
}

void batch_queue::end(sequence_id id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  if (std::erase(waiting_, id) == 0) leave(found->second);
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
  TROUPE_INVARIANT(!sequences_.at(p.sequence).about.computes,
                   "a part of a cache is put for a sequence that does not compute it");
  parts_.push_back(std::move(p));
}

// The prompt's last hidden state chooses the first token. A sequence that is continued has that
// token already, and needs only the cache.
void batch_queue::cached(sequence_id id, payload hidden) {
  auto& s = sequences_.at(id);
  TROUPE_INVARIANT(!s.about.computes && s.computed == 0, "a cache arrives whole, once");
  s.computed = s.about.prompt.size();
  s.arrives = true;
  if (s.about.known.empty()) {
    s.awaits = true;
    last_.emplace_back(id, std::move(hidden));
  }
}

void batch_queue::check_pages() const {
  std::size_t own = 0;
  for (const auto id : running_) own += sequences_.at(id).own;
  TROUPE_INVARIANT(free_ + index_.size() + own == pages_,
                   "each page of a device is free, shared, or one sequence's own");
}

// ---- rounds

/// The choice of its next token, after the last known one, which the present round computes.
next_token batch_queue::next_of(sequence& s) {
  s.awaits = true;
  const auto& what = s.about.what;
  next_token next{rule_of(what, s.about.known.size()), s.about.prompt.size() + s.about.known.size(),
                  what.top};
  if (what.how.depends_on_completion()) next.completion = s.about.known;
  if (what.how.penalizes_repetition() && !s.repeated)
    s.repeated = std::make_shared<const std::vector<std::uint32_t>>(
        prompt_for_penalty(what.how, s.about.prompt));
  next.prompt = s.repeated;
  return next;
}

/// The device gets the pages of a sequence up to this position, which the round computes.
void batch_queue::reach(batch_round& r, sequence& s, std::uint32_t positions) {
  const auto pages = pages_for(positions);
  if (pages <= s.on_device) return;
  TROUPE_INVARIANT(pages <= s.pages(),
                   "the device reaches no page that the sequence does not have");
  batch_round::reservation x{s.about.id, positions, {}};
  if (s.on_device < s.shared.size())
    x.shared.assign(s.shared.begin() + s.on_device, s.shared.end());
  s.on_device = pages;
  r.reserve.push_back(std::move(x));
}

/// One token of each sequence whose prompt is in the cache. Known tokens are fed like generated
/// ones, one in a round; only the last of them leads to a choice. From the oldest on: a sequence
/// that is set back for another one is not in the round.
void batch_queue::decode(batch_round& r) {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    const auto id = running_[i];
    auto& s = sequences_.at(id);
    if (!s.decodes()) continue;
    TROUPE_INVARIANT(s.computed == s.about.prompt.size(),
                     "a token is decoded after the whole prompt");
    const auto position = static_cast<std::uint32_t>(s.about.prompt.size() + s.fed);
    s.stalled = pages_for(position + 1) > s.pages() && !take_page_for(s);
    if (s.stalled) continue;
    reach(r, s, position + 1);
    TROUPE_INVARIANT(s.fed < s.about.known.size(), "a token that is decoded is a known one");
    batch_round::decoded d;
    d.row = {id, position, s.about.known[s.fed], s.about.adapter};
    if (++s.fed == s.about.known.size()) d.next = next_of(s);
    r.decode.push_back(std::move(d));
  }
}

/// The page of its prompt that comes next, if others can share it.
std::optional<batch_queue::next_page> batch_queue::page_to_share(const sequence& s) const {
  const auto first = s.shared.size() * tile_positions;
  if (!limits_.shares || s.computed != first || first + tile_positions > s.about.prompt.size())
    return {};
  return next_page{owner_of(s), s.shared.empty() ? page_name{} : s.shared.back(),
                   std::span{s.about.prompt}.subspan(first, tile_positions)};
}

/// Can it take this page once another sequence has computed it?
bool batch_queue::waits_for(const sequence& s, const next_page& other) const {
  if (s.about.what.scores_prompt || s.on_device > s.shared.size() ||
      s.computed + tile_positions >= s.about.prompt.size())
    return false;
  const auto own = page_to_share(s);
  return own && own->owner == other.owner && own->before == other.before &&
         std::ranges::equal(own->tokens, other.tokens);
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
  std::vector<next_page> pages;  // that this round computes
  for (const auto id : all) {
    if (left < tile_positions && (limits_.chunk == 0 || id != all.back())) continue;
    auto& s = sequences_.at(id);
    // Another sequence may have computed what follows since this one was admitted.
    const auto before = s.computed;
    attach(s);
    counts_.cached_prompt += s.computed - before;
    if (!s.restarts) s.cached += static_cast<std::uint32_t>(s.computed - before);
    if (std::ranges::any_of(pages, [&](const next_page& p) { return waits_for(s, p); })) continue;
    if (const auto p = page_to_share(s)) pages.push_back(*p);
    auto whole = std::max<std::size_t>(left / tile_positions * tile_positions, tile_positions);
    if (limits_.chunk > 0) whole = std::min<std::size_t>(whole, limits_.chunk);
    const auto n = std::min(whole, s.about.prompt.size() - s.computed);
    left -= std::min(left, n);
    counts_.computed_prompt += n;
    TROUPE_INVARIANT(s.computed % tile_positions == 0, "a chunk of a prompt begins at a tile");
    batch_round::chunk c{id, static_cast<std::uint32_t>(s.computed), {}, {}};
    c.adapter = s.about.adapter;
    const auto begin = s.about.prompt.begin() + static_cast<std::ptrdiff_t>(s.computed);
    c.tokens.assign(begin, begin + static_cast<std::ptrdiff_t>(n));
    s.computed += n;
    reach(r, s, static_cast<std::uint32_t>(s.computed));
    if (s.about.what.scores_prompt) {
      const auto end = s.prefilled() ? 0 : 1;  // the last token has none after it
      c.scored.assign(begin + 1, begin + static_cast<std::ptrdiff_t>(n) + end);
      c.top = s.about.what.top;
    }
    if (s.prefilled() && s.about.known.empty() && s.about.what.max_tokens > 0) c.next = next_of(s);
    r.prefill.push_back(std::move(c));
  }
}

// The order matches the members of a round: pages are kept before their sequence is released, and
// released before new ones are reserved. What has been set back for this round is among them, so
// these lists are taken last. `computed` and `fed` count what the round contains as done, since
// there is one round at a time and a failed one ends its sequences.
batch_round batch_queue::next() {
  for (const auto id : running_) {
    auto& s = sequences_.at(id);
    // Its last parts may be in this round.
    if (std::exchange(s.arrives, false)) continue;
    s.sure = s.computed;
    publish(s);
  }
  check_pages();
  batch_round r;
  decode(r);
  for (const auto& p : parts_) {
    auto& s = sequences_.at(p.sequence);
    const auto end = std::uint64_t{p.first_page + p.pages} * tile_positions;
    reach(r, s, static_cast<std::uint32_t>(std::min<std::uint64_t>(end, s.about.prompt.size())));
  }
  prefill(r);
  r.parts = std::exchange(parts_, {});
  for (auto& [id, hidden] : std::exchange(last_, {}))
    r.last.push_back({id, std::move(hidden), next_of(sequences_.at(id))});
  r.keep = std::exchange(kept_, {});
  r.release = std::exchange(released_, {});
  r.drop = std::exchange(dropped_, {});
  return r;
}

// A sequence that waits for its cache from elsewhere, or for its pages, gives the device nothing to
// do.
bool batch_queue::idle() const {
  return released_.empty() && parts_.empty() && last_.empty() &&
         std::ranges::none_of(running_, [this](sequence_id id) {
           const auto& s = sequences_.at(id);
           return (s.decodes() && !s.stalled) || s.prefills();
         });
}

void batch_queue::took(sequence_id id, std::uint32_t token) {
  auto* s = find_in(sequences_, id);
  if (!s) return;
  TROUPE_INVARIANT(s->awaits, "a token arrives that was awaited");
  s->awaits = false;
  s->sure = s->computed;
  s->about.known.push_back(token);
}

}  // namespace troupe::gpu
