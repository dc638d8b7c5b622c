#include "actors/training/trainer/worker_reports.hpp"

#include <algorithm>
#include <utility>

#include "actors/training/stage/named_values.hpp"

namespace troupe::actors {

void worker_reports::add(const stage_report& r) {
  if (!r.worker) return;
  auto& all = all_ ? *all_ : all_.emplace();
  if (!r.worker->engine.empty()) all.engine = r.worker->engine;
  all.worker_ready_s = std::max(all.worker_ready_s, r.worker->ready_s);
  if (all.peak_bytes.size() <= r.name.stage) all.peak_bytes.resize(r.name.stage + 1);
  auto& peak = all.peak_bytes[r.name.stage];
  peak = std::max(peak, r.worker->peak_bytes);
}

// Only last stages have values. All stages skip an update, or none: they see the same norm.
void worker_reports::add(iteration_record& record, const worker_report& w) {
  if (w.values.empty() && !w.skipped) return;
  auto& p = record.program ? *record.program : record.program.emplace();
  add_values(p.values, w.values);
  p.skipped = p.skipped || w.skipped;
}

void worker_reports::complete(const iteration_record& record) {
  if (all_ && record.program && record.program->skipped) ++all_->skipped_updates;
}

double worker_reports::peak_bytes() const {
  if (!all_ || all_->peak_bytes.empty()) return 0;
  return static_cast<double>(*std::ranges::max_element(all_->peak_bytes));
}

iteration_record with_few_values(iteration_record r) {
  constexpr std::size_t few = 16;
  if (r.program && r.program->values.size() > few) r.program->values.resize(few);
  return r;
}

}  // namespace troupe::actors
