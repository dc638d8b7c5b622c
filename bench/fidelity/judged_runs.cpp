#include "judged_runs.hpp"

namespace troupe::bench {

judgement judge(const std::vector<harness::published_run>& runs,
                const std::vector<gpu_type>& catalogue) {
  judgement j;
  for (const auto& r : runs) {
    const auto s = harness::predicted_s(r, catalogue);
    if (!s) {
      j.unsaid.push_back({r, s.error().text});
      continue;
    }
    (r.set == "ratio" ? j.of_ratios : j.runs).push_back({r, *s});
    if (r.peak_bytes > 0) j.peaks.push_back({r, harness::predicted_peak_bytes(r)});
  }
  return j;
}

namespace {

template <class Word>
grouped_runs grouped(const judgement& j, Word word) {
  grouped_runs out;
  for (const auto& x : j.runs) out[{x.run.source, word(x.run)}].push_back(&x);
  return out;
}

}  // namespace

grouped_runs by_source_and_set(const judgement& j) {
  return grouped(j, [](const auto& r) { return r.set; });
}
grouped_runs by_source_and_gpu(const judgement& j) {
  return grouped(j, [](const auto& r) { return r.gpu; });
}
grouped_runs by_source_and_kind(const judgement& j) {
  return grouped(j, [](const auto& r) { return harness::kind_name_of(r); });
}

std::vector<double> errors_of(const std::vector<const judged_run*>& runs) {
  std::vector<double> out;
  for (const auto* x : runs) out.push_back(x->error());
  return out;
}

double rank_correlation_of(const std::vector<const judged_run*>& runs) {
  std::vector<std::pair<double, double>> times;
  for (const auto* x : runs) times.emplace_back(x->run.iteration_s, x->predicted_s);
  return harness::rank_correlation(times);
}

}  // namespace troupe::bench
