#include "planners/schedule/schedule.hpp"

#include "messages/base/invariant.hpp"

namespace troupe::planners {

// A turn is the position among the transfers that wait for the same link, so it is counted per
// group of pipelines that share the link, hop and direction, in the order in which the schedule
// sends.
std::vector<std::vector<stage_step>> stage_orders(const pipeline_schedule& schedule) {
  const auto& shape = schedule.shape;
  const auto hops = std::size_t{shape.stages} * 2;
  const auto per_cell = schedule.shares_wan ? shape.pipelines_per_cell() : 1;
  // The positions of each micro-batch's forward and backward in their stage's order.
  std::vector<std::uint32_t> turn(schedule.tasks.size() * shape.microbatches * 2);
  std::vector<std::uint32_t> next((shape.pipelines / per_cell + 1) * hops);
  const auto place = [&](std::size_t stage, std::uint32_t m, bool back) {
    return (stage * shape.microbatches + m) * 2 + (back ? 1 : 0);
  };
  for (const auto& t : schedule.transfers) {
    const auto sender = std::size_t{t.pipeline} * shape.stages + t.stage + (t.backward ? 1 : 0);
    TROUPE_INVARIANT(sender < schedule.tasks.size() && t.microbatch < shape.microbatches,
                     "a transfer of a schedule is of one of its stages' micro-batches");
    turn[place(sender, t.microbatch, t.backward)] =
        next[t.pipeline / per_cell * hops + t.stage * 2 + (t.backward ? 1 : 0)]++;
  }
  std::vector<std::vector<stage_step>> result(schedule.tasks.size());
  for (std::size_t stage = 0; stage < result.size(); ++stage) {
    result[stage].reserve(schedule.tasks[stage].size());
    for (const auto& t : schedule.tasks[stage]) {
      const bool sends = t.what != stage_task::kind::recompute;
      const bool back = t.what == stage_task::kind::backward;
      result[stage].push_back(
          {t.what, t.microbatch, sends ? turn[place(stage, t.microbatch, back)] : 0});
    }
  }
  return result;
}

}  // namespace troupe::planners
