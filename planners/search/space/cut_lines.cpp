#include "planners/search/space/cut_lines.hpp"

#include <algorithm>
#include <limits>

namespace troupe::planners {

namespace {

/// The floors of a cut's stages, by stage and class.
struct stage_choices {
  std::vector<std::vector<space_times::stage_floor>> of_stage;
  std::vector<double> limits;  // steps that are some stage's, and no shorter than any line's
};

stage_choices choices_of(floor_table& floors, std::size_t rows_index,
                         const std::vector<std::uint32_t>& firsts, std::uint32_t tensor) {
  constexpr double never = std::numeric_limits<double>::infinity();
  const auto& p = floors.problem();
  const auto& all = floors.of_rows(rows_index);
  const auto stages = static_cast<std::uint32_t>(firsts.size());
  stage_choices out;
  double shortest = 0;
  for (std::uint32_t i = 0; i < stages; ++i) {
    const auto end = i + 1 < stages ? firsts[i + 1] : p.pieces;
    const auto place = floors.place_of(stages - 1 - i, firsts[i], end - firsts[i]);
    auto& here = out.of_stage.emplace_back();
    double fastest = never;
    for (std::size_t c = 0; c < p.classes.size(); ++c) {
      auto f = all[place + c];
      if (f.way_s == never || (tensor > 0 && p.classes[c].tensor != tensor)) f.step_s = never;
      if (f.step_s < never) out.limits.push_back(f.step_s);
      fastest = std::min(fastest, f.step_s);
      here.push_back(f);
    }
    shortest = std::max(shortest, fastest);
  }
  std::erase_if(out.limits, [&](double b) { return b < shortest; });
  std::ranges::sort(out.limits);
  out.limits.erase(std::ranges::unique(out.limits).begin(), out.limits.end());
  if (shortest == never) out.limits.clear();
  return out;
}

}  // namespace

std::vector<cut_line> lines_of_cut(floor_table& floors, std::size_t rows_index,
                                   const std::vector<std::uint32_t>& firsts,
                                   const std::vector<std::vector<double>>& prices,
                                   std::uint32_t tensor, std::uint64_t& units) {
  const auto& p = floors.problem();
  const auto choices = choices_of(floors, rows_index, firsts, tensor);
  std::vector<cut_line> out;
  cut_line line;
  line.classes.resize(firsts.size());
  std::vector<double> gpu_cost(p.classes.size());
  for (const auto& y : prices)
    for (const auto b : choices.limits) {
      for (std::size_t c = 0; c < p.classes.size(); ++c)
        gpu_cost[c] = b * y[p.classes[c].kind] * p.classes[c].tensor;
      line.way_s = line.step_s = 0;
      for (std::size_t i = 0; i < firsts.size(); ++i) {
        const auto& here = choices.of_stage[i];
        double cost = std::numeric_limits<double>::infinity();
        std::uint32_t chosen = 0;
        for (std::uint32_t c = 0; c < here.size(); ++c)
          if (here[c].step_s <= b && here[c].way_s + gpu_cost[c] < cost)
            cost = here[c].way_s + gpu_cost[c], chosen = c;
        line.classes[i] = chosen;
        line.way_s += here[chosen].way_s;
        line.step_s = std::max(line.step_s, here[chosen].step_s);
      }
      units += firsts.size() * p.classes.size() / 4 + 4;
      if (out.empty() || out.back().classes != line.classes) out.push_back(line);
    }
  std::ranges::sort(out, {}, &cut_line::classes);
  const auto same = std::ranges::unique(out, {}, &cut_line::classes);
  out.erase(same.begin(), same.end());
  return out;
}

}  // namespace troupe::planners
