// Gandiva (Xiao et al., OSDI 2018) as Crius' evaluation has it (docs/planners/baselines.md): the
// user's own count on whatever type has room, growing on idle GPUs and shrinking when others wait.
// Growing and shrinking is the paper's "grow-shrink"; its time slicing and packing of several jobs
// on a GPU are not here, since a restart costs more than a slice.

#include <algorithm>

#include <fmt/format.h>

#include "messages/domain/work_kind.hpp"
#include "planners/baselines/data_parallel_options.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/plans/places.hpp"
#include "planners/policy/policy.hpp"

namespace troupe::planners {
namespace {

/// One decision. Gandiva ignores GPU types: a pool is as good as any other that has room.
class gandiva_round {
 public:
  gandiva_round(const snapshot& s, random_source& random)
      : s_{s}, random_{random}, pools_{pools_of(s.cluster, s.idle)}, free_{s.cluster, s.idle} {}

  std::vector<decision> decide() && {
    bool all = true;
    for (const auto* j : all_in_order(s_.waiting)) {
      if (gives_up(*j, out_)) continue;
      if (!start(*j) && !shrink_for(*j)) all = false;
    }
    if (all) grow();
    return std::move(out_);
  }

 private:
  /// On a pool with room, each as likely as the others.
  bool start(const job_view& j) {
    std::vector<std::pair<const plan*, allocation>> rooms;
    const auto wanted = requested(j);
    for (const auto& o : options_on(pools_, j)) {
      if (o.how->gpus() != wanted || o.how->bytes_per_gpu <= j.history.bytes_floor) continue;
      const auto& pool = pools_[o.pool];
      auto where = j.facts().exact_gpus ? find_for_program(free_, pool, wanted, *j.spec)
                                        : free_.find(pool, wanted, {});
      if (!where.empty()) rooms.emplace_back(o.how, std::move(where));
    }
    if (rooms.empty()) return false;
    auto& [how, where] = rooms[random_.below(rooms.size())];
    free_.take(where);
    out_.push_back(start_job(j.id, *how, std::move(where)));
    return true;
  }

  /// Jobs that have grown give back what they did not ask for, the latest first, if that is enough.
  bool shrink_for(const job_view& j) {
    const auto before = free_;
    const auto decided = out_.size();
    std::vector<const job_view*> grown;
    for (const auto& [id, r] : s_.running)
      if (may_be_moved(r) && total_gpus(r.where) > requested(r) && !is_changed(id))
        grown.push_back(&r);
    std::ranges::reverse(grown);
    for (const auto* r : grown) {
      if (!resize(*r, requested(*r))) continue;
      if (start(j)) return true;
    }
    free_ = before;
    out_.resize(decided);
    return false;
  }

  void grow() {
    for (const auto& [id, r] : s_.running)
      if (may_be_moved(r) && total_gpus(r.where) == requested(r) && !is_changed(id))
        resize(r, 2 * requested(r));
  }

  /// On its own pool.
  bool resize(const job_view& r, std::uint32_t gpus) {
    const auto pool = pool_of(pools_, r.where);
    for (const auto& o : options_on(pools_, r)) {
      if (o.pool != pool || o.how->gpus() != gpus) continue;
      const auto before = free_;
      free_.give_back(r.where);
      auto where = free_.find(pools_[pool], gpus, {});
      if (where.empty()) {
        free_ = before;
        return false;
      }
      free_.take(where);
      out_.push_back({decision::kind::move, r.id, *o.how, std::move(where), {}});
      return true;
    }
    return false;
  }

  bool is_changed(job_id id) const {
    return std::ranges::find(out_, id, &decision::job) != out_.end();
  }

  const snapshot& s_;
  random_source& random_;
  std::vector<decision> out_;
  std::vector<gpu_pool> pools_;
  free_gpus free_;
};

class gandiva final : public data_parallel_policy {
 public:
  std::string_view name() const override { return "gandiva"; }

  std::vector<decision> decide(const snapshot& s, random_source& random) const override {
    return gandiva_round{s, random}.decide();
  }

 private:
  std::vector<std::uint32_t> counts_for(const job_spec& job) const override {
    return {job.gpus, 2 * job.gpus};
  }
  reason why_behind(const snapshot& s, const job_view& j) const override {
    return {reason::kind::insufficient, why_no_room(s, j)};
  }

  static std::string why_no_room(const snapshot& s, const job_view& j) {
    const auto pools = pools_of(s.cluster, s.idle);
    const free_gpus free{s.cluster, s.idle};
    const auto wanted = requested(j);
    std::uint32_t max = 0;  // in any pool that it could start on
    bool room = false;
    for (const auto& o : options_on(pools, j)) {
      if (o.how->gpus() != wanted || o.how->bytes_per_gpu <= j.history.bytes_floor) continue;
      std::uint32_t idle = 0;
      for (const auto n : pools[o.pool].nodes) idle += free.of(n);
      max = std::max(max, idle);
      room = room || !free.find(pools[o.pool], wanted, {}).empty();
    }
    return fmt::format("requests {} GPUs of one type; {} are idle{}", wanted, max,
                       max >= wanted && !room ? ", but of too many nodes" : "");
  }
};

}  // namespace

std::unique_ptr<policy> make_gandiva() {
  return std::make_unique<gandiva>();
}

}  // namespace troupe::planners
