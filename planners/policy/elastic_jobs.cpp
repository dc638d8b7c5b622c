#include "planners/policy/elastic_jobs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "messages/admission/measured.hpp"
#include "messages/base/invariant.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cost/program_time.hpp"
#include "planners/devices/guesses.hpp"

namespace troupe::planners {

namespace {

/// The record of a job that has had an attempt; null: it has not.
const elastic_record* first_of(const job_view& j) {
  return j.elastic && j.elastic->first_gpus > 0 ? j.elastic.get() : nullptr;
}

bool is_data_parallel(const plan& how) {
  return how.tensor_parallel == 1 && how.pipeline_parallel == 1;
}

/// A model that no GPU holds alone needs another layout from the beginning.
bool may_begin_with(const job_view& j, const plan& how) {
  return is_data_parallel(how) || !j.plans || std::ranges::none_of(*j.plans, is_data_parallel);
}

bool has_layout(const job_view& j, const plan& how) {
  const auto* first = first_of(j);
  if (!first) return may_begin_with(j, how);
  return how.tensor_parallel == first->first_tensor_parallel &&
         how.pipeline_parallel == first->first_pipeline_parallel;
}

bool has_number(const job_view& j, std::uint32_t gpus) {
  const auto& e = *j.spec->program.elastic;
  const auto* first = first_of(j);
  if (e.same_gpus) return !first || gpus == first->first_gpus;
  return gpus >= e.min_gpus && (e.max_gpus == 0 || gpus <= e.max_gpus);
}

bool has_type(const job_view& j, const std::string& gpu_type) {
  const auto& e = *j.spec->program.elastic;
  const auto* first = first_of(j);
  if (e.same_types) return !first || gpu_type == first->first_type;
  return e.types.empty() || std::ranges::find(e.types, gpu_type) != e.types.end();
}

}  // namespace

bool may_have(const job_view& j, const plan& how, const std::string& gpu_type) {
  if (!j.facts().elastic) return true;
  return has_number(j, how.gpus()) && has_type(j, gpu_type) &&
         (j.spec->program.elastic->any_layout || has_layout(j, how));
}

plan in_its_layout(const job_view& j, plan how) {
  if (!j.facts().elastic || j.spec->program.elastic->any_layout || has_layout(j, how)) return how;
  const auto* first = first_of(j);
  const auto tensor = first ? first->first_tensor_parallel : 1;
  const auto stages = first ? first->first_pipeline_parallel : 1;
  const auto gpus = how.gpus();
  if (gpus % (tensor * stages) != 0) return how;
  how.data_parallel = gpus / (tensor * stages);
  how.tensor_parallel = tensor;
  how.pipeline_parallel = stages;
  how.bytes_per_gpu = 0;
  return how;
}

double start_of(const cluster& c, const job_view& j) {
  if (!j.facts().elastic) return c.settings.restart_s;
  const auto measured = j.elastic ? median_of(j.elastic->costs.starts_s) : std::nullopt;
  return measured ? *measured : j.spec->program.elastic->start_s.value_or(c.settings.restart_s);
}

double restart_of(const cluster& c, const job_view& j) {
  if (!j.facts().elastic) return c.settings.restart_s;
  const auto measured = j.elastic ? median_of(j.elastic->costs.saves_s) : std::nullopt;
  return start_of(c, j) + (measured ? *measured : j.spec->program.elastic->save_s.value_or(0));
}

bool has_measured_rate(const job_view& j) {
  return j.facts().elastic && j.elastic && !j.elastic->costs.rates.empty();
}

namespace {

gpu_index type_named(const cluster& c, const std::string& name) {
  const auto at = std::ranges::find(c.gpus, name, &gpu_type::name);
  return static_cast<gpu_index>(at - c.gpus.begin());
}

/// On GPUs of one type, packed on as few nodes as hold them; 0 samples/s: no node has the type.
iteration_estimate estimate_on(const cluster& c, const job_spec& job, const plan& how,
                               gpu_index g) {
  const auto nodes = g < c.gpus.size() ? nodes_of_type(c, g) : std::vector<node_index>{};
  return nodes.empty() ? iteration_estimate{}
                       : estimate_iteration(c, job, how, pack(c, nodes, how.gpus()));
}

}  // namespace

double estimated_rate(const cluster& c, const job_spec& job, const program_rate& of) {
  const auto ranks = of.data_parallel > 0 ? of.data_parallel : of.gpus;
  if (ranks == 0 || of.gpus % ranks != 0) return 0;
  plan how;
  how.data_parallel = ranks;
  how.tensor_parallel = of.gpus / ranks;
  return estimate_on(c, job, how, type_named(c, of.gpu)).samples_per_s;
}

program_speeds::program_speeds(const cluster& c, const job_view& j) {
  if (!j.facts().elastic) return;
  for (const auto& gpu : c.gpus)
    if (is_estimated_by_guess(*j.spec, gpu)) guessed_.push_back(gpu.name);
  if (j.elastic)
    for (const auto& r : j.elastic->costs.rates) add(c, j, r);
  for (const auto& r : j.spec->program.elastic->rates) add(c, j, r);
}

/// The first of a key counts. There is no estimate, and no use, of a speed on GPUs that the cluster
/// does not have.
void program_speeds::add(const cluster& c, const job_view& j, program_rate rate) {
  if (rate.data_parallel == 0) rate.data_parallel = rate.gpus;
  if (!admission::is_rate(rate.samples_per_s) || rate.data_parallel == 0 ||
      rate.gpus % rate.data_parallel != 0)
    return;
  const auto same = [&](const known_speed& k) {
    return k.rate.gpu == rate.gpu && k.rate.gpus == rate.gpus &&
           k.rate.data_parallel == rate.data_parallel;
  };
  if (std::ranges::any_of(known_, same)) return;
  const double estimated = estimated_rate(c, *j.spec, rate);
  if (!(estimated > 0)) return;
  const double ratio = rate.samples_per_s / estimated;
  const bool guess = std::ranges::find(guessed_, rate.gpu) != guessed_.end();
  known_.push_back({std::move(rate), ratio, guess});
}

/// By the nearest number of GPUs of the type, in powers of two; without one by the geometric mean
/// of all types that say something of this one.
double program_speeds::ratio_at(const std::string& gpu_type, std::uint32_t gpus) const {
  TROUPE_INVARIANT(gpus > 0, "a plan has GPUs");
  const known_speed* nearest = nullptr;
  double distance = 0, logarithms = 0, counted = 0;
  const bool guess = std::ranges::find(guessed_, gpu_type) != guessed_.end();
  for (const auto& k : known_) {
    if (!k.guess || guess) logarithms += std::log(k.ratio), ++counted;
    const double d = std::abs(std::log2(double(k.rate.gpus) / gpus));
    if (k.rate.gpu != gpu_type || (nearest && d >= distance)) continue;
    nearest = &k;
    distance = d;
  }
  if (nearest) return nearest->ratio;
  return counted > 0 ? std::exp(logarithms / counted) : 1;
}

double program_speeds::rate_of(const plan& how, const std::string& gpu_type,
                               double estimated) const {
  if (known_.empty()) return estimated;
  for (const auto& k : known_)
    if (k.rate.gpu == gpu_type && k.rate.gpus == how.gpus() &&
        k.rate.data_parallel == how.data_parallel)
      return k.rate.samples_per_s;
  return estimated * ratio_at(gpu_type, how.gpus());
}

std::shared_ptr<const std::vector<plan>> plans_of_elastic(const cluster& c, const job_view& j) {
  if (!j.facts().elastic || !j.plans) return j.plans;
  const program_speeds speeds{c, j};
  std::vector<plan> out;
  for (const auto& p : *j.plans)
    for (const auto g : p.gpu_types) {
      const auto& type = c.gpus[g].name;
      if (!may_have(j, p, type)) continue;
      auto how = p;
      how.gpu_types = {g};
      // A plan for several types has the speed of the slowest and the price of the cheapest.
      if (const auto e =
              p.gpu_types.size() > 1 ? estimate_on(c, *j.spec, how, g) : iteration_estimate{};
          e.samples_per_s > 0)
        set_figures(how, e);
      how.samples_per_s = speeds.rate_of(how, type, how.samples_per_s);
      out.push_back(std::move(how));
    }
  return std::make_shared<const std::vector<plan>>(std::move(out));
}

std::shared_ptr<const job_spec> limits_of_elastic(const job_view& j) {
  const auto* first = first_of(j);
  if (!j.facts().elastic || !first) return j.spec;
  const auto& e = *j.spec->program.elastic;
  if (!e.same_gpus && !e.same_types) return j.spec;
  auto limited = *j.spec;
  if (e.same_types) limited.limits.required_gpu_type = first->first_type;
  if (e.same_gpus) {
    limited.request.gpus = first->first_gpus;
    limited.limits.max_gpus = first->first_gpus;
  }
  return std::make_shared<const job_spec>(std::move(limited));
}

// GPUs of several types are as fast as the slowest.
start_estimate estimate_start(const cluster& c, const job_view& j, const plan& how,
                              const allocation& where) {
  auto e = estimate_start(c, *j.spec, how, where);
  if (!j.facts().elastic || where.empty()) return e;
  e.start_s = start_of(c, j);
  if (!(e.iteration_s > 0)) return e;
  const program_speeds speeds{c, j};
  const double estimated = j.spec->global_batch / e.iteration_s;
  double rate = std::numeric_limits<double>::infinity();
  for (const auto& share : where)
    rate = std::min(rate, speeds.rate_of(how, c.gpu_of(share.node).name, estimated));
  e.iteration_s = j.spec->global_batch / rate;
  return e;
}

}  // namespace troupe::planners
