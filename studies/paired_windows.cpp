#include "studies/paired_windows.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "messages/base/random.hpp"
#include "messages/base/statistics.hpp"

namespace troupe::cli {

namespace {

using window_ratios = std::vector<double>;

struct timed_window {
  bool prompts = false;
  std::size_t iterations = 0;
  double time_s = 0, busy_s = 0, guests_s = 0;

  double mean_s() const { return time_s / static_cast<double>(iterations); }
};

std::vector<timed_window> timed(const training_report& r,
                                const std::vector<studies::offer_window>& windows) {
  std::vector<timed_window> all;
  for (const auto& w : windows) {
    timed_window t{w.prompts, 0, 0, 0, 0};
    for (const auto& i : r.iterations) {
      if (i.begin_s < w.begin_s || i.end_s > w.end_s) continue;
      ++t.iterations;
      t.time_s += i.end_s - i.begin_s;
      t.busy_s += i.busy_s;
      t.guests_s += i.guest_s.value_or(0);
    }
    if (t.iterations > 0) all.push_back(t);
  }
  return all;
}

/// Of the median, with 95 % confidence.
std::pair<double, double> interval_of(const window_ratios& all) {
  constexpr std::size_t samples = 2000;
  random_source random{1};
  window_ratios medians;
  for (std::size_t s = 0; s < samples; ++s) {
    window_ratios drawn;
    for (std::size_t i = 0; i < all.size(); ++i) drawn.push_back(all[random.below(all.size())]);
    medians.push_back(statistics::median(std::move(drawn)));
  }
  return {statistics::quantile(medians, 0.025), statistics::quantile(medians, 0.975)};
}

}  // namespace

std::optional<paired_windows> compare_windows(const training_report& r,
                                              const std::vector<studies::offer_window>& windows) {
  const auto all = timed(r, windows);
  window_ratios against, alike;
  const timed_window* without = nullptr;
  for (std::size_t i = 0; i < all.size(); ++i) {
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
  timed_window sums[2];
  for (const auto& w : all) {
    auto& s = sums[w.prompts ? 1 : 0];
    s.iterations += w.iterations;
    s.time_s += w.time_s;
    s.busy_s += w.busy_s;
    s.guests_s += w.guests_s;
  }
  const double devices = r.stages * r.pipelines;
  p.iterations_without = sums[0].iterations;
  p.iterations_with = sums[1].iterations;
  p.iteration_s_without = sums[0].mean_s();
  p.iteration_s_with = sums[1].mean_s();
  p.busy_without = sums[0].busy_s / (devices * sums[0].time_s);
  p.busy_with = sums[1].busy_s / (devices * sums[1].time_s);
  p.guests_with = sums[1].guests_s / (devices * sums[1].time_s);
  return p;
}

}  // namespace troupe::cli
