#include "studies/paired_windows.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "messages/base/random.hpp"
#include "messages/base/statistics.hpp"

namespace troupe::studies {

namespace {

/// Sums over the iterations that lie completely in one window, or in all windows of a kind.
struct window_sums {
  bool prompts = false;
  std::size_t iterations = 0;
  double time_s = 0, busy_s = 0, guests_s = 0;

  void add(const window_sums& w) {
    iterations += w.iterations;
    time_s += w.time_s, busy_s += w.busy_s, guests_s += w.guests_s;
  }
  double mean_s() const { return time_s / static_cast<double>(iterations); }
};

bool lies_in(const iteration_record& i, const offer_window& w) {
  return i.begin_s >= w.begin_s && i.end_s <= w.end_s;
}

/// By window; windows without an iteration are left out.
std::vector<window_sums> sums_of(const training_report& r,
                                 const std::vector<offer_window>& windows) {
  std::vector<window_sums> all;
  for (const auto& w : windows) {
    window_sums sums;
    sums.prompts = w.prompts;
    for (const auto& i : r.iterations)
      if (lies_in(i, w)) sums.add({false, 1, i.end_s - i.begin_s, i.busy_s, i.guest_s.value_or(0)});
    if (sums.iterations > 0) all.push_back(sums);
  }
  return all;
}

/// The 95 % confidence interval of the median, by the bootstrap: medians of samples that are drawn
/// with replacement. The seed is fixed, so that a report can be repeated.
std::pair<double, double> interval_of(const std::vector<double>& ratios) {
  constexpr std::size_t samples = 2000;
  random_source random{1};
  std::vector<double> medians;
  for (std::size_t s = 0; s < samples; ++s) {
    std::vector<double> drawn;
    for (std::size_t i = 0; i < ratios.size(); ++i)
      drawn.push_back(ratios[random.below(ratios.size())]);
    medians.push_back(statistics::median(std::move(drawn)));
  }
  return {statistics::quantile(medians, 0.025), statistics::quantile(medians, 0.975)};
}

}  // namespace

std::vector<double> iteration_lengths(const training_report& r,
                                      const std::vector<offer_window>& windows, bool prompts) {
  std::vector<double> all;
  for (const auto& i : r.iterations)
    if (std::ranges::any_of(
            windows, [&](const offer_window& w) { return w.prompts == prompts && lies_in(i, w); }))
      all.push_back(i.end_s - i.begin_s);
  return all;
}

// Pairs are adjacent, since a machine's other load changes slowly: it cancels in the ratio of two
// windows that follow each other, not in a ratio of overall means.
std::optional<paired_windows> compare_windows(const training_report& r,
                                              const std::vector<offer_window>& windows) {
  const auto all = sums_of(r, windows);
  std::vector<double> against, alike;  // with over without; without over without
  const window_sums* without = nullptr;
  window_sums with_prompts, alone;
  for (std::size_t i = 0; i < all.size(); ++i) {
    (all[i].prompts ? with_prompts : alone).add(all[i]);
    if (all[i].prompts) continue;
    if (i > 0 && all[i - 1].prompts) against.push_back(all[i - 1].mean_s() / all[i].mean_s());
    if (without) alike.push_back(without->mean_s() / all[i].mean_s());
    without = &all[i];
  }
  if (against.size() < 2 || alike.empty()) return {};
  paired_windows p;
  p.windows = all.size();
  p.ratio_median = statistics::median(against);
  std::tie(p.ratio_low, p.ratio_high) = interval_of(against);
  std::tie(p.aa_low, p.aa_high) = interval_of(alike);
  const double devices = r.stages * r.pipelines;
  p.iterations_without = alone.iterations;
  p.iterations_with = with_prompts.iterations;
  p.iteration_s_without = alone.mean_s();
  p.iteration_s_with = with_prompts.mean_s();
  p.busy_without = alone.busy_s / (devices * alone.time_s);
  p.busy_with = with_prompts.busy_s / (devices * with_prompts.time_s);
  p.guests_with = with_prompts.guests_s / (devices * with_prompts.time_s);
  return p;
}

}  // namespace troupe::studies
