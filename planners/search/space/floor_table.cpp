#include "planners/search/space/floor_table.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe::planners {

floor_table::floor_table(const space_problem& p, const space_times& times, const space_room& room)
    : problem_{&p},
      times_{&times},
      pieces_{p.pieces},
      classes_{p.classes.size()},
      floors_(p.rows.size()),
      limits_(p.rows.size()),
      shortest_(p.rows.size()),
      twins_(p.rows.size()),
      hops_(p.rows.size()),
      sums_(p.rows.size()),
      has_sums_(p.rows.size()) {
  for (std::uint32_t c = 0; c < classes_; ++c) {
    possible_.push_back(false);
    for (std::uint32_t d = 0; d < p.datacenters; ++d)
      possible_[c] = possible_[c] || room.has({c, d});
  }
}

const floor_table::places& floor_table::of_rows(std::size_t rows_index) {
  auto& out = floors_[rows_index];
  if (!out.empty()) return out;
  const auto n = problem_->pieces, stages = std::min(problem_->max_stages, n);
  constexpr double never = std::numeric_limits<double>::infinity();
  out.assign(place_of(stages, 0, 0), {never, never});
  for (std::uint32_t behind = 0; behind < stages; ++behind)
    for (std::uint32_t first = 0; first < n; ++first)
      for (std::uint32_t count = behind == 0 ? n - first : 1; first + count + behind <= n; ++count)
        for (std::uint32_t c = 0; c < classes_; ++c) {
          if (!possible_[c]) continue;
          out[place_of(behind, first, count) + c] =
              times_->floor_of(problem_->rows[rows_index], c, first, count, behind);
          units_ += 4;
        }
  fill_limits(rows_index);
  fill_shortest(rows_index);
  fill_twins(rows_index);
  return out;
}

const floor_table::hop_places& floor_table::hops_of_rows(std::size_t rows_index) {
  auto& out = hops_[rows_index];
  if (!out.behind.empty()) return out;
  for (std::uint32_t c = 0; c < classes_; ++c) {
    const auto rows = problem_->rows[rows_index];
    const auto& a = out.in_front.emplace_back(times_->leaving_floor(rows, c, false));
    const auto& b = out.behind.emplace_back(times_->leaving_floor(rows, c, true));
    out.longest_step_s = std::max(out.longest_step_s, a.step_s + b.step_s);
  }
  return out;
}

const floor_table::sum_places& floor_table::sums_of_rows(std::size_t rows_index) {
  auto& out = sums_[rows_index];
  if (has_sums_[rows_index]) return out;
  has_sums_[rows_index] = true;
  out.resize(place_of(1, 0, 0));
  bool any = false;
  for (std::uint32_t first = 0; first < pieces_; ++first)
    for (std::uint32_t count = 1; first + count <= pieces_; ++count)
      for (std::uint32_t c = 0; c < classes_; ++c) {
        if (!possible_[c]) continue;
        auto& sum = out[place_of(0, first, count) + c];
        sum = times_->node_sum_of(problem_->rows[rows_index], c, first, count);
        any = any || sum.card_s > 0;
        units_ += 4;
      }
  if (!any) out.clear();
  return out;
}

const std::vector<double>& floor_table::limits(std::size_t rows_index) {
  of_rows(rows_index);
  return limits_[rows_index];
}

void floor_table::fill_limits(std::size_t rows_index) {
  const auto& all = floors_[rows_index];
  constexpr double never = std::numeric_limits<double>::infinity();
  // The shortest step of a stage that has the piece, by piece.
  std::vector<double> shortest(pieces_, never);
  double longest = 0;
  const auto stages = std::min<std::size_t>(problem_->max_stages, pieces_);
  for (std::uint32_t behind = 0; behind < stages; ++behind)
    for (std::uint32_t first = 0; first < pieces_; first += problem_->grain)
      for (std::uint32_t count = 1; first + count <= pieces_; ++count)
        for (std::size_t c = 0; c < classes_; ++c) {
          if (count % problem_->grain != 0 && first + count < pieces_) continue;
          const auto& f = all[place_of(behind, first, count) + c];
          if (f.step_s == never || f.way_s == never) continue;
          longest = std::max(longest, f.step_s);
          for (auto i = first; i < first + count; ++i)
            shortest[i] = std::min(shortest[i], f.step_s);
        }
  const double low = *std::ranges::max_element(shortest);
  if (low == never) return;
  constexpr double step = 1.05;
  auto& out = limits_[rows_index];
  for (double b = low; b < longest && out.size() < 200; b *= step) out.push_back(b);
  out.push_back(std::max(longest, low));
}

void floor_table::fill_shortest(std::size_t rows_index) {
  const auto& all = floors_[rows_index];
  auto& out = shortest_[rows_index];
  out.assign(all.size() / classes_, std::numeric_limits<double>::infinity());
  for (std::size_t i = out.size(); i-- > 0;) {
    for (std::size_t c = 0; c < classes_; ++c)
      out[i] = std::min(out[i], all[i * classes_ + c].step_s);
    // The next place is of one piece more, but for the last of each first one.
    if (i % (pieces_ + 1) < pieces_) out[i] = std::min(out[i], out[i + 1]);
  }
}

void floor_table::fill_twins(std::size_t rows_index) {
  const auto& all = floors_[rows_index];
  const auto n = problem_->pieces, stages = std::min(problem_->max_stages, n);
  auto& out = twins_[rows_index];
  out.resize(std::size_t{stages} * n);
  std::vector<std::uint32_t> unlike;
  for (std::uint32_t behind = 0; behind < stages; ++behind) {
    unlike.clear();
    for (std::uint32_t first = 0; first + behind < n; first += problem_->grain) {
      // The last stage ends with the model: it has no twin.
      const auto counts = behind == 0 ? 0 : (n - first - behind) * classes_;
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(place_of(behind, first, 1));
      const auto twin = std::ranges::find_if(unlike, [&](std::uint32_t other) {
        const auto of = all.begin() + static_cast<std::ptrdiff_t>(place_of(behind, other, 1));
        return counts > 0 && std::equal(begin, begin + static_cast<std::ptrdiff_t>(counts), of);
      });
      out[behind * n + first] = twin == unlike.end() ? first : *twin;
      if (twin == unlike.end()) unlike.push_back(first);
      units_ += 1 + counts / 4;
    }
  }
}

space_times::stage_floor line_floor(floor_table& floors, std::size_t rows_index,
                                    const std::vector<std::uint32_t>& firsts,
                                    const std::vector<std::uint32_t>& classes) {
  const auto& all = floors.of_rows(rows_index);
  space_times::stage_floor line;
  const auto stages = static_cast<std::uint32_t>(firsts.size());
  for (std::uint32_t i = 0; i < stages; ++i) {
    const auto end = i + 1 < stages ? firsts[i + 1] : floors.problem().pieces;
    const auto& f = all[floors.place_of(stages - 1 - i, firsts[i], end - firsts[i]) + classes[i]];
    line.way_s += f.way_s;
    line.step_s = std::max(line.step_s, f.step_s);
  }
  return line;
}

namespace {

/// All ways to divide `left` equal parts among the kinds from `kind` on.
void divide_parts(std::size_t kind, std::uint32_t left, std::vector<std::uint32_t>& parts,
                  std::vector<std::vector<std::uint32_t>>& out) {
  if (kind + 1 == parts.size()) {
    parts[kind] = left;
    out.push_back(parts);
    return;
  }
  for (std::uint32_t n = 0; n <= left; ++n) {
    parts[kind] = n;
    divide_parts(kind + 1, left - n, parts, out);
  }
}

}  // namespace

std::vector<std::vector<double>> price_directions(const std::vector<std::uint32_t>& gpus,
                                                  double microbatches) {
  const auto kinds = gpus.size();
  // Two kinds: 8 directions, three: 21, four: 20.
  const std::uint32_t parts = kinds <= 1 ? 1 : kinds == 2 ? 7 : kinds == 3 ? 5 : kinds == 4 ? 3 : 2;
  std::vector<std::vector<std::uint32_t>> shares;
  std::vector<std::uint32_t> one(kinds);
  divide_parts(0, parts, one, shares);
  std::vector<std::vector<double>> out;
  for (const auto& s : shares) {
    auto& y = out.emplace_back(kinds, 0.0);
    for (std::size_t k = 0; k < kinds; ++k)
      if (gpus[k] > 0) y[k] = microbatches * s[k] / parts / gpus[k];
  }
  return out;
}

}  // namespace troupe::planners
