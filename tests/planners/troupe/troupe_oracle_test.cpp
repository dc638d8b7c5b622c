// docs/planners/troupe.md, evaluated on small cases by enumerating every assignment of
// configurations: nothing here is shared with planners/troupe/assignment.cpp but its input.

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "planners/sample.hpp"
#include "planners/troupe/assignment.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

using choice = std::optional<std::size_t>;

constexpr troupe_options defaults{};

struct small_case {
  troupe::cluster cluster;
  std::vector<gpu_pool> pools;
  double now_s = 10'000;
  double load = 0;
  std::vector<job_view> jobs;
  std::vector<configuration_table> tables;
  std::vector<contender> contenders;
};

small_case random_case(std::uint64_t seed) {
  random_source r(seed);
  small_case x;
  sample::add_nodes(x.cluster, sample::a100_80, 1 + std::uint32_t(r.below(3)), 1U << r.below(3));
  if (r.chance(0.5))
    sample::add_nodes(x.cluster, sample::rtx6000, 1 + std::uint32_t(r.below(2)), 1U << r.below(3));
  x.cluster.settings.restart_s = 30;
  const idle_index idle{x.cluster};
  x.pools = pools_of(x.cluster, idle);
  free_gpus free{x.cluster, idle};
  x.load = r.chance(0.5) ? 0 : 1.2 * r.uniform();
  const auto n = 1 + r.below(4);
  x.jobs.resize(n);
  x.tables.resize(n);
  for (std::size_t i = 0; i < n; ++i) {
    auto& j = x.jobs[i];
    auto spec = sample::job(sample::gpt2_350m, 8U << r.below(3));
    spec.iterations = 1 + r.below(9000);
    spec.priority = r.chance(0.2) ? 1 : 0;
    j.id = i + 1;
    j.spec = std::make_shared<job_spec>(spec);
    j.plans = std::make_shared<std::vector<plan>>();
    auto& t = x.tables[i];
    set_options(t, configurations_of(x.cluster, x.pools, j));
    t.sample_cost = t.options.empty() ? 1 : 1e300;
    t.fastest_samples_per_s = t.options.empty() ? 1 : 0;
    t.efficient_weight = 1;
    for (const auto& o : t.options) {
      if (o.weight / o.how.samples_per_s < t.sample_cost) t.efficient_weight = o.weight;
      t.sample_cost = std::min(t.sample_cost, o.weight / o.how.samples_per_s);
      t.fastest_samples_per_s = std::max(t.fastest_samples_per_s, o.how.samples_per_s);
    }
    if (r.chance(0.7)) j.submitted_s = x.now_s - double(r.below(r.chance(0.5) ? 4 * 86'400 : 100));
    double left = double(spec.iterations) * spec.global_batch;
    choice present;
    if (!t.options.empty() && r.chance(0.5)) {  // it runs
      const auto k = r.below(t.options.size());
      const auto& o = t.options[k];
      auto where = free.find(x.pools[o.pool], o.how.gpus(), {});
      free.take(where);
      if (!where.empty()) {
        present = k;
        j.where = std::move(where);
        j.how = o.how;
        j.started_s = x.now_s - double(r.below(1000));
        if (r.chance(0.5)) left *= 0.1 * r.uniform();  // soon at its end
      }
    }
    auto c = contender_of(x.cluster, j, t, defaults);
    c.samples_left = left;
    c.waited_s = x.now_s - j.submitted_s;
    c.present = present;
    if (present) c.start_left_s = std::max(0.0, j.started_s + 30 - x.now_s);
    x.contenders.push_back(c);
  }
  return x;
}

class oracle {
 public:
  explicit oracle(const small_case& x) : x_{x}, rho_{std::min(x.load, defaults.max_load)} {
    for (const auto& p : x.pools) all_weight_ += weight(p);
    order_.resize(x.jobs.size());
    std::iota(order_.begin(), order_.end(), 0U);
    std::ranges::sort(order_, {}, [&](std::size_t i) {
      const auto& c = x_.contenders[i];
      return std::tuple(-c.job->spec->priority, !overdue(i), work(i), c.job->id);
    });
  }

  std::size_t behind(std::size_t job) const {
    return std::size_t(order_.end() - std::ranges::find(order_, job)) - 1;
  }

  /// Jobs that wait though they could start.
  std::size_t patient() const { return patient_; }

  std::vector<choice> decided() {
    const auto anew = served(false);
    std::vector<std::size_t> changed;
    for (std::size_t i = 0; i < anew.size(); ++i)
      if (runs(i) && anew[i] != x_.contenders[i].present) changed.push_back(i);
    if (changed.empty()) return anew;
    const auto kept = served(true);
    int lowest = 1;
    for (const auto i : changed) lowest = std::min(lowest, x_.jobs[i].spec->priority);
    for (std::size_t i = 0; i < anew.size(); ++i)
      if (anew[i] && !kept[i] && x_.jobs[i].spec->priority > lowest) return anew;
    return loss(anew) + (defaults.stop_cost - 1) * 30 * double(changed.size()) < loss(kept) ? anew
                                                                                            : kept;
  }

 private:
  /// `keep`: jobs that run keep what they have, and may grow.
  std::vector<choice> served(bool keep) {
    keep_ = keep;
    // The best of all assignments that can be placed has the lowest cost of the first job, then of
    // the second, ...: the result of serving the jobs in order.
    std::vector<choice> now(x_.jobs.size());
    std::vector<double> best;
    std::vector<choice> found;
    enumerate(0, now, [&] {
      std::vector<double> costs;
      std::vector<std::uint32_t> awaited(x_.pools.size());
      std::size_t patient = 0;
      // For each priority those that stay as they are come first.
      for (std::size_t from = 0; from < order_.size();) {
        auto to = from;
        while (to < order_.size() && priority(order_[to]) == priority(order_[from])) ++to;
        for (auto at = from; at < to; ++at)
          if (pinned(order_[at])) costs.push_back(stays(order_[at], now) ? 0 : 1);
        for (; from < to; ++from) {
          const bool later = waits(from, now, awaited);
          costs.push_back(later ? -1 : cost(from, now));
          patient += later;
        }
      }
      if (best.empty() || costs < best) best = costs, found = now, patient_ = patient;
    });
    while (const auto next = best_change(found)) found = *next;
    return found;
  }

  bool pinned(std::size_t i) const { return runs(i) && (keep_ || settles(i)); }
  bool stays(std::size_t i, const std::vector<choice>& all) const {
    return pinned(i) && all[i] == x_.contenders[i].present;
  }
  int priority(std::size_t i) const { return x_.jobs[i].spec->priority; }
  double weight(const gpu_pool& p) const { return speed(p) * double(p.nodes.size() * p.node_gpus); }
  bool uses(std::size_t i, std::uint32_t pool) const {
    const auto& options = x_.tables[i].options;  // none: on GPUs of several pools
    return options.empty() ||
           std::ranges::any_of(options, [&](const configuration& o) { return o.pool == pool; });
  }
  /// Seconds that these jobs wait for a second of a GPU of the pool.
  double price(std::uint32_t pool, const std::vector<std::size_t>& jobs) const {
    double sum = 0;
    for (const auto i : jobs) {
      double usable = 0;
      for (std::uint32_t p = 0; p < x_.pools.size(); ++p)
        if (uses(i, p)) usable += weight(x_.pools[p]);
      if (uses(i, pool)) sum += 1 / usable;
    }
    return sum;
  }
  double factor() const { return defaults.price_factor / (1 - rho_); }
  double of_run(double s, double w, double per_second) const {
    const double arriving = defaults.arriving * rho_ * rho_ / (1 - rho_) / all_weight_;
    return s * (1 + per_second * w) + arriving * std::min(s, defaults.hold_restarts * 30) * w;
  }

  double loss(const std::vector<choice>& all) const {
    std::vector<std::size_t> waiting;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (!all[i]) waiting.push_back(i);
    double sum = 0;
    std::vector<std::size_t> running;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i])
        running.push_back(i);
      else
        sum += 30 + x_.contenders[i].samples_left / x_.tables[i].fastest_samples_per_s;
    }
    std::ranges::sort(running, {}, [&](std::size_t i) { return std::pair{work(i), i}; });
    double others = 0;
    for (const auto i : running) {
      const auto& c = x_.contenders[i];
      const auto& o = x_.tables[i].options[*all[i]];
      const double start = c.present == all[i] ? c.start_left_s : 30;
      // With these GPUs to its end, or until those with less work have ended.
      const double left =
          std::max(0.0, c.samples_left - std::max(0.0, others - start) * o.how.samples_per_s);
      const double end = std::min(start + c.samples_left / o.how.samples_per_s,
                                  others + 30 + left / x_.tables[i].fastest_samples_per_s);
      others = std::max(others, end);
      sum += of_run(end, weight(o), price(o.pool, waiting));
    }
    std::ranges::sort(waiting, {}, [&](std::size_t i) { return std::pair{work(i), i}; });
    while (!waiting.empty()) {
      const auto i = waiting.front();
      double lowest = 1e300;
      for (std::uint32_t p = 0; p < x_.pools.size(); ++p)
        if (uses(i, p)) lowest = std::min(lowest, price(p, waiting));
      const double starts = runs(i) ? factor() : 1;
      sum += lowest * (work(i) + starts * 30 * x_.tables[i].efficient_weight);
      waiting.erase(waiting.begin());
    }
    return sum;
  }

  double speed(const gpu_pool& p) const {
    double fastest = 0;
    for (const auto& n : x_.cluster.nodes)
      fastest =
          std::max(fastest, x_.cluster.gpus[n.gpu].fp16_tflops * x_.cluster.gpus[n.gpu].efficiency);
    return x_.cluster.gpus[p.gpu].fp16_tflops * x_.cluster.gpus[p.gpu].efficiency / fastest;
  }
  double weight(const configuration& o) const { return speed(x_.pools[o.pool]) * o.how.gpus(); }
  bool runs(std::size_t i) const { return !x_.jobs[i].where.empty(); }
  bool settles(std::size_t i) const {
    if (!runs(i)) return false;
    const double until_s = x_.jobs[i].started_s + defaults.settle_starts * 30;
    const double step_s = defaults.settle_step * 30;
    const double steps = std::floor(x_.now_s / step_s);  // that have begun by now
    return until_s > steps * step_s;
  }
  double work(std::size_t i) const {
    double min = x_.tables[i].options.empty() ? x_.contenders[i].samples_left : 1e300;
    for (const auto& o : x_.tables[i].options)
      min = std::min(min, x_.contenders[i].samples_left / o.how.samples_per_s * weight(o));
    return min;
  }
  bool overdue(std::size_t i) const {
    const auto& j = x_.jobs[i];
    double shortest =
        x_.tables[i].options.empty() ? double(j.spec->iterations) * j.spec->global_batch : 1e300;
    for (const auto& o : x_.tables[i].options)
      shortest =
          std::min(shortest, j.spec->iterations * (j.spec->global_batch / o.how.samples_per_s));
    return x_.now_s - j.submitted_s > defaults.overdue_times * shortest;
  }
  double time(std::size_t i, std::size_t option) const {
    const auto& c = x_.contenders[i];
    const double start =
        c.present == option ? c.start_left_s : 30 * (runs(i) ? defaults.stop_cost : 1);
    return c.samples_left / x_.tables[i].options[option].how.samples_per_s + start;
  }
  // The cost of the job at this place of the order; without an option it is beyond all others.
  double cost(std::size_t at, const std::vector<choice>& all) const {
    const auto i = order_[at];
    if (stays(i, all)) return 0;
    if (!all[i]) return 1e300;
    const auto& o = x_.tables[i].options[*all[i]];
    const std::vector<std::size_t> behind(order_.begin() + std::ptrdiff_t(at) + 1, order_.end());
    return of_run(time(i, *all[i]), weight(o), factor() * price(o.pool, behind));
  }

  double cost_of(std::size_t at, std::size_t option) const {
    std::vector<choice> alone(x_.jobs.size());
    alone[order_[at]] = option;
    return cost(at, alone);
  }

  /// Seconds until running jobs have ended that hold so many GPUs of the pool.
  double released_s(std::uint32_t pool, std::uint32_t gpus) const {
    std::map<double, std::uint32_t> ends;
    for (std::size_t i = 0; i < x_.jobs.size(); ++i) {
      if (!runs(i)) continue;
      const auto& o = x_.tables[i].options[*x_.contenders[i].present];
      if (o.pool == pool) ends[time(i, *x_.contenders[i].present)] += o.how.gpus();
    }
    std::uint32_t total = 0;
    for (const auto& [s, released] : ends)
      if ((total += released) >= gpus) return s;
    return 1e300;
  }

  /// Whether the job at this place of the order could start, and waits for GPUs that are soon free.
  bool waits(std::size_t at, const std::vector<choice>& all,
             std::vector<std::uint32_t>& awaited) const {
    const auto i = order_[at];
    const double left_s = defaults.settle_starts * 30 - (x_.now_s - x_.jobs[i].submitted_s);
    if (all[i] || runs(i) || overdue(i) || left_s <= 0) return false;
    std::vector<choice> before(all.size());
    for (std::size_t k = 0; k < at; ++k) before[order_[k]] = all[order_[k]];
    for (std::size_t k = 0; k < all.size(); ++k)
      if (stays(k, all) && (keep_ || priority(k) >= priority(i))) before[k] = all[k];
    const auto& options = x_.tables[i].options;
    std::vector<bool> has_room(options.size());
    for (std::size_t k = 0; k < options.size(); ++k) {
      before[i] = k;
      has_room[k] = can_be_placed(before);
    }
    before[i] = {};
    choice now;
    for (std::size_t k = 0; k < options.size(); ++k)
      if (has_room[k] && (!now || cost_of(at, k) < cost_of(at, *now))) now = k;
    if (!now) return false;
    double sooner = time(i, *now);
    choice later;
    for (std::size_t k = 0; k < options.size(); ++k) {
      if (has_room[k]) continue;
      const auto pool = options[k].pool;
      auto needed = std::int64_t{options[k].how.gpus()} + awaited[pool] -
                    std::int64_t(x_.pools[pool].nodes.size() * x_.pools[pool].node_gpus);
      for (std::size_t j = 0; j < all.size(); ++j)
        if (before[j] && x_.tables[j].options[*before[j]].pool == pool)
          needed += x_.tables[j].options[*before[j]].how.gpus();
      if (needed <= 0) continue;
      const double wait = released_s(pool, std::uint32_t(needed));
      if (wait > left_s || wait + cost_of(at, k) >= cost_of(at, *now)) continue;
      if (wait + time(i, k) < sooner) sooner = wait + time(i, k), later = k;
    }
    if (later) awaited[options[*later].pool] += options[*later].how.gpus();
    return later.has_value();
  }

  void enumerate(std::size_t i, std::vector<choice>& now,
                 const std::function<void()>& visit) const {
    if (i == now.size()) {
      if (can_be_placed(now)) visit();
      return;
    }
    // Only for a job of a higher priority does one that settles not stay as it is.
    const bool yields = !keep_ && std::ranges::any_of(order_, [&](std::size_t other) {
      return priority(other) > priority(i);
    });
    if (pinned(i) && !yields) {
      now[i] = x_.contenders[i].present;
      enumerate(i + 1, now, visit);
      now[i] = {};
      return;
    }
    now[i] = {};
    enumerate(i + 1, now, visit);
    for (std::size_t k = 0; k < x_.tables[i].options.size(); ++k) {
      now[i] = k;
      enumerate(i + 1, now, visit);
    }
    now[i] = {};
  }

  bool can_be_placed(const std::vector<choice>& all) const {
    for (std::uint32_t p = 0; p < x_.pools.size(); ++p) {
      std::vector<std::uint32_t> counts;
      for (std::size_t i = 0; i < all.size(); ++i)
        if (all[i] && x_.tables[i].options[*all[i]].pool == p)
          counts.push_back(x_.tables[i].options[*all[i]].how.gpus());
      std::vector<std::uint32_t> left(x_.pools[p].nodes.size(), x_.pools[p].node_gpus);
      if (!place(counts, 0, left, x_.pools[p].node_gpus)) return false;
    }
    return true;
  }
  // Tries every node for each count; one that is larger than a node takes whole ones.
  static bool place(const std::vector<std::uint32_t>& counts, std::size_t at,
                    std::vector<std::uint32_t>& left, std::uint32_t node) {
    if (at == counts.size()) return true;
    const auto whole = [&](auto&& self, std::uint32_t missing, std::size_t from) -> bool {
      if (missing == 0) return place(counts, at + 1, left, node);
      for (auto n = from; n < left.size(); ++n) {
        const auto take = std::min(missing, node);
        if (left[n] < take) continue;
        left[n] -= take;
        if (self(self, missing - take, n + 1)) return true;
        left[n] += take;
      }
      return false;
    };
    return whole(whole, counts[at], 0);
  }

  std::optional<std::vector<choice>> best_change(const std::vector<choice>& all) const {
    std::optional<std::vector<choice>> best;
    double max = 0;
    for (const auto i : order_) {
      if (!all[i] || settles(i)) continue;
      const double now = of_run(time(i, *all[i]), weight(x_.tables[i].options[*all[i]]), 0);
      for (std::size_t k = 0; k < x_.tables[i].options.size(); ++k) {
        const double saved = now - of_run(time(i, k), weight(x_.tables[i].options[k]), 0);
        if (saved <= 0.2 * now) continue;
        const double more = weight(x_.tables[i].options[k]) - weight(x_.tables[i].options[*all[i]]);
        const double value = saved / std::max(more, 1e-3);
        if (value <= max) continue;
        auto next = all;
        next[i] = k;
        if (can_be_placed(next)) max = value, best = next;
      }
    }
    return best;
  }

  const small_case& x_;
  double rho_;
  bool keep_ = false;
  std::size_t patient_ = 0;
  double all_weight_ = 0;
  std::vector<std::size_t> order_;
};

}  // namespace

TEST_CASE("Troupe's policy decides as its page says, where every assignment can be enumerated") {
  std::size_t grown = 0, stopped = 0, waiting = 0, patient = 0;
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    CAPTURE(seed);
    const auto x = random_case(seed);
    free_gpus free{x.cluster, idle_index{x.cluster}};
    std::vector<choice> decided(x.jobs.size());
    const oracle by_page{x};
    for (const auto& a : assign(x.cluster, x.pools, relative_speeds(x.cluster), x.contenders, free,
                                x.now_s, x.load)) {
      decided[a.who->job->id - 1] = a.option;
      // Whether jobs settle is nothing to the price of others.
      if (a.behind > 0) REQUIRE(a.behind == by_page.behind(a.who->job->id - 1));
    }
    std::string facts;
    const auto shown = [&](const std::vector<choice>& all) {
      for (const auto& c : all) facts += c ? std::to_string(*c) + " " : "- ";
      facts += "; ";
    };
    oracle rules{x};
    const auto expected = rules.decided();
    patient += rules.patient();
    shown(decided);
    shown(expected);
    for (const auto& c : x.contenders)
      facts += fmt::format("[present {} options {} left {} priority {} age {}] ",
                           c.present ? int(*c.present) : -1, c.options().size(), c.samples_left,
                           c.job->spec->priority, x.now_s - c.job->started_s);
    INFO(facts);
    REQUIRE(decided == expected);
    for (std::size_t i = 0; i < decided.size(); ++i) {
      const auto present = x.contenders[i].present;
      stopped += present && !decided[i];
      waiting += !present && !decided[i];
      grown += present && decided[i] && *decided[i] > *present;
    }
  }
  CHECK(grown > 10);
  CHECK(stopped > 50);
  CHECK(waiting > 50);
  CHECK(patient > 5);
}
