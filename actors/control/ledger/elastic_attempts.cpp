#include "actors/control/ledger/elastic_attempts.hpp"

#include <algorithm>
#include <cmath>

#include "messages/admission/measured.hpp"
#include "messages/base/find_in.hpp"
#include "planners/policy/elastic_jobs.hpp"

namespace troupe::actors {

namespace {

void keep_newest(std::vector<double>& times_s, double time_s) {
  if (times_s.size() >= program_costs::max_kept) times_s.erase(times_s.begin());
  times_s.push_back(time_s);
}

std::uint32_t gpus_of(const lease_granted& lease) {
  std::size_t sum = 0;
  for (const auto& part : lease.parts) sum += part.devices.size();
  return static_cast<std::uint32_t>(sum);
}

/// Nothing if `step_s` is no time of an iteration, the rate has not a job file's bounds, or its
/// GPUs are of several types.
std::optional<program_rate> rate_of_attempt(const job_spec& spec, const lease_granted& lease,
                                            const std::string& gpu_type, double step_s) {
  if (gpu_type.empty() || !admission::is_step(step_s)) return {};
  const double rate = spec.global_batch / step_s;
  if (!admission::is_rate(rate)) return {};
  return program_rate{gpu_type, gpus_of(lease), lease.how.data_parallel, rate};
}

/// Replaces the rate of the same GPUs, or adds it. A job file may leave out data_parallel.
void set_rate(program_costs& costs, const program_rate& rate) {
  const auto ranks = [](const program_rate& r) {
    return r.data_parallel > 0 ? r.data_parallel : r.gpus;
  };
  const auto same = std::ranges::find_if(costs.rates, [&](const program_rate& r) {
    return r.gpu == rate.gpu && r.gpus == rate.gpus && ranks(r) == ranks(rate);
  });
  if (same != costs.rates.end()) {
    *same = rate;
    return;
  }
  if (costs.rates.size() >= admission::max_rates) costs.rates.erase(costs.rates.begin());
  costs.rates.push_back(rate);
}

}  // namespace

bool have_other_rates(const program_costs& now, const program_costs& before) {
  constexpr double noise = 0.02;
  return !std::ranges::equal(now.rates, before.rates, [](const auto& a, const auto& b) {
    return a.gpu == b.gpu && a.gpus == b.gpus && a.data_parallel == b.data_parallel &&
           std::abs(a.samples_per_s - b.samples_per_s) <= noise * b.samples_per_s;
  });
}

/// Only a stop after which something was saved shows how long saving takes: a program that was
/// still starting ends at once, and one that was killed has taken its whole grace.
void add_attempt(elastic_record& record, const job_spec& spec, const lease_record& lease,
                 const std::string& gpu_type, double at_s, std::uint64_t saved) {
  const auto end = lease.program.value_or(program_end{});
  if (record.stopped_at_s > 0 && end.start_s)
    record.pause_s =
        lease.granted.at_s + *end.start_s + end.step_s.value_or(0) - record.stopped_at_s;
  if (end.start_s) keep_newest(record.costs.starts_s, *end.start_s);
  if (const auto rate = rate_of_attempt(spec, lease.granted, gpu_type, end.step_s.value_or(0)))
    set_rate(record.costs, *rate);
  const auto reached = end.reached.value_or(saved);
  record.lost_iterations += reached - std::min(reached, saved);
  record.stopped_at_s = lease.revoked_s.value_or(at_s);
  if (!lease.revoked_s || is_failure(lease.outcome)) return;
  ++record.stops;
  if (lease.outcome == lease_outcome::preempted && end.saved && *end.saved >= reached &&
      end.start_s)
    keep_newest(record.costs.saves_s, at_s - *lease.revoked_s);
}

std::shared_ptr<const elastic_record> record_by_now(const ledger& book, const job_record& j,
                                                    const progress_report* known) {
  if (!j.elastic) return nullptr;
  auto record = std::make_shared<elastic_record>(*j.elastic);
  const auto* lease = book.lease_of(j);
  if (lease && known && known->lease == lease->granted.lease)
    if (const auto rate = rate_of_attempt(*j.spec, lease->granted, book.gpu_type_of(lease->granted),
                                          known->iteration_s))
      set_rate(record->costs, *rate);
  return record;
}

elastic_status elastic_status_of(const cluster& c, const ledger& book, const job_record& j,
                                 const progress_report* known) {
  const auto* lease = book.lease_of(j);
  const auto& given = *j.spec->program.elastic;
  elastic_status s;
  s.saved = j.progress.iterations_done;
  s.start_s = given.start_s;
  s.save_s = given.save_s;
  auto rates = given.rates;
  if (lease) s.world_size = gpus_of(lease->granted);
  if (const auto record = record_by_now(book, j, known)) {
    s.stops = record->stops;
    s.lost_iterations = record->lost_iterations;
    if (const auto start_s = median_of(record->costs.starts_s)) s.start_s = start_s;
    if (const auto save_s = median_of(record->costs.saves_s)) s.save_s = save_s;
    if (record->pause_s > 0) s.pause_s = record->pause_s;
    program_costs all{{}, {}, std::move(rates)};
    for (const auto& r : record->costs.rates) set_rate(all, r);
    rates = std::move(all.rates);
    if (lease && known && known->lease == lease->granted.lease) {
      if (known->saved) s.saved = std::max(s.saved, *known->saved);
      if (known->start_s && record->stopped_at_s > 0)
        s.pause_s =
            lease->granted.at_s + *known->start_s + known->iteration_s - record->stopped_at_s;
      if (known->start_s && record->costs.starts_s.empty()) s.start_s = known->start_s;
    }
  }
  for (auto& r : rates) {
    const double estimated = planners::estimated_rate(c, *j.spec, r);
    s.rates.push_back({std::move(r), estimated});
  }
  return s;
}

// -- start_times

/// The first report may come several iterations late: their time is taken off once the program
/// knows it.
void start_times::on_report(const lease_granted& lease, std::uint64_t before,
                            const program_progress& p, double now_s) {
  const auto begun = p.resumed.value_or(before);
  if (!p.iteration || *p.iteration <= begun) return;
  auto& first =
      leases_.try_emplace(lease.lease, first_report{now_s, *p.iteration - begun, {}}).first->second;
  if (!first.start_s && p.step_s > 0)
    first.start_s =
        std::max(0.0, first.at_s - lease.at_s - static_cast<double>(first.iterations) * p.step_s);
}

std::optional<double> start_times::of(lease_id lease) const {
  const auto* known = find_in(leases_, lease);
  return known ? known->start_s : std::nullopt;
}

}  // namespace troupe::actors
