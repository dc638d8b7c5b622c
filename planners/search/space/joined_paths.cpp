#include "planners/search/space/joined_paths.hpp"

#include <algorithm>
#include <utility>

#include "messages/base/invariant.hpp"

// Values are by state, stages behind and first piece: the cheapest way to have the pieces from that
// one on in that many stages and one more, where the state is what the front one of these has in
// front of it. Most of the work is the smallest sum of a stage's costs and the values behind it,
// for all numbers of its pieces; so both lie next to each other in memory, and which number it was
// is found again for the lines that are asked for.

namespace troupe::planners {

namespace {

/// min (a[i] + b[i]): four chains, which do not wait for each other.
double min_sum(const double* a, const double* b, std::size_t n) {
  double m[4]{std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(),
              std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
  std::size_t i = 0;
  for (; i + 4 <= n; i += 4)
    for (std::size_t j = 0; j < 4; ++j) {
      const double sum = a[i + j] + b[i + j];
      m[j] = sum < m[j] ? sum : m[j];
    }
  for (; i < n; ++i) m[0] = std::min(m[0], a[i] + b[i]);
  return std::min(std::min(m[0], m[1]), std::min(m[2], m[3]));
}

}  // namespace

joined_paths::joined_paths(floor_table& floors)
    : floors_{&floors},
      pieces_{floors.problem().pieces},
      stages_{std::min(floors.problem().max_stages, floors.problem().pieces)},
      classes_{static_cast<std::uint32_t>(floors.problem().classes.size())},
      node_(floors.problem().kinds.size(), 1),
      smallest_(node_.size(), never_gpus),
      gpu_cost_(classes_),
      costs_(stages_),
      lengths_(std::size_t{stages_} * pieces_),
      stage_costs_(pieces_) {
  const auto& p = floors.problem();
  TROUPE_INVARIANT(p.grain == 1, "a bound is for all cuts");
  for (const auto& pool : p.pools)
    for (const auto free : pool.free) node_[pool.kind] = std::max(node_[pool.kind], free);
  for (const auto& c : p.classes) smallest_[c.kind] = std::min(smallest_[c.kind], c.tensor);
  // Where it makes no difference whether a hop leaves a node, none is inside.
  bool any = false;
  for (std::size_t r = 0; r < p.rows.size(); ++r) {
    const auto& h = floors.hops_of_rows(r);
    for (const auto* side : {&h.in_front, &h.behind})
      any = any ||
            std::ranges::any_of(*side, [](const auto& x) { return x != space_times::hop_floor{}; });
    any = any || !floors.sums_of_rows(r).empty();
  }
  may_join_ = any;
  no_hops_.in_front.resize(classes_);
  no_hops_.behind.resize(classes_);
  std::uint32_t slots = 0;
  for (const auto n : node_) {
    slots_.push_back(slots);
    slots += may_join_ ? n - 1 : 0;
  }
  slots_.push_back(slots);
  values_.resize(std::size_t{1 + 2 * slots} * stages_ * (pieces_ + 1));
}

double joined_paths::step_s(const joined_stage& s) const {
  const auto& f = all_[floors_->place_of(s.at.behind, s.at.first, s.at.count) + s.cls];
  return f.step_s + (s.in_front == hop::leaves ? hops_->in_front[s.cls].step_s : 0) +
         (s.after == hop::leaves ? hops_->behind[s.cls].step_s : 0);
}

double joined_paths::way_s(const joined_stage& s) const {
  const auto& f = all_[floors_->place_of(s.at.behind, s.at.first, s.at.count) + s.cls];
  return f.way_s + (s.in_front == hop::leaves ? hops_->in_front[s.cls].way_s : 0) +
         (s.after == hop::leaves ? hops_->behind[s.cls].way_s : 0);
}

double joined_paths::part_of_sums(std::uint32_t cls, std::uint32_t inside) const {
  // Each hop inside the node is to a stage that is no peer and has a GPU at least.
  const auto& c = floors_->problem().classes[cls];
  const auto others = c.tensor + inside;
  const auto smallest = floors_->problem().space.several_kinds ? smallest_[c.kind] : c.tensor;
  const double here = 1.0 + (node_[c.kind] > others ? (node_[c.kind] - others) / smallest : 0);
  return 2 * std::max(0.0, 1 - here / q_.pipelines);
}

double joined_paths::sums_s(const joined_stage& s) const {
  if (!counts_sums() || (!s.summed && !q_.of_last_node)) return 0;
  const auto& sum = (*sums_)[floors_->place_of(0, s.at.first, s.at.count) + s.cls];
  const auto inside = (s.in_front == hop::inside ? 1U : 0U) + (s.after == hop::inside ? 1U : 0U);
  const double over_card_s = s.summed ? part_of_sums(s.cls, inside) * sum.card_s : 0;
  if (q_.of_last_node) return over_card_s - (s.at.behind > 0 ? way_s(s) - sum.forward_s : 0);
  return over_card_s - (s.after == hop::inside ? sum.hidden_s : 0) +
         (s.at.first == 0 && over_card_s > 0 ? sum.update_s : 0);
}

double joined_paths::cost_of(const joined_stage& s) const {
  if (gpu_cost_[s.cls] == never || step_s(s) > q_.limit_s) return never;
  if (q_.within_tails && tails_[floors_->place_of(0, s.at.first, s.at.count) + s.cls] > max_tail_s_)
    return never;
  return way_s(s) + gpu_cost_[s.cls] + sums_s(s);
}

void joined_paths::run(const question& q, const std::vector<double>& prices) {
  q_ = q;
  all_ = floors_->of_rows(q.rows_index).data();
  joins_ = may_join_ && q.joined;
  hops_ = joins_ ? &floors_->hops_of_rows(q.rows_index) : &no_hops_;
  sums_ = &floors_->sums_of_rows(q.rows_index);
  if (sums_->empty() || !joins_) q_.pipelines = 0;
  const auto& twins = floors_->twins(q.rows_index);
  for (std::uint32_t c = 0; c < classes_; ++c) {
    const auto& k = floors_->problem().classes[c];
    gpu_cost_[c] = q.worth_s * prices[k.kind] * k.tensor;
  }
  set_lengths();
  const auto states = 1 + (joins_ ? slots_.back() * (counts_sums() ? 2 : 1) : 0);
  std::fill_n(values_.begin(), std::size_t{states} * stages_ * (pieces_ + 1), never);
  std::ranges::fill(costs_, never);
  for (std::uint32_t first = 0; first < pieces_; ++first) fill_last(first);
  for (std::uint32_t behind = 1; behind < stages_; ++behind)
    for (std::uint32_t first = 0; first + behind < pieces_; ++first) {
      const auto twin = twins[behind * pieces_ + first];
      if (twin == first) set_costs(behind, first);
      // Stages within the limit have all pieces from the first one on, and all in front of it.
      if (pieces_ - first > (behind + 1) * longest_) continue;
      if (first > (stages_ - 1 - behind) * longest_) break;
      if (first > 0)
        fill(behind, first, stage_costs_[twin]);
      else
        costs_[behind] = whole_cost(behind);
    }
  // A step is a sum and a comparison: less than a unit. With nodes twice as long, as measured.
  const std::uint64_t each = joins_ ? 2 : 1;
  units_ += steps_ * each / 3 + 1;
  steps_ = steps_ * each % 3 / each;
}

void joined_paths::set_lengths() {
  const auto& shortest = floors_->shortest_steps(q_.rows_index);
  longest_ = 0;
  for (std::uint32_t first = 0; first < pieces_; ++first)
    if (shortest[floors_->place_of(0, first, pieces_ - first) / classes_] <= q_.limit_s) {
      longest_ = pieces_ - first;
      break;
    }
  for (std::uint32_t behind = 1; behind < stages_; ++behind)
    for (std::uint32_t first = 0; first + behind < pieces_; ++first) {
      const auto max_count = pieces_ - first - behind;
      const auto* at = &shortest[floors_->place_of(behind, first, 0) / classes_];
      const auto* end = std::upper_bound(at + 1, at + 1 + max_count, q_.limit_s);
      const auto length = static_cast<std::uint32_t>(end - at - 1);
      lengths_[behind * pieces_ + first] = length;
      longest_ = std::max(longest_, length);
    }
  steps_ += lengths_.size() * 3;
}

void joined_paths::set_tails(const std::vector<double>& tails, double max_tail_s) {
  tails_ = tails.data();
  max_tail_s_ = max_tail_s;
  kept_.assign(pieces_, 0);
  ends_.assign(pieces_, 0);
  for (std::uint32_t first = 0; first < pieces_; ++first) {
    bool all_before = true;
    for (std::uint32_t count = 1; first + count <= pieces_; ++count) {
      const auto* tail = tails_ + floors_->place_of(0, first, count);
      const auto kept =
          std::count_if(tail, tail + classes_, [&](double s) { return s <= max_tail_s; });
      all_before = all_before && kept == classes_;
      if (all_before) kept_[first] = count;
      if (kept > 0) ends_[first] = count;
    }
  }
  steps_ += std::size_t{pieces_} * pieces_ * classes_ / 2;
}

/// Without tails and sums, which differ between twins.
/// Where the last node's sums count, of the way only what comes before these.
void joined_paths::set_costs(std::uint32_t behind, std::uint32_t first) {
  auto& out = stage_costs_[first];
  const auto length = lengths_[behind * pieces_ + first];
  const auto& p = floors_->problem();
  out.apart_apart.assign(length, never);
  out.apart_joined.resize(classes_);
  out.joined_joined.resize(classes_);
  out.joined_apart.resize(joins_ ? slots_.back() : 0);
  for (auto& v : out.joined_apart) v.assign(length, never);
  for (std::uint32_t c = 0; c < classes_; ++c) {
    const auto& k = p.classes[c];
    auto a = hops_->in_front[c], b = hops_->behind[c];
    if (last_node_counts())
      a.way_s = a.way_s < never ? 0 : never, b.way_s = b.way_s < never ? 0 : never;
    const bool joins = joins_ && k.tensor < node_[k.kind];
    if (joins) out.apart_joined[c].assign(length, never);
    if (joins) out.joined_joined[c].assign(length, never);
    const auto* f = all_ + floors_->place_of(behind, first, 1) + c;
    const auto* sum =
        last_node_counts() ? sums_->data() + floors_->place_of(0, first, 1) + c : nullptr;
    for (std::uint32_t i = 0; i < length; ++i, f += classes_, sum += sum ? classes_ : 0) {
      if (!(f->step_s <= q_.limit_s)) continue;
      const double s = (last_node_counts() ? sum->forward_s : f->way_s) + gpu_cost_[c];
      if (f->step_s + a.step_s + b.step_s <= q_.limit_s)
        out.apart_apart[i] = std::min(out.apart_apart[i], s + a.way_s + b.way_s);
      if (!joins) continue;
      out.joined_joined[c][i] = s;
      if (f->step_s + b.step_s <= q_.limit_s) out.apart_joined[c][i] = s + b.way_s;
      if (f->step_s + a.step_s > q_.limit_s) continue;
      auto& last = out.joined_apart[slots_[k.kind] + k.tensor - 1][i];
      last = std::min(last, s + a.way_s);
    }
  }
  // Where more GPUs are free, all stages that need fewer fit as well.
  for (std::uint32_t k = 0; joins_ && k < node_.size(); ++k)
    for (std::uint32_t free = 2; free < node_[k]; ++free) {
      const auto& fewer = out.joined_apart[slots_[k] + free - 2];
      auto& more = out.joined_apart[slots_[k] + free - 1];
      for (std::uint32_t i = 0; i < length; ++i) more[i] = std::min(more[i], fewer[i]);
    }
  steps_ += std::size_t{length} * (joins_ ? 5 * classes_ + 2 * slots_.back() : classes_);
}

void joined_paths::fill_last(std::uint32_t first) {
  const place at{0, first, pieces_ - first};
  if (at.count > longest_) return;
  if (first == 0) {
    costs_[0] = cheapest(at, apart, true).cost;
    return;
  }
  values(apart, 0)[first] = cheapest(at, apart, false).cost;
  for (std::uint32_t c = 0; joins_ && c < classes_; ++c) {
    const auto& k = floors_->problem().classes[c];
    if (k.tensor >= node_[k.kind]) continue;
    for (const bool summed : {false, true}) {
      if (summed ? !counts_sums() : last_node_counts()) continue;
      const joined_stage s{at, c, hop::inside, hop::none, summed};
      auto& value = values(room_of(k.kind, k.tensor, summed), 0)[first];
      value = std::min(value, cost_of(s));
    }
  }
  steps_ += (joins_ ? 12 : 4) * classes_;
}

void joined_paths::lower(double& value, const std::vector<double>& costs, std::size_t from,
                         place at) {
  const auto n = std::min<std::size_t>(at.count, costs.size());
  value = std::min(value, min_sum(costs.data(), values(from, at.behind - 1) + at.first + 1, n));
  steps_ += n + 4;
}

void joined_paths::fill(std::uint32_t behind, std::uint32_t first, const stage_costs& costs) {
  const auto length = lengths_[behind * pieces_ + first];
  const auto fast = q_.within_tails ? std::min(length, kept_[first]) : length;
  const place at{behind, first, fast};
  auto& value = values(apart, behind)[first];
  lower(value, costs.apart_apart, apart, at);
  const auto& p = floors_->problem();
  for (std::uint32_t k = 0; joins_ && k < node_.size(); ++k)
    for (std::uint32_t used = 1; used < node_[k]; ++used)
      lower(value, costs.joined_apart[slots_[k] + node_[k] - used - 1], room_of(k, used, false),
            at);
  for (std::uint32_t c = 0; joins_ && c < classes_; ++c) {
    const auto& k = p.classes[c];
    if (k.tensor >= node_[k.kind]) continue;
    lower(values(room_of(k.kind, k.tensor, false), behind)[first], costs.apart_joined[c], apart,
          at);
    for (std::uint32_t used = 1; used + k.tensor < node_[k.kind]; ++used)
      lower(values(room_of(k.kind, used + k.tensor, false), behind)[first], costs.joined_joined[c],
            room_of(k.kind, used, false), at);
  }
  if (last_node_counts())
    for (std::uint32_t k = 0; k < node_.size(); ++k)
      for (std::uint32_t used = 1; used < node_[k]; ++used)
        close_last_node(value, k, used, at, costs);
  if (counts_sums()) fill_summed(at, costs);
  // The rest keeps the tails with some classes.
  const auto end = q_.within_tails ? std::min(length, ends_[first]) : length;
  const auto states = 1 + (joins_ ? slots_.back() * (counts_sums() ? 2 : 1) : 0);
  for (auto count = fast + 1; count <= end; ++count)
    for (std::size_t state = 0; state < states; ++state) {
      auto& v = values(state, behind)[first];
      v = std::min(v, cheapest({behind, first, count}, state, false).cost);
    }
}

/// The last node's stages end with one that leaves it to the one in front.
void joined_paths::close_last_node(double& value, std::uint32_t kind, std::uint32_t used, place at,
                                   const stage_costs& costs) {
  const auto room = room_of(kind, used, true);
  // There are more pieces behind than these stages may have.
  if (pieces_ - at.first > (used + 1) * longest_) return;
  for (std::uint32_t c = 0; c < classes_; ++c) {
    const auto& k = floors_->problem().classes[c];
    if (k.kind != kind || used + k.tensor > node_[kind]) continue;
    const auto& alone = costs.joined_apart[slots_[kind] + k.tensor - 1];
    const double part = part_of_sums(c, 1);
    const auto n = std::min<std::size_t>(at.count, alone.size());
    with_sums_[0].assign(n, never);
    const auto* sum = sums_->data() + floors_->place_of(0, at.first, 1) + c;
    for (std::size_t i = 0; i < n; ++i, sum += classes_)
      with_sums_[0][i] = alone[i] + part * sum->card_s;
    steps_ += n;
    lower(value, with_sums_[0], room, at);
  }
}

void joined_paths::fill_summed(place at, const stage_costs& costs) {
  const auto& p = floors_->problem();
  for (std::uint32_t c = 0; joins_ && c < classes_; ++c) {
    const auto& k = p.classes[c];
    const auto node = node_[k.kind];
    // The stages in front of it fit into the node.
    if (k.tensor >= node) continue;
    const bool last = q_.of_last_node;
    if (last ? pieces_ - at.first > node * longest_ : at.first > (node - k.tensor) * longest_)
      continue;
    const auto n = std::min<std::size_t>(at.count, costs.apart_joined[c].size());
    const double one = part_of_sums(c, 1), two = part_of_sums(c, 2);
    with_sums_[0].assign(n, never);
    with_sums_[1].assign(n, never);
    const auto* sum = sums_->data() + floors_->place_of(0, at.first, 1) + c;
    for (std::size_t i = 0; i < n; ++i, sum += classes_) {
      with_sums_[0][i] = costs.apart_joined[c][i] + one * sum->card_s;
      with_sums_[1][i] = costs.joined_joined[c][i] + two * sum->card_s - (last ? 0 : sum->hidden_s);
    }
    steps_ += 2 * n;
    if (!last)
      lower(values(room_of(k.kind, k.tensor, true), at.behind)[at.first], with_sums_[0], apart, at);
    for (std::uint32_t used = 1; used + k.tensor < node; ++used)
      if (last || at.first <= (node - used - k.tensor) * longest_)
        lower(values(room_of(k.kind, used + k.tensor, true), at.behind)[at.first], with_sums_[1],
              room_of(k.kind, used, true), at);
  }
}

/// As cheapest(), for any number of pieces of the first stage.
double joined_paths::whole_cost(std::uint32_t behind) {
  const auto length = lengths_[behind * pieces_];
  double best = never;
  for (std::uint32_t c = 0; c < classes_; ++c) {
    const double alone = first_node_counts() ? part_of_sums(c, 0) : 0,
                 beside = counts_sums() ? part_of_sums(c, 1) : 0;
    for (std::uint32_t count = 1; count <= length; ++count) {
      const auto& f = all_[floors_->place_of(behind, 0, count) + c];
      if (f.step_s > q_.limit_s) continue;
      const auto sum_at = floors_->place_of(0, 0, count) + c;
      if (q_.within_tails && tails_[sum_at] > max_tail_s_) continue;
      const auto sum = counts_sums() ? (*sums_)[sum_at] : space_times::node_sum{};
      const double s = (last_node_counts() ? sum.forward_s : f.way_s) + gpu_cost_[c];
      const auto& next = hops_->behind[c];
      const double hop_s = last_node_counts() && next.way_s < never ? 0 : next.way_s;
      const double update_s = first_node_counts() && sum.card_s > 0 ? sum.update_s : 0;
      if (f.step_s + next.step_s <= q_.limit_s)
        best = std::min(best, s + hop_s + alone * sum.card_s + (alone > 0 ? update_s : 0) +
                                  values(apart, behind - 1)[count]);
      if (!joins_) continue;
      const double with_sums = beside * sum.card_s + (beside > 0 ? update_s : 0) -
                               (first_node_counts() ? sum.hidden_s : 0);
      best = std::min(best, s + with_sums + beside_room(c, behind - 1, count, counts_sums()));
      if (last_node_counts()) best = std::min(best, s + beside_room(c, behind - 1, count, false));
    }
  }
  steps_ += std::size_t{length} * classes_ * (joins_ ? 5 : 2);
  return best;
}

double joined_paths::beside_room(std::uint32_t cls, std::uint32_t behind, std::uint32_t first,
                                 bool summed) const {
  const auto& k = floors_->problem().classes[cls];
  double best = never;
  for (std::uint32_t used = 1; used + k.tensor <= node_[k.kind]; ++used)
    best = std::min(best, values(room_of(k.kind, used, summed), behind)[first]);
  return best;
}

void joined_paths::better_of(step_back& best, const joined_stage& s, std::size_t from) const {
  double cost = cost_of(s);
  if (s.at.behind > 0) cost += values(from, s.at.behind - 1)[s.at.first + s.at.count];
  if (cost < best.cost) best = {cost, s.at.count, s.cls, from, s.summed};
}

// A stage is on the node whose sums count if it is in a room of it, or the first one, or, where the
// last node's do, the last one; or if it is the front one of the last node's stages.
joined_paths::step_back joined_paths::cheapest(place at, std::size_t state, bool whole) const {
  step_back best;
  const auto begin = at.count > 0 ? at.count : 1;
  const auto end = at.count > 0 ? at.count : lengths_[at.behind * pieces_ + at.first];
  const bool closes = state == apart, in_summed = state > slots_.back();
  for (at.count = begin; at.count <= end; ++at.count)
    for (std::uint32_t c = 0; c < classes_; ++c) {
      joined_stage s{at, c, hop::leaves, hop::none, in_summed};
      if (whole) s.in_front = hop::none, s.summed = first_node_counts();
      if (!closes) s.in_front = hop::inside;
      if (at.behind == 0) {
        s.summed = s.summed || last_node_counts();
        if (s.summed != in_summed && !closes) continue;
        if (takes(c, 0, state)) better_of(best, s, apart);
        continue;
      }
      s.after = hop::leaves;
      if (takes(c, 0, state) && !(last_node_counts() && in_summed)) better_of(best, s, apart);
      s.after = hop::inside;
      add_joined(best, s, state);
      if (!last_node_counts() || !closes) continue;
      s.summed = true;
      add_joined(best, s, state);
    }
  return best;
}

bool joined_paths::takes(std::uint32_t cls, std::uint32_t used, std::size_t state) const {
  const auto& k = floors_->problem().classes[cls];
  const auto all = used + k.tensor;
  if (state == apart) return all <= node_[k.kind];
  return all < node_[k.kind] && room_of(k.kind, all, state > slots_.back()) == state;
}

void joined_paths::add_joined(step_back& best, const joined_stage& s, std::size_t state) const {
  const auto& k = floors_->problem().classes[s.cls];
  for (std::uint32_t used = 1; joins_ && used + k.tensor <= node_[k.kind]; ++used)
    if (takes(s.cls, used, state)) better_of(best, s, room_of(k.kind, used, s.summed));
}

double joined_paths::min_cost() const {
  return *std::ranges::min_element(costs_);
}

void joined_paths::set_sums(joined_line& out, std::vector<joined_stage> stages) {
  const bool last = q_.of_last_node;
  q_.of_last_node = false;
  for (auto& s : stages) {
    s.summed = true;
    out.first_sums_s += sums_s(s);
    if (s.after != hop::inside) break;
  }
  q_.of_last_node = true;
  bool on_node = true;
  for (auto i = stages.size(); i-- > 0;) {
    auto& s = stages[i];
    on_node = on_node && s.after != hop::leaves;
    s.summed = on_node;
    out.last_sums_s += sums_s(s);
  }
  q_.of_last_node = last;
}

joined_line joined_paths::line(std::uint32_t stages) {
  joined_line out;
  std::vector<joined_stage> all;
  out.cost = cost(stages);
  std::size_t state = apart;
  hop in_front = hop::none;
  std::uint32_t first = 0;
  for (auto behind = stages; behind-- > 0;) {
    const place at{behind, first, behind == 0 ? pieces_ - first : 0};
    const auto k = cheapest(at, state, first == 0);
    joined_stage s{{behind, first, k.count}, k.cls, in_front, hop::none, k.summed};
    if (behind > 0) s.after = k.from == apart ? hop::leaves : hop::inside;
    out.firsts.push_back(first);
    out.classes.push_back(k.cls);
    out.way_s += way_s(s);
    out.step_s = std::max(out.step_s, step_s(s));
    all.push_back(s);
    first += k.count;
    state = k.from;
    in_front = s.after;
  }
  if (counts_sums()) set_sums(out, std::move(all));
  return out;
}

}  // namespace troupe::planners
