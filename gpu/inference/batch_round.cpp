#include "gpu/inference/batch_round.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace troupe::gpu {

namespace {

// Executes one round on a device. A failure is passed on as the result of the sequences that it
// concerns, so that the others go on: a prompt's own, or all of a decode or a head, which compute
// several sequences at once.
class executor {
 public:
  executor(inference_device& d, const batch_listener& received) : device_{d}, received_{received} {}

  // Rows of known tokens need no head: only the rest of the hidden states is collected for it.
  void decode(const std::vector<batch_round::decoded>& all) {
    if (all.empty()) return;
    std::vector<decode_row> rows;
    for (const auto& d : all) rows.push_back(d.row);
    const auto work = device_.decode(rows, {});
    if (!work) {
      for (const auto& d : all) fail(d.row.sequence, work.error());
      return;
    }
    const auto hidden = finish(**work);
    std::vector<std::byte> wanted;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!all[i].next) continue;
      who_.push_back({all[i].row.sequence, *all[i].next});
      const auto row = hidden.bytes().subspan(i * width(), width());
      wanted.insert(wanted.end(), row.begin(), row.end());
    }
    if (!who_.empty()) predict(who_.size() == all.size() ? hidden : payload{std::move(wanted)});
  }

  // The token after a prompt needs the hidden state of its last position alone.
  void prefill(const batch_round::chunk& c) {
    const auto work =
        device_.prefill(c.sequence, c.first, payload{nullptr, std::as_bytes(std::span{c.tokens})});
    if (!work) return fail(c.sequence, work.error());
    const auto hidden = finish(**work);
    if (!c.scored.empty() && !score(c, hidden)) return;
    if (!c.next) return;
    who_.push_back({c.sequence, *c.next});
    predict({hidden.owner(), hidden.bytes().last(width())});
  }

  // The cache is whole, and the last guest has sent the hidden state of the prompt's last position.
  void finish_elsewhere(const batch_round::last_state& l) {
    who_.push_back({l.sequence, l.next});
    predict(l.hidden);
  }

  void check(sequence_id s, const expected<void>& done) {
    if (!done) fail(s, done.error());
  }

 private:
  struct waiting {
    sequence_id sequence;
    next_token next;
  };

  std::size_t width() const { return device_.spec().model.hidden * sizeof(float); }

  /// The log probabilities of a chunk's following tokens. A few rows at a time: the logits of all
  /// would be large. False: it has failed.
  bool score(const batch_round::chunk& c, const payload& hidden) {
    batch_result r{c.sequence, {}, {}, {}};
    const std::size_t n = device_.spec().model.vocabulary;
    for (std::size_t at = 0; at < c.scored.size(); at += decode_rows) {
      const auto rows = std::min<std::size_t>(decode_rows, c.scored.size() - at);
      const auto work =
          device_.head({hidden.owner(), hidden.bytes().subspan(at * width(), rows * width())});
      if (!work) return fail(c.sequence, work.error()), false;
      const auto result = finish(**work);
      for (std::size_t i = 0; i < rows; ++i) {
        const auto logits = float_values(result).subspan(i * n, n);
        if (auto ok = check_logits(logits, c.first + at + i + 1); !ok)
          return fail(c.sequence, ok.error()), false;
        const auto token = c.scored[at + i];
        r.scored.push_back({{token, log_probability_of(logits, token)}, top_tokens(logits, c.top)});
      }
    }
    received_(std::move(r));
    return true;
  }

  /// The next token of each in who_, from the hidden states of their last positions.
  void predict(const payload& hidden) {
    const auto who = std::exchange(who_, {});
    const auto work = device_.head(hidden);
    if (!work) {
      for (const auto& w : who) fail(w.sequence, work.error());
      return;
    }
    const auto rows = finish(**work);
    const auto logits = float_values(rows);
    const std::size_t n = device_.spec().model.vocabulary;
    for (std::size_t i = 0; i < who.size(); ++i) {
      const auto own = logits.subspan(i * n, n);
      const auto& next = who[i].next;
      if (auto ok = check_logits(own, next.position); !ok) {
        fail(who[i].sequence, ok.error());
        continue;
      }
      received_({who[i].sequence,
                 {},
                 generated_token{sample(own, next.how, next.position, next.completion),
                                 top_tokens(own, next.top)},
                 {}});
    }
  }

  void fail(sequence_id s, const reason& why) { received_({s, {}, {}, why}); }

  inference_device& device_;
  const batch_listener& received_;
  std::vector<waiting> who_;
};

}  // namespace

void execute(inference_device& d, const batch_round& r, const batch_listener& received) {
  executor e{d, received};
  for (const auto s : r.release) d.release(s);
  for (const auto& x : r.reserve) e.check(x.sequence, d.reserve(x.sequence, x.positions));
  for (const auto& p : r.parts)
    e.check(p.sequence,
            d.put_kv(p.sequence, p.first_layer, p.layers, p.first_page, p.pages, p.data));
  // A prompt that has just come waits for no step of those that run.
  for (const auto& c : r.prefill) e.prefill(c);
  e.decode(r.decode);
  for (const auto& l : r.last) e.finish_elsewhere(l);
}

}  // namespace troupe::gpu
