#include "gpu/inference/batch_round.hpp"

#include <algorithm>
#include <map>
#include <new>
#include <set>
#include <span>
#include <utility>

#include "messages/base/find_in.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::gpu {

namespace {

/// Rows of an adapter one behind the other, since each group of a step reads the adapter's values
/// once. Adapters are in the order of their first rows, and so are the rows of each.
void group_by_adapter(std::vector<const batch_round::decoded*>& rows) {
  std::vector<const adapter*> order;
  for (const auto* d : rows)
    if (const auto* a = d->row.adapter.get(); std::ranges::count(order, a) == 0) order.push_back(a);
  if (order.size() < 2) return;
  std::ranges::stable_sort(rows, {}, [&](const auto* d) {
    return std::ranges::find(order, d->row.adapter.get()) - order.begin();
  });
}

// Executes one round on a device. A failure is passed on as the result of the sequence that it
// concerns, and the others go on: what fails for several sequences at once, as a decode for which
// the host has no memory, is tried again for each alone. Values do not depend on the company, and
// what is computed twice is written twice with the same values.
class executor {
 public:
  executor(inference_device& d, const batch_listener& received) : device_{d}, received_{received} {}

  void decode(const std::vector<batch_round::decoded>& all) {
    std::vector<const batch_round::decoded*> rows;
    for (const auto& d : all)
      if (goes_on(d.row.sequence)) rows.push_back(&d);
    if (rows.empty()) return;
    group_by_adapter(rows);
    const auto why = attempt([&] { return decode_rows_of(rows); });
    if (why && rows.size() == 1) return fail(rows.front()->row.sequence, *why);
    if (!why) return;
    for (const auto* d : rows)
      if (const auto own = attempt([&] { return decode_rows_of({d}); }))
        fail(d->row.sequence, *own);
  }

  void prefill(const batch_round::chunk& c) {
    if (!goes_on(c.sequence)) return;
    if (const auto why = attempt([&] { return compute(c); })) fail(c.sequence, *why);
  }

  // The cache is whole, and the last guest has sent the hidden state of the prompt's last position.
  void finish_elsewhere(const batch_round::last_state& l) {
    if (!goes_on(l.sequence)) return;
    const auto why = attempt([&] { return predict({{l.sequence, &l.next}}, l.hidden); });
    if (why) fail(l.sequence, *why);
  }

  // Its sequence goes on with the page as one of its own.
  void keep(const batch_round::kept_page& k) {
    const auto why = attempt([&] { return device_.keep(k.sequence, k.page, k.name); });
    if (!why) return;
    unkept_.emplace(k.name, *why);
    received_({k.sequence, {}, {}, {}, k.name});
  }

  void reserve(const batch_round::reservation& r) {
    if (!goes_on(r.sequence)) return;
    const auto why = attempt([&]() -> expected<void> {
      for (const auto p : r.shared)
        if (const auto* unkept = find_in(unkept_, p)) return refuse(*unkept);
      if (!r.shared.empty())
        if (auto ok = device_.share(r.sequence, r.shared); !ok) return ok;
      return device_.reserve(r.sequence, r.positions);
    });
    if (why) fail(r.sequence, *why);
  }

  void put(const batch_round::cache_part& p) {
    if (!goes_on(p.sequence)) return;
    const auto why = attempt([&] {
      return device_.put_kv(p.sequence, p.first_layer, p.layers, p.first_page, p.pages, p.data);
    });
    if (why) fail(p.sequence, *why);
  }

 private:
  struct waiting {
    sequence_id sequence = 0;
    const next_token* next = nullptr;
  };

  bool goes_on(sequence_id s) const { return !failed_.contains(s); }
  std::size_t width() const { return device_.spec().model.hidden * sizeof(float); }

  /// The results of `what` go to the listener, unless it fails.
  template <class What>
  std::optional<reason> attempt(What what) {
    results_.clear();
    try {
      if (const expected<void> done = what(); !done) return done.error();
    } catch (const std::bad_alloc&) {
      return reason{reason::kind::out_of_memory,
                    "this host has no memory left to go on with this sequence"};
    }
    for (auto& r : std::exchange(results_, {})) {
      if (r.failed) failed_.insert(r.sequence);
      received_(std::move(r));
    }
    return {};
  }

  // Rows of known tokens need no head: only the rest of the hidden states is collected for it.
  expected<void> decode_rows_of(const std::vector<const batch_round::decoded*>& all) {
    std::vector<decode_row> rows;
    for (const auto* d : all) rows.push_back(d->row);
    const auto work = device_.decode(rows, {});
    if (!work) return refuse(work.error());
    const auto hidden = finish(**work);
    std::vector<waiting> who;
    std::vector<std::byte> wanted;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!all[i]->next) continue;
      who.push_back({all[i]->row.sequence, &*all[i]->next});
      const auto row = hidden.bytes().subspan(i * width(), width());
      wanted.insert(wanted.end(), row.begin(), row.end());
    }
    if (who.empty()) return {};
    return predict(who, who.size() == all.size() ? hidden : payload{std::move(wanted)});
  }

  // The token after a prompt needs the hidden state of its last position alone.
  expected<void> compute(const batch_round::chunk& c) {
    const auto work = device_.prefill(
        c.sequence, c.first, payload{nullptr, std::as_bytes(std::span{c.tokens})}, c.adapter);
    if (!work) return refuse(work.error());
    const auto hidden = finish(**work);
    if (!c.scored.empty())
      if (auto ok = score(c, hidden); !ok) return ok;
    if (!c.next) return {};
    return predict({{c.sequence, &*c.next}}, {hidden.owner(), hidden.bytes().last(width())});
  }

  /// The log probabilities of a chunk's following tokens. A few rows at a time: the logits of all
  /// would be large.
  expected<void> score(const batch_round::chunk& c, const payload& hidden) {
    batch_result r{c.sequence, {}, {}, {}, {}};
    const std::size_t n = device_.spec().model.vocabulary;
    for (std::size_t at = 0; at < c.scored.size(); at += decode_rows) {
      const auto rows = std::min<std::size_t>(decode_rows, c.scored.size() - at);
      const auto work =
          device_.head({hidden.owner(), hidden.bytes().subspan(at * width(), rows * width())});
      if (!work) return refuse(work.error());
      const auto result = finish(**work);
      for (std::size_t i = 0; i < rows; ++i) {
        const auto logits = float_values(result).subspan(i * n, n);
        if (auto ok = check_logits(logits, c.first + at + i + 1); !ok) return ok;
        const auto token = c.scored[at + i];
        r.scored.push_back({{token, log_probability_of(logits, token)}, top_tokens(logits, c.top)});
      }
    }
    results_.push_back(std::move(r));
    return {};
  }

  /// The next token of each, from the hidden states of their last positions.
  expected<void> predict(const std::vector<waiting>& who, const payload& hidden) {
    const auto work = device_.head(hidden);
    if (!work) return refuse(work.error());
    const auto rows = finish(**work);
    const auto logits = float_values(rows);
    const std::size_t n = device_.spec().model.vocabulary;
    for (std::size_t i = 0; i < who.size(); ++i) {
      const auto own = logits.subspan(i * n, n);
      const auto& next = *who[i].next;
      batch_result r{who[i].sequence, {}, {}, {}, {}};
      if (auto ok = check_logits(own, next.position); !ok)
        r.failed = ok.error();
      else
        r.next = generated_token{
            sample(own, next.how, next.position, next.completion,
                   next.prompt ? std::span{*next.prompt} : std::span<const std::uint32_t>{}),
            top_tokens(own, next.top)};
      results_.push_back(std::move(r));
    }
    return {};
  }

  void fail(sequence_id s, const reason& why) {
    failed_.insert(s);
    received_({s, {}, {}, why, {}});
  }

  inference_device& device_;
  const batch_listener& received_;
  std::vector<batch_result> results_;  // of what is attempted
  std::set<sequence_id> failed_;       // in this round
  std::map<page_name, reason> unkept_;
};

}  // namespace

void execute(inference_device& d, const batch_round& r, const batch_listener& received) {
  executor e{d, received};
  for (const auto& k : r.keep) e.keep(k);
  for (const auto s : r.release) d.release(s);
  for (const auto p : r.drop) d.drop(p);
  for (const auto& x : r.reserve) e.reserve(x);
  for (const auto& p : r.parts) e.put(p);
  // A prompt that has just come waits for no step of those that run.
  for (const auto& c : r.prefill) e.prefill(c);
  e.decode(r.decode);
  for (const auto& l : r.last) e.finish_elsewhere(l);
}

}  // namespace troupe::gpu
