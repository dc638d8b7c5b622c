#include "studies/merged_training.hpp"

#include <algorithm>

#include "messages/base/folds.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::studies {

namespace {

/// The name of a part that differs; null: there is none.
const char* difference(const job_spec& a, const job_spec& b) {
  auto one = a.pipeline, other = b.pipeline;
  one.microbatches = other.microbatches = 0;
  if (one != other) return "`pipeline` in more than `microbatches`";
  if (a.slots != b.slots) return "`slots`";
  if (a.model != b.model) return "`model`";
  return a.iterations != b.iterations ? "`iterations`" : nullptr;
}

}  // namespace

expected<job_spec> merge_adapters(const std::vector<job_spec>& trainings) {
  auto merged = trainings.front();
  for (const auto& t : trainings) {
    if (t.pipeline.microbatches == 0)
      return refuse(reason::kind::invalid,
                    "{} has no `pipeline.microbatches`: merged trainings need their number",
                    t.name);
    if (const auto* what = difference(merged, t))
      return refuse(reason::kind::invalid, "{} and {} cannot be merged: they differ in {}",
                    merged.name, t.name, what);
  }
  merged.pipeline.microbatches =
      sum_of(trainings, [](const job_spec& t) { return t.pipeline.microbatches; });
  if (merged.microbatches) merged.microbatches = merged.pipeline.microbatches;
  merged.global_batch = sum_of(trainings, &job_spec::global_batch);
  return merged;
}

}  // namespace troupe::studies
