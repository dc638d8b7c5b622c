#include "planners/cluster/unions.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "messages/domain/work_kind.hpp"
#include "planners/model/model_chain.hpp"

namespace troupe::planners {
namespace {

// Adapters mix no data: each has its own weights, so that neither cards nor durations matter. A
// member that is done leaves the others.
bool mixes_data(const merge_job& j) {
  return j.kind == merge_kind::shared;
}

}  // namespace

double ratio_of(const merge_job& a, const merge_job& b) {
  return std::max(a.duration_s, b.duration_s) / std::min(a.duration_s, b.duration_s);
}

double similarity_of(std::span<const std::string> a, std::span<const std::string> b) {
  std::size_t both = 0;
  for (const auto& word : a) both += std::ranges::binary_search(b, word);
  const auto either = a.size() + b.size() - both;
  return either == 0 ? 0 : static_cast<double>(both) / static_cast<double>(either);
}

// A union of jobs ends at another time than any of them alone, so that one with a limit of time or
// price is not merged.
merge_job merge_job_of(std::uint64_t id, const job_spec& spec, std::string owner, bool alone) {
  merge_job j;
  j.id = id;
  j.allowed = spec.merging.allowed;
  j.can = facts_of(spec).mergeable && !spec.limits.deadline_s && !spec.limits.slo_s &&
          !spec.limits.budget && !spec.limits.time_limit_s;
  j.alone = alone;
  j.kind = spec.merging.kind.value_or(merge_kind::shared);
  j.alike = fmt::format("{} of {} parameters", spec.model.name, shape_of(spec.model).parameters);
  if (!spec.limits.required_gpu_type.empty()) j.alike += " on " + spec.limits.required_gpu_type;
  j.owner = std::move(owner);
  j.across_owners = spec.merging.across_owners.value_or(false);
  j.card = spec.merging.dataset_card;
  std::ranges::sort(j.card);
  const auto repeated = std::ranges::unique(j.card);
  j.card.erase(repeated.begin(), repeated.end());
  return j;
}

merge_obstacle must_run_apart(const merge_job& a, const merge_job& b) {
  using enum merge_obstacle;
  if (!a.allowed || !b.allowed) return opted_out;
  if (!a.can || !b.can) return cannot;
  if (a.alone || b.alone) return alone;
  if (a.kind != b.kind) return kind;
  if (a.alike != b.alike) return alike;
  return a.owner != b.owner && !(a.across_owners && b.across_owners) ? owner : none;
}

merge_obstacle obstacle_between(const merge_job& a, const merge_job& b, const merge_rules& rules) {
  using enum merge_obstacle;
  if (const auto apart = must_run_apart(a, b); apart != none || !mixes_data(a)) return apart;
  if (a.card.empty() || b.card.empty()) return no_card;
  if (similarity_of(a.card, b.card) < rules.similarity) return similarity;
  return ratio_of(a, b) > rules.duration_ratio ? duration : none;
}

std::string why_not_merged(const merge_job& a, const merge_job& b, const merge_rules& rules) {
  switch (obstacle_between(a, b, rules)) {
    case merge_obstacle::none:
      break;
    case merge_obstacle::opted_out:
      return fmt::format("job {} has merge: false", a.allowed ? b.id : a.id);
    case merge_obstacle::cannot:
      return fmt::format(
          "job {} is not simulated fine-tuning, or has a deadline_s, slo_s, budget or time_limit_s",
          a.can ? b.id : a.id);
    case merge_obstacle::alone:
      return fmt::format("job {} ran out of memory in a union", a.alone ? a.id : b.id);
    case merge_obstacle::kind:
      return fmt::format("kinds {} and {} differ", to_string(a.kind), to_string(b.kind));
    case merge_obstacle::alike:
      return fmt::format("'{}' and '{}' differ", a.alike, b.alike);
    case merge_obstacle::owner:
      return "they have different owners, who do not both set merge_across_owners";
    case merge_obstacle::no_card:
      return fmt::format("job {} has no dataset_card", a.card.empty() ? a.id : b.id);
    case merge_obstacle::similarity:
      return fmt::format("their cards have a similarity of {:.2f}, below {:.2f}",
                         similarity_of(a.card, b.card), rules.similarity);
    case merge_obstacle::duration:
      return fmt::format("their durations have a ratio of {:.1f}, above {:.1f}", ratio_of(a, b),
                         rules.duration_ratio);
  }
  return {};
}

}  // namespace troupe::planners
