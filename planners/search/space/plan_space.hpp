#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace troupe::planners {

/// The freedoms of a search for pipelines (docs/planners/plan_search.md, "Spaces"). Two plans can
/// be compared as answers to one question only if their spaces are the same.
struct plan_space {
  bool several_datacenters = true;  // pipelines of one plan in different datacenters
  bool tensor_by_stage = true;      // a tensor degree for each stage; else one for the plan
  bool searched_rows = true;        // samples of a micro-batch; else the first that the job has
  bool free_cut = true;             // any cut; else the evenest one
  bool several_kinds = true;        // pipelines whose stages have other classes
  bool own_shares = true;           // pipelines with other numbers of micro-batches
  bool mixed_pipelines = true;      // stages of one pipeline in different datacenters
  bool fine_cut = false;            // cuts piece by piece, and a last stage with the head alone
  std::string name = "full";

  bool operator==(const plan_space&) const = default;
};

/// All spaces that have a name (plan_spaces.def), the widest first.
std::span<const plan_space> plan_spaces();

/// `full`, which has all plans of the others.
inline const plan_space& widest_space() {
  return plan_spaces().front();
}

/// None: no space has this name.
std::optional<plan_space> space_named(std::string_view name);

}  // namespace troupe::planners
