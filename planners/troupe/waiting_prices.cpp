#include "planners/troupe/waiting_prices.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "messages/base/folds.hpp"
#include "planners/policy/elastic_jobs.hpp"

namespace troupe::planners {

std::vector<double> pool_weights(const std::vector<double>& speeds,
                                 const std::vector<gpu_pool>& pools, const free_gpus& free) {
  std::vector<double> weights;
  for (const auto& p : pools) {
    double weight = 0;
    for (const auto n : p.nodes) weight += free.of(n) * speeds[p.gpu];
    weights.push_back(weight);
  }
  return weights;
}

waiting_prices::waiting_prices(const std::vector<double>& pool_weights)
    : weights_{pool_weights}, prices_(pool_weights.size()) {}

double waiting_prices::in(std::size_t pool) const {
  return std::max(0.0, prices_[pool]);  // sums of rounded terms
}

double waiting_prices::highest() const {
  double price = 0;
  for (std::size_t p = 0; p < prices_.size(); ++p) price = std::max(price, in(p));
  return price;
}

double waiting_prices::lowest(const contender& x) const {
  if (x.options().empty()) return highest();
  double price = std::numeric_limits<double>::infinity();
  for (const auto p : x.table->pools) price = std::min(price, in(p));
  return price;
}

template <class F>
void waiting_prices::for_each_pool(const contender& x, F f) const {
  if (x.options().empty())  // on GPUs of several pools
    for (std::size_t p = 0; p < prices_.size(); ++p) f(p);
  for (const auto p : x.table->pools) f(p);
}

double waiting_prices::share_of(const contender& x) const {
  double weight = 0;
  for_each_pool(x, [&](std::size_t p) { weight += weights_[p]; });
  return weight > 0 ? 1 / weight : 0;
}

void waiting_prices::change(const contender& x, double by) {
  for_each_pool(x, [&](std::size_t p) { prices_[p] += by; });
}

// Jobs that arrive later cannot be listed; their number is that of an M/M/1 queue with this load,
// rho^2 / (1 - rho) in the mean. A price per weight lets a job that holds much of the cluster pay
// for all of them, for as long as it cannot be stopped for them (hold_restarts).
job_costs::job_costs(const cluster& c, double total_weight, double load, const troupe_options& o)
    : o_{o}, restart_s_{c.settings.restart_s}, load_{std::min(load, o.max_load)} {
  // Jobs that would wait in a queue of this load with one server.
  const double queue = load_ * load_ / (1 - load_);
  if (total_weight > 0) arriving_price_ = o.arriving * queue / total_weight;
}

namespace {

/// Its time to the end at samples_per_s, or, if that is sooner, with its fastest configuration as
/// soon as all jobs with less work have ended.
double time_to_end(const contender& x, double samples_per_s, double start_s, double others_end_s,
                   double restart_s) {
  const double end_s = start_s + x.samples_left / samples_per_s;
  const double done = std::max(0.0, others_end_s - start_s) * samples_per_s;
  const double left = std::max(0.0, x.samples_left - done);
  return std::min(end_s, others_end_s + restart_s + left / x.table->fastest_samples_per_s);
}

}  // namespace

queue_losses::queue_losses(const cluster& c, const std::vector<contender>& contenders,
                           const std::vector<double>& speeds,
                           const std::vector<double>& pool_weights, const job_costs& costs)
    : c_{c}, contenders_{contenders}, speeds_{speeds}, pool_weights_{pool_weights}, costs_{costs} {
  struct key {
    double work = 0;
    job_id job = 0;
    const contender* who = nullptr;
  };
  std::vector<key> keys;
  keys.reserve(contenders.size());
  for (const auto& x : contenders) keys.push_back({x.work(), x.id, &x});
  std::ranges::sort(keys, {}, [](const key& k) { return std::pair{k.work, k.job}; });
  by_work_ = mapped(keys, &key::who);
}

// The objective of rule 4: total time of all jobs under an assignment, in seconds. A running job
// costs of_run(); a waiting one its shortest run, and its work times the price of the jobs behind
// it, the least work first. An estimate: jobs keep what they have, except that each may take its
// fastest configuration when all shorter ones have ended.
double queue_losses::of(const std::vector<assigned>& all) const {
  std::vector<const assigned*> placed(contenders_.size());
  const auto place_of = [&](const contender& x) -> const assigned*& {
    return placed[static_cast<std::size_t>(&x - contenders_.data())];
  };
  for (const auto& a : all)
    if (a.has_gpus()) place_of(*a.who) = &a;
  waiting_prices behind{pool_weights_};
  double loss = 0;
  for (const auto& x : contenders_) {
    if (place_of(x)) continue;
    behind.add(x, behind.share_of(x));
    loss += x.restart_s + x.samples_left / x.table->fastest_samples_per_s;
  }
  double before_s = 0;  // the last of those with less work ends
  for (const auto* x : by_work_) {
    const auto* a = place_of(*x);
    if (!a) continue;
    const bool stays = x->runs() && (!a->option || a->option == x->present);
    const auto* o = a->option ? &x->options()[*a->option] : nullptr;
    const double restart_s = x->restart_s;
    const double start_s = stays ? x->start_left_s : restart_s;
    const double run_s =
        time_to_end(*x, (o ? o->how : a->mixed->how).samples_per_s, start_s, before_s, restart_s);
    before_s = std::max(before_s, run_s);
    loss += costs_.of_run(run_s, o ? o->weight : weight_of(c_, speeds_, a->mixed->where),
                          o ? behind.in(o->pool) : behind.highest());
  }
  for (const auto* x : by_work_) {
    if (place_of(*x)) continue;
    // A stopped job starts twice; the second start is work that the change itself causes.
    const double starts = x->runs() ? costs_.price_factor() : 1;
    loss += behind.lowest(*x) * (x->work() + starts * x->restart_s * x->table->efficient_weight);
    behind.remove(*x, behind.share_of(*x));
  }
  return loss;
}

}  // namespace troupe::planners
