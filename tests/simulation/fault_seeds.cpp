#include "simulation/fault_seeds.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "actors/control/ledger/ledger.hpp"
#include "actors/worlds/virtual_cluster.hpp"
#include "harness/small_cluster.hpp"
#include "messages/domain/work_kind.hpp"
#include "simulation/fault_workloads.hpp"
#include "simulation/oracle.hpp"
#include "simulation/undisturbed.hpp"

namespace troupe::simulation {

namespace {

using namespace troupe::actors;

constexpr double heal_s = 1500;  // from here on nothing goes wrong, so that everything can end
constexpr double largest_drift = 0.03;
constexpr std::uint64_t fault_stream = 1, workload_stream = 2, trouble_stream = 3, disk_stream = 4,
                        move_stream = 5, change_stream = 6;

void cut_links(random_source& random, fault_plan& f) {
  const auto hosts = harness::small_cluster();
  for (auto n = random.below(3); n > 0; --n) {
    const double from = random.uniform() * last_submission_s;
    f.partitions.push_back(
        {{"dc" + std::to_string(1 + random.below(3))}, {}, from, from + 60 * random.uniform()});
  }
  // Single nodes, for about as long as a lease.
  for (auto n = random.below(20); n > 0; --n) {
    const auto& node = hosts->nodes[random.below(hosts->nodes.size())].name;
    const double from = random.uniform() * last_submission_s;
    f.partitions.push_back({{node}, {}, from, from + spread(random, 2, 20)});
  }
}

fault_plan faults_of(random_source random) {
  fault_plan f;
  f.until_s = heal_s;
  f.loss = 0.1 * random.uniform();
  f.duplication = 0.1 * random.uniform();
  f.reordering = 0.3 * random.uniform();
  f.reorder_delay_s = spread(random, 0.1, 10);
  f.node_crashes_per_hour = 6 * random.uniform();
  f.gateway_crashes_per_hour = 4 * random.uniform();
  f.controller_crashes_per_hour = 10 * random.uniform();
  f.mean_down_s = spread(random, 0.2, 20);
  f.torn_append = 0.03 * random.uniform();
  f.wall_skew_s = spread(random, 1, 7200);
  f.wall_steps_per_hour = 6 * random.uniform();
  f.clock_drift = largest_drift * random.uniform();
  cut_links(random, f);
  f.slow_nodes.push_back({"a-1", 1 + 3 * random.uniform(), 0, heal_s});
  return f;
}

/// Faults that follow an event of the run: cancels and crashes at moments that chance alone would
/// seldom find.
class trouble {
 public:
  trouble(virtual_cluster& v, oracle& watch, random_source random)
      : v_{v},
        watch_{watch},
        random_{random},
        moves_{random.split(move_stream)},
        changes_{random.split(change_stream)} {
    for (auto n = random_.below(3); n > 0; --n)
      cancel_soon(1 + random_.below(jobs_a_seed), random_.uniform() * last_submission_s);
    for (auto n = random_.below(3); n > 0; --n)
      suspend_soon(1 + random_.below(jobs_a_seed), random_.uniform() * last_submission_s);
  }

  void on_entry(const journal_entry& e) {
    if (v_.world().now_s() >= heal_s) return;
    if (std::holds_alternative<cluster_changed>(e)) crash_in_a_change();
    const auto* granted = std::get_if<lease_granted>(&e);
    if (random_.chance(0.02)) crash_soon(controller_address);
    if (granted && random_.chance(0.03)) crash_soon(node_address(granted->parts.front().node));
    // Orders of the previous controller are still in flight when the job is cancelled.
    if (granted && random_.chance(0.1)) {
      crash_soon(controller_address, 0.3);
      if (random_.chance(0.3))
        crash_soon(node_address(granted->parts.front().node), 0.3);
      else
        cancel_soon(granted->job, spread(random_, 0.3, 2));
    }
    if (granted && random_.chance(0.1)) suspend_soon(granted->job, spread(random_, 0.1, 60));
    if (granted && moves_.chance(0.3)) move_soon(granted->job, spread(moves_, 0.1, 60));
    if (cancels_left_ == 0) return;
    if (granted && random_.chance(0.06))
      --cancels_left_, cancel_soon(granted->job, spread(random_, 0.001, 10));
    if (std::holds_alternative<part_ended>(e) && random_.chance(0.02))
      --cancels_left_, cancel_soon(1 + random_.below(jobs_a_seed), random_.uniform());
  }

 private:
  void crash_soon(address a, double longest_down_s = 5) {
    const double at_s = v_.world().now_s() + spread(random_, 0.001, 3);
    const double down_s = spread(random_, 0.05, longest_down_s);
    v_.world().at(at_s, [this, a, down_s] { v_.world().crash(a, down_s); });
  }

  /// Before some hosts have the new cluster, or while they report that they follow it.
  void crash_in_a_change() {
    const auto sites = static_cast<std::uint32_t>(harness::small_cluster()->datacenters.size());
    const auto gateway = gateway_address(static_cast<std::uint32_t>(changes_.below(sites)));
    for (const auto& [a, chance] : {std::pair{controller_address, 0.5}, {gateway, 0.3}}) {
      const double at_s = v_.world().now_s() + spread(changes_, 0.0001, 0.1);
      const double down_s = spread(changes_, 0.05, 5);
      if (changes_.chance(chance)) v_.world().at(at_s, [=, this] { v_.world().crash(a, down_s); });
    }
  }

  void cancel_soon(job_id id, double after_s) {
    const auto request = random_.next() | 1;
    v_.world().at(v_.world().now_s() + after_s, [this, id, request] {
      v_.send(cancel_job{request, id}, 1e6, [this, id](const answer& a) {
        const auto* reply = a.reply ? std::get_if<cancel_reply>(&a.reply->first) : nullptr;
        if (reply && reply->done) watch_.on_cancelled(id);
      });
    });
  }

  /// For a while: a second request follows once the first one was received.
  void suspend_soon(job_id id, double after_s) {
    const double for_s = spread(random_, 0.1, 100);
    const auto suspend = random_.next() | 1, resume = random_.next() | 1;
    v_.world().at(v_.world().now_s() + after_s, [=, this] {
      v_.send(suspend_job{suspend, id, true}, 1e6, [=, this](const answer&) {
        v_.world().at(v_.world().now_s() + for_s, [=, this] {
          v_.send(suspend_job{resume, id, false}, 1e6, [](const answer&) {});
        });
      });
    });
  }

  /// To another shape, or only elsewhere; what is no training is refused.
  void move_soon(job_id id, double after_s) {
    move_job m;
    m.request = moves_.next() | 1;
    m.job = id;
    m.stages = static_cast<std::uint32_t>(moves_.below(4));
    m.data_parallel = static_cast<std::uint32_t>(moves_.below(3));
    if (moves_.chance(0.3)) m.gpu_type = harness::small_cluster()->gpus[moves_.below(3)].name;
    if (moves_.chance(0.3)) m.grace_s = spread(moves_, 0.01, 10);
    if (const auto known = watch_.jobs().find(id);
        known != watch_.jobs().end() && facts_of(known->second.spec).elastic) {
      m.gpus = m.stages;
      m.stages = m.data_parallel = 0;
    }
    v_.world().at(v_.world().now_s() + after_s,
                  [this, m] { v_.send(m, 1e6, [](const answer&) {}); });
  }

  virtual_cluster& v_;
  oracle& watch_;
  random_source random_, moves_, changes_;
  int cancels_left_ = 3;
};

/// Operators at work: each change has a heartbeat of its own, by which the journal is searched for
/// those that were confirmed.
class operators {
 public:
  operators(virtual_cluster& v, std::shared_ptr<const troupe::cluster> whole, random_source random)
      : v_{v}, whole_{std::move(whole)}, random_{random} {
    for (auto n = 3 + random_.below(8); n > 0; --n)
      change_at(random_.uniform() * last_submission_s, some_cluster());
    change_at(heal_s - 1, *whole_);
    for (auto n = random_.below(4); n > 0; --n) drain_at(random_.uniform() * last_submission_s);
  }

  /// Empty: the journal has all that was confirmed.
  std::string missing(const std::vector<journal_entry>& journal) const {
    for (const auto heartbeat_s : confirmed_) {
      const bool has = std::ranges::any_of(journal, [&](const journal_entry& e) {
        const auto* c = std::get_if<cluster_changed>(&e);
        return c && c->cluster.settings.heartbeat_s == heartbeat_s;
      });
      if (!has)
        return fmt::format("the change to a heartbeat of {} s was confirmed and is lost",
                           heartbeat_s);
    }
    return {};
  }

 private:
  troupe::cluster some_cluster() {
    auto c = *whole_;
    for (auto n = random_.below(3); n > 0; --n)
      c.nodes.erase(c.nodes.begin() + static_cast<std::ptrdiff_t>(random_.below(c.nodes.size())));
    for (std::size_t i = c.nodes.size(); i > 1; --i)
      std::swap(c.nodes[i - 1], c.nodes[random_.below(i)]);
    c.settings.heartbeat_s = 0.5 + random_.uniform();
    c.settings.lease_s = spread(random_, 3, 30);
    return c;
  }

  void change_at(double at_s, troupe::cluster to) {
    const auto request = random_.next() | 1;
    v_.world().at(at_s, [this, request, to = std::move(to)] {
      v_.send(reconfigure{request, to}, 1e6, [this, to](const answer& a) {
        const auto* reply = a.reply ? std::get_if<reconfigure_reply>(&a.reply->first) : nullptr;
        if (reply && reply->done && to.settings != whole_->settings)
          confirmed_.push_back(to.settings.heartbeat_s);
      });
    });
  }

  void drain_at(double at_s) {
    drain_nodes d{random_.next() | 1,
                  {whole_->nodes[random_.below(whole_->nodes.size())].name},
                  true,
                  random_.chance(0.5)};
    auto back = d;
    back.request = random_.next() | 1;
    back.drained = false;
    v_.world().at(at_s, [this, d, back, for_s = spread(random_, 1, 100)] {
      v_.send(d, 1e6, [this, back, for_s](const answer&) {
        v_.world().at(v_.world().now_s() + for_s,
                      [this, back] { v_.send(back, 1e6, [](const answer&) {}); });
      });
    });
  }

  virtual_cluster& v_;
  std::shared_ptr<const troupe::cluster> whole_;
  random_source random_;
  std::vector<double> confirmed_;
};

/// The controller's disk is full for a while, or damaged while the controller is down, until
/// somebody puts a copy back.
class disk_trouble {
 public:
  explicit disk_trouble(random_source random) : random_{random} {
    if (random_.chance(0.3)) full_from_s_ = random_.uniform() * last_submission_s;
    full_until_s_ = full_from_s_ + spread(random_, 1, 60);
  }

  runtime::append_fate fate_of_write(double now_s) {
    if (now_s >= full_from_s_ && now_s < full_until_s_) return runtime::append_fate::full;
    return now_s < heal_s && random_.chance(0.005) ? runtime::append_fate::unreported
                                                   : runtime::append_fate::kept;
  }

  void damage_some_time(runtime::virtual_world& w) {
    if (!random_.chance(0.3)) return;
    const double at_s = random_.uniform() * last_submission_s;
    w.at(at_s, [this, &w] {
      w.crash(controller_address);
      const auto disk = w.disk(controller_address);
      copy_ = *disk;
      random_.chance(0.5) ? disk->flip_bit(random_) : disk->lose_tail(1 + random_.below(5));
      w.restart(controller_address);
    });
    w.at(at_s + spread(random_, 1, 60), [this, &w] {
      w.crash(controller_address);
      *w.disk(controller_address) = *std::exchange(copy_, {});
      w.restart(controller_address);
    });
  }

  bool is_damaged() const { return copy_.has_value(); }

 private:
  random_source random_;
  double full_from_s_ = 2 * heal_s, full_until_s_ = 0;
  std::optional<runtime::memory_disk> copy_;  // of what is damaged
};

enum class variant { plain, changes, unions, programs, groups };

std::shared_ptr<const planners::policy> policy_of(random_source& random, variant v) {
  if (v == variant::unions) {
    constexpr std::array policies{"titan", "titan", "titan-no-switch", "titan-no-merger"};
    return planners::make_policy(policies[random.below(policies.size())]);
  }
  constexpr std::array policies{"frenzy", "opportunistic",  "fcfs",  "sia",    "troupe",
                                "crius",  "elasticflow-ls", "gavel", "gandiva"};
  return planners::make_policy(policies[random.below(policies.size())]);
}

std::string run_seed(std::uint64_t seed, variant kind) {
  random_source random{seed};
  const auto make = kind == variant::unions     ? tuning_workload_of
                    : kind == variant::programs ? program_workload_of
                    : kind == variant::groups   ? grouped_workload_of
                                                : workload_of;
  const auto workload = make(random.split(workload_stream));
  virtual_cluster* cluster = nullptr;
  trouble* more = nullptr;
  std::optional<ledger> live;
  virtual_cluster_options o;
  const auto small = harness::small_cluster();
  small->settings.checkpoint_s = 10;  // so that lost work has often saved something
  if (kind == variant::unions) small->settings.restart_s = 30;  // worth sharing
  o.cluster = small;
  oracle watch{*o.cluster,
               [&](node_index n) { return cluster->world().slowdown(node_address(n)); }};
  if (std::getenv("TROUPE_TRACE")) watch.trace();
  weights_oracle weights;
  o.on_weights = [&](const stage_setup& s, std::uint64_t iteration, std::uint64_t digest) {
    weights.on_weights(watch.spec_of(s.name.lease), s, iteration, digest);
  };
  o.policy = policy_of(random, kind);
  o.seed = seed;
  o.faults = faults_of(random.split(fault_stream));
  const auto now_s = [&] { return cluster ? cluster->world().now_s() : 0; };
  disk_trouble disk{random.split(disk_stream)};
  o.on_append = [&](double at_s) { return disk.fate_of_write(at_s); };
  std::string wrong;
  std::size_t entries = 0;  // that the oracle has seen
  o.on_entry = [&](const journal_entry& e) {
    if (disk.is_damaged() && wrong.empty())
      wrong = fmt::format("at {:.9g} s: a controller goes on with a damaged journal", now_s());
    // Entries that were durable when the controller died, and that no host knew, are acted on by
    // its successor.
    if (std::holds_alternative<epoch_begun>(e) && cluster) {
      const auto all = cluster->journal();
      for (; entries < all.size() && all[entries] != e; ++entries)
        watch.on_entry(now_s(), all[entries]);
    }
    ++entries;
    watch.on_entry(now_s(), e);
    if (more) more->on_entry(e);
  };
  o.on_work = [&](node_index n, const work_order* w, const part_report* ended) {
    watch.on_work(now_s(), n, w, ended);
  };
  // The last submission is answered soon after everything has healed; then all that is left must
  // end.
  o.on_state = [&](const cluster_state& s) { live = s.book; };
  const auto all_ended = [&] { return now_s() > heal_s + 60 && live && live->unfinished() == 0; };
  virtual_cluster v{o};
  cluster = &v;
  trouble t{v, watch, random.split(trouble_stream)};
  more = &t;
  v.submit(workload);
  auto& world = v.world();
  std::optional<operators> people;
  if (kind == variant::changes) people.emplace(v, o.cluster, random.split(change_stream));
  disk.damage_some_time(world);
  const auto is_wrong = [&] {
    return !watch.invalid().empty() || !weights.invalid().empty() || !wrong.empty();
  };
  world.run_until([&] { return all_ended() || is_wrong(); }, 40'000.0);
  if (!is_wrong()) {
    world.run_until(world.now_s() + 10);
    std::set<std::string> names;
    for (const auto& a : workload) names.insert(a.spec.name);
    watch.check_end(names, v.accepted(), v.journal(), live ? &*live : nullptr);
    if (people) wrong = people->missing(v.journal());
  }
  if (wrong.empty()) wrong = watch.invalid();
  if (wrong.empty()) wrong = weights.invalid();
  return wrong.empty() ? wrong : fmt::format("policy {}: {}", o.policy->name(), wrong);
}

}  // namespace

std::string run_fault_seed(std::uint64_t seed) {
  return run_seed(seed, variant::plain);
}

std::string run_changing_seed(std::uint64_t seed) {
  return run_seed(seed, variant::changes);
}

std::string run_program_seed(std::uint64_t seed) {
  return run_seed(seed, variant::programs);
}

std::string run_groups_seed(std::uint64_t seed) {
  return run_seed(seed, variant::groups);
}

std::string run_union_seed(std::uint64_t seed) {
  return run_seed(seed, variant::unions);
}

}  // namespace troupe::simulation
