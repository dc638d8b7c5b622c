#include "planners/search/stage_cut.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "messages/base/time.hpp"
#include "planners/search/cut_terms.hpp"

// Invariant: whenever a label is dropped, a kept one is no worse under every completion, or no
// completion is within the limit. So the best cut survives: the result is exact for the closed
// form. There are product(counts + 1) parts; each label has O(types * pieces) extensions; how many
// survive has no polynomial bound. Hence the fallbacks of cut_for.

namespace troupe::planners {

namespace {

constexpr auto never_steps = std::numeric_limits<std::uint64_t>::max();
constexpr double max_parts = 200'000;  // each has labels in memory

class cut_search : cut_terms {
  using label = cut_label;
  using rest = stages_ahead;

 public:
  cut_search(const cut_problem& p, cut_memory& memory)
      : cut_terms{p}, stages_{p.stages()}, labels_{memory.labels} {
    std::uint32_t sets = 1;
    for (std::size_t t = 0; t < p.types(); ++t) {
      weights_.push_back(sets);
      sets *= p.counts[t] + 1;
      if (p.counts[t] > 0) types_.push_back(t);
    }
    alike_ = !share_nodes_ &&
             std::ranges::all_of(p.links, [&](const auto& w) { return w == p.links[0]; });
    for (const auto& w : p.links) {
      min_sent_s_ = std::min(min_sent_s_, w.fastest_s(p.table->min_activation_bytes()));
      max_send_s_ = std::max(max_send_s_, w.max_s(p.table->max_activation_bytes()) + w.latency_s);
    }
    order_ = {p.lower_bound, p.tied, p.agrees,
              alike_ && p.table->min_activation_bytes() == p.table->max_activation_bytes()};
    max_pieces_.resize(p.types());
    max_work_.resize(p.types());
    all_ = sets - 1;
    for (const auto t : types_) min_through_s_ = std::min(min_through_s_, bound_.through_s(t));
    if (p.table->homogeneous())
      for (const auto t : types_) {
        min_after_ = std::min(min_after_, min_after_s(t, false));
        min_tail_ = std::min(min_tail_, min_after_s(t, true));
      }
    if (min_after_ == never) min_after_ = min_tail_ = 0;
  }

  std::uint64_t steps() const { return steps_; }

  /// The best cut within the limit; an empty one if there is none. At most `max_labels` of each
  /// part of the set are kept, those with the smallest bounds. With `slack_s`, one label stands for
  /// others that differ by no more: the result is a lower bound, and the cut that promised it.
  /// Nothing: it gave up after `max_steps`.
  std::optional<stage_cut> within(double limit_s, std::size_t max_labels, std::uint64_t max_steps,
                                  double slack_s = 0) {
    order_.slack_s = slack_s;
    if (!search(limit_s, max_labels, max_steps, true)) return {};
    return best_cut();
  }
  /// All cuts within the limit: nothing is dropped for dominance.
  std::optional<std::vector<stage_cut::alternative>> all_within(double limit_s,
                                                                std::uint64_t max_steps) {
    if (!search(limit_s, std::numeric_limits<std::size_t>::max(), max_steps, false)) return {};
    std::vector<stage_cut::alternative> out;
    for (const auto& l : labels_[all_]) out.push_back({l.min_s, stages_of(l)});
    std::ranges::stable_sort(out, {}, &stage_cut::alternative::bound_s);
    return out;
  }

 private:
  /// Parts are numbered so that adding a stage increases the number: one ascending pass extends
  /// each part after all of its labels are known. False: it gave up.
  bool search(double limit_s, std::size_t max_labels, std::uint64_t max_steps, bool only_best) {
    limit_ = limit_s;
    if (labels_.size() <= all_) labels_.resize(all_ + 1);
    for (std::size_t set = 0; set <= all_; ++set) labels_[set].clear();
    const auto until = steps_ + std::min(max_steps, never_steps - steps_);
    if (!set_max_pieces()) return true;
    labels_[0].push_back({});
    labels_[0][0].begin = p_.table->size();
    for (std::size_t set = 0; set < all_; ++set) {
      if (only_best) keep_best(set);
      keep_smallest_bounds(labels_[set], max_labels);
      for (std::size_t i = 0; i < labels_[set].size(); ++i) extend(set, i);
      if (steps_ > until) return false;
    }
    return true;
  }

  std::uint32_t used_of(std::size_t set, std::size_t type) const {
    return static_cast<std::uint32_t>(set) / weights_[type] % (p_.counts[type] + 1);
  }

  void describe(std::size_t set) {
    auto& r = sets_[set];
    for (const auto t : types_) {
      const auto left = p_.counts[t] - used_of(set, t);
      r.stages += left;
      if (left == 0) continue;
      r.through_s = std::min(r.through_s, bound_.through_s(t));
      r.forward_s = std::min(r.forward_s, p_.table->middle_floor(t).forward_s);
      r.backward_s = std::min(r.backward_s, p_.table->middle_floor(t).backward_s);
      r.rate += left * bound_.rate(t);
      r.sums_s = std::min(r.sums_s, 2 * p_.chunks_to_peers[t].total_s(1.0 / p_.pipelines));
    }
  }

  /// The mean tail of the stages in front of a label that begins at `begin`.
  mean_sums sums_before(std::uint32_t begin, const rest& r) const {
    const double earlier = (r.stages - 1) / 2.0, hidden = earlier / (m_ - 1);
    if (p_.pipelines == 1 || !p_.own_links || !(hidden <= 1)) return {};
    const double bytes = p_.table->last(0, 0).gradient_bytes -
                         p_.table->last(0, begin).gradient_bytes -
                         r.stages;  // rounded stage by stage
    return {bytes * r.sums_s / r.stages - earlier * max_send_s_, hidden};
  }

  /// Computes for each part of the set how many pieces the stages in front of it can have within
  /// the limit, over all of their orders: first by type and position, then over parts from the
  /// whole set down. It keeps extend() from making labels that no front can complete. False: too
  /// few even for the empty part, so nothing is within the limit.
  bool set_max_pieces() {
    std::uint32_t sum = 0;
    max_load_.assign(stages_ + 1, p_.table->homogeneous() ? max_send_s_ : never);
    for (const auto t : types_) {
      max_pieces_[t].assign(stages_, p_.table->size());
      max_work_[t].assign(stages_ + 1, never);
      if (p_.table->homogeneous()) set_max_pieces_of(t);
      sum += p_.counts[t] * *std::ranges::max_element(max_pieces_[t]);
    }
    if (sum < p_.table->size()) return false;
    if (sets_.empty()) {
      sets_.resize(all_ + 1);
      for (std::size_t s = 0; s < sets_.size(); ++s) describe(s);
    }
    for (auto set = sets_.size() - 1; set-- > 0;) {
      const auto behind = stages_ - sets_[set].stages;
      sets_[set].max_pieces = 0;
      for (const auto t : types_) {
        if (!may_add(set, t)) continue;
        const auto max = sets_[set + weights_[t]].max_pieces + max_pieces_[t][behind];
        sets_[set].max_pieces = std::max(sets_[set].max_pieces, max);
      }
    }
    return sets_[0].max_pieces >= p_.table->size();
  }
  /// The largest range of a type by the number of stages behind, by memory and by the limit. Its
  /// maximum moves little from one position to the next, so each search starts from the last one.
  void set_max_pieces_of(std::size_t type) {
    const auto& t = *p_.table;
    const double min_s = t.work_from(0) * min_through_s_ + bound_.sends_s();  // of S
    std::uint32_t max = 0;
    for (std::uint32_t behind = 0; behind < stages_; ++behind) {
      const auto good = [&](std::uint32_t n) {
        const auto within = [&](const range_costs& k) {
          ++steps_;
          return fits(k, type, behind) && min_s + min_own_s(k, behind) <= limit_;
        };
        if (behind == 0) return n <= t.size() && within(t.last(type, t.size() - n));
        // Only the first stage begins with the embedding; others do with either kind of piece.
        const std::uint32_t from = behind + 1 == stages_ ? 0 : 1, to = from == 0 ? 1 : 3;
        for (auto first = from; first < to; ++first)
          if (first + n < t.size() && within(t.middle(type, first, n))) return true;
        return false;
      };
      while (max > 0 && !good(max)) --max;
      while (good(max + 1)) ++max;
      max_pieces_[type][behind] = max;
    }
    // From the front to the end: the most work and the longest forward from a position on.
    auto& work = max_work_[type];
    work[stages_] = 0;
    double load = 0;
    for (auto behind = stages_; behind-- > 0;) {
      work[behind] = work[behind + 1];
      const auto n = max_pieces_[type][behind];
      for (std::uint32_t first = 0; n > 0 && first < 3 && first + 1 < t.size(); ++first)
        load = std::max(load, t.middle(type, first, std::min(n, t.size() - first - 1)).forward_s);
      max_load_[behind] = std::max(max_load_[behind], load);
      for (std::uint32_t first = 0; first < 3 && first + n <= t.size(); ++first)
        work[behind] = std::max(work[behind], t.work_from(first) - t.work_from(first + n));
    }
  }
  /// Lower bound of the part of S for `work` FLOPs on the stages in front of `set`: the fastest
  /// types take as much as they can have within the limit.
  double front_s(std::size_t set, double work) const {
    double s = 0, slowest = 0;
    const auto behind = stages_ - sets_[set].stages;
    for (const auto t : bound_.fastest()) {
      const auto left = p_.counts[t] - used_of(set, t);
      if (left == 0) continue;
      const double w = std::min(work, left * max_work_[t][behind]);
      slowest = bound_.through_s(t);
      s += w * slowest;
      work -= w;
    }
    return s + work * slowest;
  }
  bool may_add(std::size_t set, std::size_t type) const {
    return used_of(set, type) < p_.counts[type] &&
           (p_.order.empty() || p_.order[sets_[set].stages - 1] == type);
  }

  /// Puts a stage of each type in front of a label, with every range that ends where it begins, the
  /// shortest first.
  void extend(std::size_t set, std::size_t index) {
    const auto end = labels_[set][index].begin;
    const auto& table = *p_.table;
    for (const auto type : types_) {
      if (!may_add(set, type)) continue;
      const auto& left = sets_[set + weights_[type]];
      const auto behind = stages_ - left.stages - 1;  // of the stage that is added
      // Each stage before it needs at least one piece, and all of them can have max_pieces.
      for (auto begin = std::min(end - 1, left.max_pieces) + 1; begin-- > left.stages;) {
        if (left.stages == 0 && begin > 0) continue;
        const auto& k =
            behind == 0 ? table.last(type, begin) : table.middle(type, begin, end - begin);
        const bool held = fits(k, type, behind);
        if (!held && table.homogeneous()) break;
        if (held && !add(set, index, type, k, begin)) break;
      }
    }
  }

  /// Makes the label with this stage in front of `from`, and keeps it unless its bound exceeds the
  /// limit. False: no larger range is within the limit either.
  bool add(std::size_t set, std::size_t index, std::size_t type, const range_costs& k,
           std::uint32_t begin) {
    ++steps_;
    const auto next = set + weights_[type];
    const auto& r = sets_[next];
    const auto behind = stages_ - r.stages - 1;
    const bool first = r.stages == 0;
    const auto& from = labels_[set][index];
    label l = from;
    l.parent = static_cast<std::uint32_t>(index);
    l.lowered = 0;
    l.type = static_cast<std::uint16_t>(type);
    l.pieces = static_cast<std::uint16_t>(std::min(from.begin, p_.table->pieces()) -
                                          std::min(begin, p_.table->pieces()));
    l.begin = begin;
    l.through += k.forward_s + k.backward_s;
    if (behind > 0) {
      send_to_next(set, from, type, k, behind, l);
    } else {
      l.together = 1;
      if (p_.tied) begin_tied(l, k, type);
    }
    if (first) l.links = std::max(l.links, m_ * l.sent);
    if (behind > 0 || !p_.tied) l.tail = std::max(l.tail, after_s(k, type, p_.tied && first));
    if (first && p_.tied && behind > 0) end_tied(l, k, type);
    if (p_.agrees) agree(l, k, type, behind == 0, first);
    wait_for_own(k, behind, from, first, l);
    if (!set_bounds(next, type, k, begin, l)) return false;
    if (l.min_s <= limit_) labels_[next].push_back(l);
    return true;
  }

  /// A stage that is not the last one sends activations to the next and gets their gradients.
  void send_to_next(std::size_t set, const label& from, std::size_t type, const range_costs& k,
                    std::uint32_t behind, label& l) const {
    const auto& w = p_.links[type * p_.types() + from.type];
    l.sent = w.link_s(k.activation_bytes);
    double alone_s = w.alone_s(k.activation_bytes), send_s = alone_s + w.latency_s;
    double way_s = w.latency_s;
    l.together = 1;
    if (type == from.type && leaves_node(set, from, l)) {
      const auto& between = p_.between_nodes[type];
      const double bytes =
          p_.leaves_node[type].empty() ? p_.table->min_activation_bytes() : k.activation_bytes;
      l.sent = std::max(l.sent, between.link_s(bytes));
      alone_s = std::max(alone_s, between.alone_s(bytes));
      send_s = std::max(send_s, between.alone_s(bytes) + between.latency_s);
      way_s = std::max(way_s, between.latency_s);
    }
    l.through += 2 * send_s;
    l.backwards += k.backward_s + send_s;
    l.tail -= k.backward_s + send_s;
    l.word -= k.backward_s + send_s - way_s;
    if (p_.lower_bound && p_.own_links && behind > 1 && behind < p_.microbatches) {
      // Term (5) holds while no stage in front takes longer for a micro-batch than Y / w of this
      // one.
      l.max_load = std::min(l.max_load, from.through / behind);
      // Flows that do not fill the card need not delay each other.
      if (!w.has_rates()) l.delay += delay_on_card_s(l.sent, from.sent, from.forward);
    }
    if (std::max(k.forward_s, alone_s) > l.max_load) {
      l.max_load = l.delay = 0;
      l.delayed_own = l.own;
    }
    // The card of the stage behind sends its gradients here and its activations onwards.
    l.links = std::max({l.links, m_ * link_s(l.sent, from.sent), m_ * alone_s});
    if (p_.lower_bound) {
      // Term (4) for that card: all gradients but the first, and the activations beyond the first
      // w.
      const double before = m_ - std::min<double>(m_, behind);
      l.own = std::max(l.own, before * from.sent + (m_ - 1) * l.sent);
    }
  }

  /// How long a stage waits for its own micro-batches, and for those that others delay.
  void wait_for_own(const range_costs& k, std::uint32_t behind, const label& from, bool first,
                    label& l) const {
    l.forward = k.forward_s;
    const double after_first = after_first_s(k, behind, l.through, from.through);
    l.own = std::max(l.own, own_s(k, behind, l.through, after_first));
    l.delayed_own = std::max({l.delayed_own, l.own, after_first + l.delay});
    if (l.max_load >= max_load_[behind + 1]) l.max_load = never;
    // The delay is certain if no stage that can still come has too much load.
    if (first || (l.max_load == never && l.through >= (behind + 1) * max_load_[behind + 1] &&
                  2 * min_sent_s_ >= max_load_[behind + 1]))
      l.own = l.delayed_own;
    l.next_delay = delay_on_card_s(min_sent_s_, l.sent, l.forward);
  }

  /// The label's lower bounds. False: no larger range is within the limit either.
  bool set_bounds(std::size_t next, std::size_t type, const range_costs& k, std::uint32_t begin,
                  label& l) const {
    const auto& r = sets_[next];
    const auto behind = stages_ - r.stages - 1;
    const double own = l.max_load == never ? l.delayed_own : l.own;
    if (r.stages == 0) {
      l.span_s = std::max(l.links, l.through + own);
      // Where sends may take longer than here, S grows by more than the tail becomes less, but the
      // busiest link does not grow.
      l.min_s = p_.own_links ? l.span_s + l.tail
                             : std::max(l.through + own + l.tail,
                                        l.links + after_s(k, type, p_.tied && behind > 0));
    } else {
      l.tail = std::max(l.tail, min_tail_);
      const double work = p_.table->work_from(0) - p_.table->work_from(begin);
      const double sends_s = bound_.sends_s(r.stages + 1);
      const double hidden_s = sends_s / 2 + work * r.forward_s;
      // First with the fastest types in front: this bound grows with the range, so that it may end
      // the loop over ranges. The closer one below need not.
      const double min_s = work * std::min(r.through_s, bound_.through_s(type)) + sends_s;
      if (min_of(l, r, min_s, own, sends_s / 2, {}).with_tail > limit_) return false;
      const auto at_least = min_of(l, r, front_s(next, work) + sends_s,
                                   std::max(own, work / r.rate), hidden_s, sums_before(begin, r));
      l.span_s = at_least.span;
      l.min_s = at_least.with_tail;
    }
    return true;
  }

  bool leaves_node(std::size_t set, const label& from, label& front) const {
    if (const auto& leaves = p_.leaves_node[from.type]; !leaves.empty())
      return leaves[p_.counts[from.type] - 1 - used_of(set, from.type)];
    // Filling nodes from the last stage on, a pipeline leaves them as late as it can.
    if (from.together == p_.stages_of_node[from.type]) return true;
    front.together = static_cast<std::uint16_t>(from.together + 1);
    return false;
  }

  /// Lower bounds of the iteration if the stages in front take at least `front_s` of S, `ahead_s`
  /// of it for forwards and their sends, u is at least `own_s`, and their mean tail is `sums`.
  min_times min_of(const label& l, const rest& r, double front_s, double own_s, double ahead_s,
                   const mean_sums& sums) const {
    const double all_s = l.through + front_s;
    const double own = std::max(
        own_s, bound_.rounds_beyond(all_s - bound_.sends_s(r.stages + 1), stages_ - r.stages - 1,
                                    l.max_load == never ? l.delay : 0));
    const double span = std::max(l.links, all_s + own);
    // S grows by what the stages in front hide of the tail, and by their forwards.
    return {span, std::max(span + std::max(min_after_, sums.tail_s(own)),
                           l.through + own + l.tail + ahead_s)};
  }
  double link_s(double backward_s, double forward_s) const {
    return p_.own_links ? backward_s + forward_s : std::max(backward_s, forward_s);
  }
  /// Drops dominated labels. Sorted by `through`, which dominance requires to be no larger, each
  /// label needs to be compared with the kept ones before it only: O(labels * kept). Where all
  /// links are alike the front type does not matter, and labels of all types are compared.
  void keep_best(std::size_t set) {
    auto& all = labels_[set];
    const auto group = [&](const label& l) {
      return std::tuple{l.begin, alike_ ? std::uint16_t{0} : l.type,
                        alike_ ? std::uint16_t{0} : l.last_type};
    };
    std::ranges::sort(all, [&](const label& a, const label& b) {
      const auto ga = group(a), gb = group(b);
      const auto key = [](const label& l) {
        return std::tuple{l.through, l.min_s, l.type, l.parent, l.pieces};
      };
      return ga != gb ? ga < gb : key(a) < key(b);
    });
    std::size_t kept = 0, begin = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (kept > begin && group(all[begin]) != group(all[i])) begin = kept;
      const auto beats = [&](const label& l) {
        ++steps_;
        return order_.better(l, all[i]);
      };
      const auto end = all.begin() + static_cast<std::ptrdiff_t>(kept);
      const auto by = std::find_if(all.begin() + static_cast<std::ptrdiff_t>(begin), end, beats);
      if (by == end)
        all[kept++] = all[i];
      else if (order_.slack_s > 0)
        order_.lower(*by, all[i]);
    }
    all.resize(kept);
  }

  /// The label of the whole set with the smallest bound; with shared links, up to seven others.
  stage_cut best_cut() {
    auto& all = labels_[all_];
    std::ranges::stable_sort(all, {}, [](const label& l) { return l.min_s; });
    if (all.empty()) return {};
    stage_cut out{all.front().min_s, stages_of(all.front()), all.front().min_s, {}};
    for (std::size_t i = 1; i < std::min<std::size_t>(8, all.size()) && !p_.own_links; ++i)
      out.others.push_back({all[i].min_s, stages_of(all[i])});
    return out;
  }

  std::vector<cut_stage> stages_of(label l) const {
    std::vector<cut_stage> out;
    std::size_t set = all_;
    for (;;) {
      out.push_back({l.type, l.pieces});
      set -= weights_[l.type];
      if (set == 0) break;
      l = labels_[set][l.parent];
    }
    return out;
  }

  std::uint32_t stages_;
  bool alike_ = true;                                   // sends between all types
  std::vector<std::vector<std::uint32_t>> max_pieces_;  // of a stage, by type and stages behind
  std::vector<std::vector<double>> max_work_;  // by type and stages behind, or more of them
  std::vector<double> max_load_;               // of any stage; likewise
  std::vector<std::size_t> types_;             // of the stages
  std::vector<std::uint32_t> weights_;         // sets of used stages are numbered in mixed radix
  std::uint32_t all_ = 0;
  double min_through_s_ = never;
  std::vector<rest> sets_;
  std::vector<std::vector<label>>& labels_;  // by set
  double limit_ = 0, max_send_s_ = 0, min_sent_s_ = never;
  double min_after_ = never;  // of any first stage's last backward
  double min_tail_ = never;   // of stages with others in front: less is done when these are
  label_order order_;
  std::uint64_t steps_ = 0;
};

}  // namespace

stage_cut cut_for(const cut_problem& problem, double limit_s, std::uint64_t& steps,
                  cut_memory& memory, const cut_effort& effort) {
  if (problem.stages() > problem.table->size()) return {};
  stage_cut first;
  first.bound_s = problem.bound->of(problem.counts);
  if (problem.parts() > max_parts) return first;
  constexpr std::size_t few = 8, all = std::numeric_limits<std::size_t>::max();
  const bool rough = effort.rough && problem.lower_bound && limit_s < never;
  cut_search search{problem, memory};
  const auto quick_pass = [&] {
    first = *search.within(limit_s, few, never_steps);
    first.bound_s = problem.bound->of(problem.counts);
    limit_s = std::min(limit_s, first.iteration_s * (1 + 1e-12));  // it is rounded
  };
  // Exact under the given limit: a tight one leaves little to look at. If that takes too long, a
  // pass with a few labels finds a tighter limit and, with the closed form alone, the search is
  // repeated. If it still takes too long, nearly equal labels stand for each other: then `best` is
  // a bound.
  auto best = search.within(limit_s, all, effort.max_steps / (rough ? 64 : 4));
  if (!best && !rough) quick_pass();
  if (!best && !problem.lower_bound) best = search.within(limit_s, all, effort.max_steps);
  for (const double slack : {rough ? 0.01 : 0.003, 0.01}) {
    if (best || limit_s == never) break;
    best = search.within(limit_s, all, effort.max_steps, slack * limit_s);
    if (!best) continue;
    first.bound_s = std::max(first.bound_s, std::min(best->bound_s, first.iteration_s));
    if (!best->stages.empty()) first.others.push_back({first.bound_s, best->stages});
    best = std::move(first);
  }
  if (!best && rough) quick_pass();
  steps += search.steps();
  return best ? *best : first;
}

std::optional<std::vector<stage_cut::alternative>> cuts_within(const cut_problem& problem,
                                                               double limit_s, std::uint64_t& steps,
                                                               cut_memory& memory,
                                                               std::uint64_t max_steps) {
  if (problem.parts() > max_parts) return {};
  if (problem.stages() > problem.table->size()) return std::vector<stage_cut::alternative>{};
  cut_search search{problem, memory};
  auto out = search.all_within(limit_s, max_steps);
  steps += search.steps();
  return out;
}

}  // namespace troupe::planners
