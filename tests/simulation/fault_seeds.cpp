#include "simulation/fault_seeds.hpp"

#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "actors/ledger.hpp"
#include "actors/virtual_cluster.hpp"
#include "harness/small_cluster.hpp"

namespace troupe::simulation {

namespace {

using namespace troupe::actors;

constexpr double heal_s = 1500;  // from here on nothing goes wrong, so that everything can end

fault_plan faults_of(random_source& random) {
  fault_plan f;
  f.until_s = heal_s;
  f.loss = 0.1 * random.uniform();
  f.duplication = 0.1 * random.uniform();
  f.reordering = 0.2 * random.uniform();
  f.reorder_delay_s = 5 * random.uniform();
  f.node_crashes_per_hour = 6 * random.uniform();
  f.gateway_crashes_per_hour = 4 * random.uniform();
  f.controller_crashes_per_hour = 10 * random.uniform();
  f.mean_down_s = 1 + 20 * random.uniform();
  f.torn_append = 0.03 * random.uniform();
  for (auto n = random.below(3); n > 0; --n) {
    const double from = random.uniform() * 1200;
    f.partitions.push_back(
        {{"dc" + std::to_string(1 + random.below(3))}, {}, from, from + 60 * random.uniform()});
  }
  f.slow_nodes.push_back({"a-1", 1 + 3 * random.uniform(), 0, heal_s});
  return f;
}

std::vector<arrival> workload_of(random_source& random) {
  std::vector<arrival> result;
  for (int i = 0; i < 12; ++i) {
    auto spec =
        harness::small_job(fmt::format("job-{}", i), 50 + random.below(600), 1U << random.below(4));
    if (random.chance(0.3)) spec.model = harness::gpt2(24, 1024, 16);
    spec.gpus = static_cast<std::uint32_t>(1 + random.below(4));
    result.push_back({random.uniform() * 1200, std::move(spec)});
  }
  return result;
}

/// What every node is really doing, device by device.
class device_watch {
 public:
  void on_work(node_index n, const work_order* w, bool begins) {
    if (!w) {
      std::erase_if(held_, [n](const auto& entry) { return entry.first.first == n; });
      return;
    }
    for (auto d : w->devices) {
      auto& holder = held_[{n, d}];
      if (begins && holder != 0 && wrong_.empty())
        wrong_ = fmt::format("node {} begins lease {} on GPU {}, where lease {} still runs", n,
                             w->lease, d, holder);
      holder = begins ? w->lease : 0;
    }
  }
  const std::string& wrong() const { return wrong_; }

 private:
  std::map<std::pair<node_index, std::uint16_t>, lease_id> held_;
  std::string wrong_;
};

std::string check_journal(const cluster& c, const std::vector<journal_entry>& entries,
                          std::optional<ledger>& replayed) {
  replayed.emplace(c);
  std::map<job_id, int> ends;
  for (const auto& e : entries) {
    if (auto ok = replayed->apply(e); !ok)
      return "the journal contradicts itself: " + ok.error().text;
    if (const auto* ended = std::get_if<job_ended>(&e)) ++ends[ended->job];
  }
  for (const auto& [id, times] : ends)
    if (times != 1) return fmt::format("job {} ended {} times", id, times);
  return {};
}

}  // namespace

std::string run_fault_seed(std::uint64_t seed, bool act_before_journal) {
  random_source random{seed};
  device_watch devices;
  std::optional<ledger> live;
  virtual_cluster_options o;
  o.cluster = harness::small_cluster();
  const char* policies[] = {"frenzy", "opportunistic", "fcfs", "sia"};
  o.policy = planners::make_policy(policies[random.below(4)]);
  o.seed = seed;
  o.faults = faults_of(random);
  o.on_work = [&](node_index n, const work_order* w, bool begins) {
    devices.on_work(n, w, begins);
  };
  o.on_ledger = [&](const ledger& l) { live = l; };
  o.act_before_journal = act_before_journal;
  virtual_cluster v{o};
  v.submit(workload_of(random));
  // The last submission is answered soon after everything has healed; then all that is left must
  // end.
  v.world().run_until(
      [&] { return v.world().now_s() > heal_s + 60 && live && live->unfinished() == 0; }, 40'000.0);
  v.world().run_until(v.world().now_s() + 10);
  if (!devices.wrong().empty()) return devices.wrong();
  std::optional<ledger> replayed;
  if (auto wrong = check_journal(*o.cluster, v.journal(), replayed); !wrong.empty()) return wrong;
  if (v.accepted().size() != 12)
    return fmt::format("only {} of 12 submissions were answered", v.accepted().size());
  const std::set<job_id> told{v.accepted().begin(), v.accepted().end()};
  if (told.size() != 12) return "two submissions were given the same job";
  for (auto id : told) {
    const auto* j = replayed->job(id);
    if (!j) return fmt::format("job {} was accepted and is lost", id);
    if (!is_final(j->state))
      return fmt::format("job {} has not ended: it is {}", id, to_string(j->state));
  }
  if (!live || !(*live == *replayed)) return "the ledger does not equal the journal";
  return {};
}

}  // namespace troupe::simulation
