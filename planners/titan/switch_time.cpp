#include "planners/titan/switch_time.hpp"

#include <algorithm>
#include <functional>

#include "planners/model/model_chain.hpp"

namespace troupe::planners {

switch_bytes bytes_to_switch(const model& m, const plan& how) {
  constexpr double weight = 4, state = 12;
  const double parameters = shape_of(m).parameters;
  const double parts = double{1} * how.tensor_parallel * how.pipeline_parallel;
  return {weight * parameters, state * parameters, weight * parameters / parts,
          state * parameters / parts};
}

double naive_switch_s(const switch_bytes& before, const switch_bytes& next,
                      const switch_rates& rates) {
  return rates.setup_s + (before.store + next.load) / rates.disk_bytes_s +
         (before.store_per_gpu + next.load_per_gpu) / rates.copy_bytes_s;
}

double pipelined_switch_s(const switch_bytes& before, const switch_bytes& next,
                          const switch_rates& rates, bool room) {
  const double out_s = before.store_per_gpu / rates.copy_bytes_s;
  const double in_s = next.load_per_gpu / rates.copy_bytes_s;
  return room ? std::max(out_s, in_s) : out_s + in_s;
}

double followed_end_s(std::span<const switch_stage> stages, double forward_s, double alone_s) {
  double begin_s = 0;  // of a pipeline on idle devices that ends at the same time
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const double ready_s = stages[i].free_s + stages[i].copy_s;
    begin_s = std::max(begin_s, ready_s - static_cast<double>(i) * forward_s);
  }
  return begin_s + alone_s;
}

allocation in_switch_order(const allocation& before, const allocation& next) {
  auto out = next;
  const auto place = [&](const node_share& share) {
    const auto at = std::ranges::find(before, share.node, &node_share::node);
    return at == before.end() ? before.begin() - before.end() - 1 : at - before.begin();
  };
  std::ranges::stable_sort(out, std::greater{}, place);
  return out;
}

}  // namespace troupe::planners
