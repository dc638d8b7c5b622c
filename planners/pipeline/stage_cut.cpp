#include "planners/pipeline/stage_cut.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "messages/time.hpp"

// Stages are added from the first to the last. A label is a way to have used a set of stages for so
// many pieces from the front. Of labels of one set, one last type and as many pieces only those are
// kept that no other is better than in all that the rest depends on; and only those whose bound is
// within a limit, which is raised until there is a result.

namespace troupe::planners {

std::uint32_t cut_problem::stages() const {
  return std::accumulate(counts.begin(), counts.end(), 0U);
}

/// With f, r and b a stage's steps, S the sum of all f + b and sends both ways, an iteration takes
/// at least S + (m - min(m, p)) f + (m - 1) (r + b), and for the last stage S + (m - 1) (f + b):
/// the closed form, less what depends on the stage's place.
iteration_bound::iteration_bound(const stage_table& table, std::uint32_t microbatches,
                                 std::uint32_t stages, const transfers& x)
    : work_{table.work_from(0)}, sends_s_{2.0 * (stages - 1) * x.min_send_s} {
  const double m = microbatches, warm = std::min(microbatches, stages);
  // Stage s has sums_s of its own left when all backwards have ended, less the backwards and sends
  // of the stages before it. The most of these is at least their mean; and a backward takes no more
  // than own_s / (m - 1).
  if (m > 1) {
    tail_slope_ = (stages - 1) / 2.0 / (m - 1);
    const double shown_s = x.sums_s / stages - (stages - 1) / 2.0 * x.max_send_s;
    if (stages > 1 && shown_s > 0) hidden_below_s_ = shown_s / tail_slope_;
    if (stages == 1) sends_s_ += x.sums_s;
  }
  for (std::size_t t = 0; t < table.types(); ++t) {
    const auto& k = table.middle_floor(t);
    const auto& z = table.last_floor(t);
    const double through = stages == 1
                               ? z.forward_s + z.backward_s
                               : std::min(k.forward_s + k.backward_s, z.forward_s + z.backward_s);
    const double least = 1e-12 * through;  // no rate is infinite
    const double last = std::max(least, (m - 1) * (z.forward_s + z.backward_s));
    const double own =
        stages == 1
            ? last
            : std::max(least, (m - warm) * k.forward_s + (m - 1) * (k.recompute_s + k.backward_s));
    through_s_.push_back(through);
    rate_.push_back(1 / own);
    last_rate_.push_back(std::max(0.0, 1 / last - 1 / own));
  }
  fastest_.resize(table.types());
  std::iota(fastest_.begin(), fastest_.end(), std::size_t{0});
  std::ranges::sort(fastest_, {}, [&](std::size_t t) { return std::pair{through_s_[t], t}; });
  for (std::size_t i = 1; i < fastest_.size(); ++i)
    ordered_ = ordered_ && rate_[fastest_[i - 1]] >= rate_[fastest_[i]];
}

double iteration_bound::of(const std::vector<std::uint32_t>& counts) const {
  double last = 0;
  for (std::size_t t = 0; t < counts.size(); ++t)
    if (counts[t] > 0) last = std::max(last, last_rate_[t]);
  return of(counts, last);
}

/// With u the most that a stage's own work takes, the work that stages can have is u times the sum
/// of their rates, and goes to the fastest of them first. What that makes of S + u is linear
/// between two numbers of full stages, as is the tail but where it ends: the least is at one of
/// these.
double iteration_bound::of(const std::vector<std::uint32_t>& counts, double last_rate) const {
  double rates = last_rate, least = never;
  double through = 0;  // S for each second of u
  bool first = true;
  for (const auto t : fastest_) {
    if (counts[t] == 0) continue;
    if (first) through = rates * through_s_[t];
    const auto at = [&](double n) {
      const double u = work_ / (rates + n * rate_[t]);
      least = std::min(least, u * (1 + through + n * rate_[t] * through_s_[t]) + tail_s(u));
    };
    if (first) at(1);
    const double fewest = work_ / (rates + (first ? 1 : 0) * rate_[t]),
                 most = work_ / (rates + counts[t] * rate_[t]);
    // The rest of the work is on stages of this type, which are not full.
    if (const double u = hidden_below_s_; most < u && u < fewest)
      least = std::min(least, u * (1 + through) + (work_ - u * rates) * through_s_[t]);
    at(counts[t]);
    first = false;
    rates += counts[t] * rate_[t];
    through += counts[t] * rate_[t] * through_s_[t];
  }
  return least + sends_s_;
}

namespace {

class cut_search {
 public:
  explicit cut_search(const cut_problem& p)
      : p_{p}, stages_{p.stages()}, m_{static_cast<double>(p.microbatches)}, bound_{*p.bound} {
    std::size_t sets = 1;
    for (const auto n : p.counts) {
      weights_.push_back(sets);
      sets *= n + 1;
    }
    alike_ = std::ranges::all_of(p.links, [&](const auto& w) { return w == p.links[0]; });
    for (std::size_t t = 1; t < p.types() && p.table->size() > 1; ++t)
      alike_ = alike_ && p.table->middle(t, 0, 1).activation_bytes ==
                             p.table->middle(0, 0, 1).activation_bytes;
    sets_.resize(sets);
    labels_.resize(sets);
    for (std::size_t s = 0; s < sets; ++s) describe(s);
  }

  double bound_s() const { return bound_.of(p_.counts); }
  std::uint64_t steps() const { return steps_; }

  /// The best within the limit.
  stage_cut within(double limit_s) {
    limit_ = limit_s;
    if (!set_most_pieces()) return {};
    for (auto& l : labels_) l.clear();
    labels_[0].push_back({});
    for (std::size_t set = 0; set + 1 < labels_.size(); ++set) {
      keep_best(set);
      for (std::size_t i = 0; i < labels_[set].size(); ++i) extend(set, i);
    }
    const auto& all = labels_.back();
    const auto best = std::ranges::min_element(all, {}, [](const label& l) { return l.min_s; });
    if (best == all.end()) return {};
    return {best->min_s, stages_of(*best)};
  }

 private:
  struct label {
    double before = 0;     // S of the stages so far, but the send after the last of them
    double backwards = 0;  // of one micro-batch, and the sends of their gradients
    double arrived = 0;    // the closed form's terms that the rest does not change
    double own = 0;        // and those that S is added to
    double tail = 0;       // what is left of sums and updates when all backwards have ended
    double sent = 0;       // the last stage's send to the one before it, on a link for itself
    double activation_bytes = 0;
    double min_s = 0;  // of an iteration
    // Of the first stage, if the last one has its embedding, too:
    double first_gradients = 0, first_sums = 0, first_update = 0;
    std::uint32_t parent = 0, done = 0;
    std::uint16_t type = 0, first_type = 0, pieces = 0;
  };
  /// What is left when a set of stages is used.
  struct rest {
    std::uint32_t used = 0;
    double through_s = never;  // the least, of a FLOP
    double rate = 0;
    std::uint32_t max_pieces = 0;  // that these can have within the limit; the head counts as one
  };

  std::uint32_t used_of(std::size_t set, std::size_t type) const {
    return static_cast<std::uint32_t>(set / weights_[type] % (p_.counts[type] + 1));
  }

  void describe(std::size_t set) {
    auto& r = sets_[set];
    double last = 0;
    for (std::size_t t = 0; t < p_.types(); ++t) {
      const auto used = used_of(set, t), left = p_.counts[t] - used;
      r.used += used;
      if (left == 0) continue;
      r.through_s = std::min(r.through_s, bound_.through_s(t));
      r.rate += left * bound_.rate(t);
      last = std::max(last, bound_.last_rate(t));
    }
    r.rate += last;
  }

  bool fits(const range_costs& k, std::size_t type, std::uint32_t behind) const {
    return k.bytes + p_.held[behind] * k.bytes_each < p_.bytes[type];
  }
  /// The closed form's term for a stage, less S.
  double own_s(const range_costs& k, std::uint32_t behind) const {
    const double warm = std::min<double>(m_, behind + 1);
    return m_ * k.step_s() - warm * k.forward_s - k.recompute_s - k.backward_s;
  }
  /// Until a stage and its peers have summed so many bytes of gradients.
  double sums_s(double bytes, std::size_t type) const {
    if (p_.pipelines == 1) return 0;
    const double others = p_.pipelines - 1;
    const auto& w = p_.links[type * (p_.types() + 1)];
    return 2 * (others * w.alone_s(bytes / p_.pipelines) + w.latency_s);
  }
  /// Handing out gradients, if others want them.
  double gradients_s(const range_costs& k, bool tied) const {
    return (p_.pipelines > 1 || tied) && k.gradient_bytes > 0 ? k.gradients_s : 0;
  }
  double after_s(const range_costs& k, std::size_t type, bool tied) const {
    return k.update_s + gradients_s(k, tied) + sums_s(k.gradient_bytes, type);
  }
  /// What the ends of a pipeline do after their last backwards: the last one's part of a tied
  /// embedding's gradients comes to the first, and the sum goes back.
  void end_tied(label& l, const range_costs& k, std::size_t type) const {
    const auto& w = p_.links[type * p_.types() + l.first_type];
    const double there_s = w.alone_s(k.tied_bytes) + w.latency_s;
    const double sum_s = sums_s(k.gradient_bytes - std::min(k.gradient_bytes, k.tied_bytes), type);
    const double first_s = l.first_gradients + there_s + l.first_sums;
    l.tail = std::max({l.tail, first_s + std::max(l.first_update, k.update_s),
                       gradients_s(k, true) + std::max(sum_s, 2 * there_s + l.first_sums) +
                           k.update_s - l.backwards});
  }

  /// How many pieces stages can have within the limit, wherever they are. False: too few.
  bool set_most_pieces() {
    const auto& t = *p_.table;
    const double min_s = t.work_from(0) * sets_[0].through_s + bound_.sends_s();  // of S
    std::vector<std::uint32_t> middle(p_.types(), 0), last(p_.types(), 0);
    max_after_s_ = 0;
    for (std::size_t k = 0; k < p_.types(); ++k) {
      if (p_.counts[k] == 0) continue;
      if (!t.homogeneous()) {
        middle[k] = last[k] = t.size();
        note_after(t.last(k, 0), k);
        continue;
      }
      const auto good = [&](const range_costs& x, std::uint32_t behind) {
        ++steps_;
        if (!fits(x, k, behind == 0 ? 0 : 1) || min_s + own_s(x, behind) > limit_) return false;
        note_after(x, k);
        return true;
      };
      for (std::uint32_t first = 0; first < std::min(t.size(), 3U) && stages_ > 1; ++first)
        for (auto n = middle[k] + 1;
             first + n < t.size() && good(t.middle(k, first, n), stages_ - 1); ++n)
          middle[k] = n;
      for (auto first = t.size(); first-- > 0 && good(t.last(k, first), 0);)
        last[k] = t.size() - first;
    }
    for (std::size_t set = 0; set < sets_.size(); ++set) {
      std::uint32_t most = 0, more = 0;
      for (std::size_t k = 0; k < p_.types(); ++k) {
        const auto left = p_.counts[k] - used_of(set, k);
        most += left * middle[k];
        if (left > 0 && last[k] > middle[k]) more = std::max(more, last[k] - middle[k]);
      }
      sets_[set].max_pieces = most + more;
    }
    return sets_[0].max_pieces >= t.size();
  }

  /// Twice, where the last stage may wait for the first one's sums.
  void note_after(const range_costs& k, std::size_t type) {
    double after = after_s(k, type, p_.tied);
    if (p_.tied)
      for (std::size_t first = 0; first < p_.types(); ++first) {
        const auto& w = p_.links[type * p_.types() + first];
        after =
            std::max(after, 2 * (after_s(k, type, true) + w.alone_s(k.tied_bytes) + w.latency_s));
      }
    max_after_s_ = std::max(max_after_s_, after);
  }

  void extend(std::size_t set, std::size_t index) {
    const auto behind = stages_ - sets_[set].used - 1;  // of the stage that is added
    for (std::size_t type = 0; type < p_.types(); ++type) {
      if (used_of(set, type) == p_.counts[type]) continue;
      if (!p_.order.empty() && p_.order[sets_[set].used] != type) continue;
      const auto next = set + weights_[type];
      const auto done = labels_[set][index].done;
      if (behind == 0) {
        const auto& k = p_.table->last(type, done);
        if (fits(k, type, 0)) add(set, index, next, type, k, 0, p_.table->pieces() - done);
        continue;
      }
      const auto most = p_.table->size() - behind;  // each of the others needs something
      const auto missing = p_.table->size() - std::min(p_.table->size(), sets_[next].max_pieces);
      for (auto end = std::max(done + 1, missing); end <= most; ++end) {
        const auto& k = p_.table->middle(type, done, end - done);
        const bool held = fits(k, type, behind);
        if (!held && p_.table->homogeneous()) break;
        if (held && !add(set, index, next, type, k, behind, end - done)) break;
      }
    }
  }

  /// False: no larger range does either.
  bool add(std::size_t set, std::size_t index, std::size_t next, std::size_t type,
           const range_costs& k, std::uint32_t behind, std::uint32_t pieces) {
    ++steps_;
    const auto from = labels_[set][index];
    const bool first = behind + 1 == stages_;
    label l = from;
    l.parent = static_cast<std::uint32_t>(index);
    l.type = static_cast<std::uint16_t>(type);
    l.pieces = static_cast<std::uint16_t>(pieces);
    l.done = from.done + pieces;
    l.activation_bytes = k.activation_bytes;
    if (!first) {
      const auto& w = p_.links[from.type * p_.types() + type];
      l.sent = w.alone_s(from.activation_bytes);
      l.before += 2 * (l.sent + w.latency_s);
      l.backwards += l.sent + w.latency_s;
      // The stage before sends forward what this one's gradients come back for.
      l.arrived = std::max(l.arrived, m_ * link_s(from.sent, l.sent));
    }
    if (behind == 0) l.arrived = std::max(l.arrived, m_ * l.sent);
    if (p_.tied && behind == 0)
      end_tied(l, k, type);
    else
      l.tail = std::max(l.tail, after_s(k, type, p_.tied && first) - l.backwards);
    if (p_.tied && first) {
      l.first_type = l.type;
      l.first_gradients = gradients_s(k, true);
      l.first_sums = sums_s(k.gradient_bytes, type);
      l.first_update = k.update_s;
    }
    l.arrived = std::max(l.arrived, l.before + m_ * k.step_s());
    l.own = std::max(l.own, own_s(k, behind));
    l.before += k.forward_s + k.backward_s;
    l.backwards += k.backward_s;
    if (behind == 0) {
      l.min_s = std::max(l.arrived, l.before + l.own) + l.tail;
    } else {
      const auto& r = sets_[next];
      const double work = p_.table->work_from(l.done);
      const double before = l.before + bound_.sends_s() * behind / (stages_ - 1);
      // With a larger range nothing of this becomes less, even if faster stages were behind.
      const double through_s = std::min(r.through_s, bound_.through_s(type));
      if (std::max(l.arrived, before + work * through_s + l.own) + l.tail > limit_) return false;
      const double all_s = before + work * r.through_s + std::max(l.own, work / r.rate);
      l.min_s = std::max(l.arrived, all_s) + l.tail;
    }
    if (l.min_s <= limit_) labels_[next].push_back(l);
    return true;
  }
  double link_s(double backward_s, double forward_s) const {
    return p_.own_links ? backward_s + forward_s : std::max(backward_s, forward_s);
  }
  /// Is whatever follows `a` no longer than the same after `b`? Both have done the same pieces.
  bool better(const label& a, const label& b) const {
    return a.before <= b.before && a.arrived <= std::max(b.arrived, b.min_s - b.tail) &&
           a.before + a.own <= b.before + b.own && a.tail <= b.tail && a.sent <= b.sent &&
           (a.backwards >= b.backwards || max_after_s_ - a.backwards <= a.tail) &&
           (!p_.tied || (a.first_gradients + a.first_sums <= b.first_gradients + b.first_sums &&
                         a.first_sums <= b.first_sums && a.first_update <= b.first_update));
  }

  void keep_best(std::size_t set) {
    auto& all = labels_[set];
    const auto group = [&](const label& l) {
      return std::tuple{l.done, alike_ ? std::uint16_t{0} : l.type,
                        alike_ ? std::uint16_t{0} : l.first_type};
    };
    std::ranges::sort(all, [&](const label& a, const label& b) {
      const auto ga = group(a), gb = group(b);
      const auto key = [](const label& l) {
        return std::tuple{l.before, l.min_s, l.type, l.parent, l.pieces};
      };
      return ga != gb ? ga < gb : key(a) < key(b);
    });
    std::size_t kept = 0, begin = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (kept > begin && group(all[begin]) != group(all[i])) begin = kept;
      const auto beats = [&](const label& l) {
        ++steps_;
        return better(l, all[i]);
      };
      if (!std::any_of(all.begin() + static_cast<std::ptrdiff_t>(begin),
                       all.begin() + static_cast<std::ptrdiff_t>(kept), beats))
        all[kept++] = all[i];
    }
    all.resize(kept);
  }

  std::vector<cut_stage> stages_of(label l) const {
    std::vector<cut_stage> out;
    auto set = labels_.size() - 1;
    for (;;) {
      out.push_back({l.type, l.pieces});
      set -= weights_[l.type];
      if (set == 0) break;
      l = labels_[set][l.parent];
    }
    std::ranges::reverse(out);
    return out;
  }

  const cut_problem& p_;
  std::uint32_t stages_;
  double m_;
  const iteration_bound& bound_;
  bool alike_ = true;                 // sends between all types
  std::vector<std::size_t> weights_;  // sets of used stages are numbered in mixed radix
  std::vector<rest> sets_;
  std::vector<std::vector<label>> labels_;  // by set
  double limit_ = 0, max_after_s_ = 0;
  std::uint64_t steps_ = 0;
};

}  // namespace

stage_cut cut_for(const cut_problem& problem, double limit_s, std::uint64_t& steps) {
  const auto stages = problem.stages();
  if (stages > problem.table->size()) return {};
  cut_search search{problem};
  stage_cut best;
  double raise = 0.01;
  for (;;) {
    const double within_s = std::min(limit_s, search.bound_s() * (1 + raise));
    best = search.within(raise > 100 ? limit_s : within_s);
    if (!best.stages.empty() || within_s >= limit_s || raise > 100) break;
    raise *= 2;
  }
  steps += search.steps();
  return best;
}

}  // namespace troupe::planners
