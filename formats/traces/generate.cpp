#include "formats/traces/generate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>

#include <fmt/format.h>

#include "messages/base/invariant.hpp"
#include "messages/base/random.hpp"

namespace troupe::formats {
namespace {

// Arrivals are uniform over the hours. Durations on the requested GPUs are log-normal, drawn again
// outside the paper's 5 minutes to 10 hours. With this median and sigma 60 % are below 30 minutes,
// where the paper has more than half, and at density 1 the mean JCT of SRTF is near the paper's
// 1.68 h (docs/results/titan.txt). Nothing else is fitted to the paper's results.
constexpr double median_s = 14 * 60, sigma = 1.5, min_s = 300, max_s = 36'000;
constexpr std::array<std::uint32_t, 4> gpu_counts{1, 2, 4, 8};
constexpr std::array<std::uint32_t, 4> gpu_weights{8, 5, 5, 2};
constexpr double opt_out_share = 0.1;

// A card has one word of each kind, as the paper's: task, object, domain.
constexpr std::array<const char*, 3> task_words{"classification", "detection", "segmentation"};
constexpr std::array<const char*, 4> object_words{"animals", "cars", "food", "plants"};
constexpr std::array<const char*, 3> domain_words{"medical", "satellite", "street"};

// Box and Muller's transform; one of the two numbers is used, so that each draw takes two.
double normal(random_source& r) {
  const double u = 1 - r.uniform();  // in (0, 1]
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * r.uniform());
}

double random_duration(random_source& r) {
  for (;;) {
    const double s = median_s * std::exp(sigma * normal(r));
    if (s >= min_s && s <= max_s) return s;
  }
}

std::uint32_t gpus(random_source& r) {
  std::uint32_t sum = 0;
  for (const auto w : gpu_weights) sum += w;
  auto at = r.below(sum);
  std::size_t i = 0;
  while (at >= gpu_weights[i]) at -= gpu_weights[i++];
  TROUPE_INVARIANT(i < gpu_counts.size(), "a draw falls on one of the weights");
  return gpu_counts[i];
}

template <std::size_t n>
std::string pick(const std::array<const char*, n>& words, random_source& r) {
  return words[r.below(n)];
}

}  // namespace

std::vector<trace_row> make_titan_trace(const titan_workload& w) {
  random_source r{w.seed};
  std::vector<trace_row> rows(static_cast<std::size_t>(std::llround(w.jobs * w.density)));
  for (auto& row : rows) {
    row.submit_s = std::round(w.hours * 3600 * r.uniform() * 10) / 10;
    row.duration_s = std::round(random_duration(r) * 10) / 10;
    row.gpus = gpus(r);
    row.model = "vit-large-16";
    row.dataset_card = {pick(task_words, r), pick(object_words, r), pick(domain_words, r)};
    row.merge = !r.chance(opt_out_share);
  }
  std::ranges::stable_sort(rows, {}, &trace_row::submit_s);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].job_id = fmt::format("tune-{}", i + 1);
  return rows;
}

}  // namespace troupe::formats
