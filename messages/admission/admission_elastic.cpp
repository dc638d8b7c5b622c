#include <algorithm>
#include <tuple>

#include "messages/admission/admission.hpp"
#include "messages/admission/admission_problems.hpp"
#include "messages/domain/work_kind.hpp"

// `elastic:` of programs: which stops and GPUs its user allows, and its known costs.

namespace troupe::admission {

namespace {

problem check_gpus(const elastic& e, const job_spec& job) {
  if (auto p = out_of_range(e.min_gpus, {1, max_gpus})) return inside("gpus", std::move(p));
  if (e.max_gpus > max_gpus) return inside("gpus", out_of_range(e.max_gpus, {1, max_gpus}));
  if (e.max_gpus > 0 && e.min_gpus > e.max_gpus)
    return fmt::format("gpus: found [{}, {}], expected the smaller number first", e.min_gpus,
                       e.max_gpus);
  // One limit for all planners: the reader of job files makes it the smaller of the two.
  if (e.max_gpus > 0 && job.limits.max_gpus.value_or(max_gpus + 1) > e.max_gpus)
    return fmt::format("gpus: found at most {}, but max_gpus is larger or missing", e.max_gpus);
  if (job.request.gpus < e.min_gpus)
    return fmt::format("gpus: found at least {}, but the job's first number (gpus) is {}",
                       e.min_gpus, job.request.gpus);
  if (job.limits.max_gpus && e.min_gpus > *job.limits.max_gpus)
    return fmt::format("gpus: found at least {}, expected at most max_gpus ({})", e.min_gpus,
                       *job.limits.max_gpus);
  if (e.same_gpus && (e.min_gpus != 1 || e.max_gpus != 0))
    return "gpus: found both same and a range, expected one of them";
  return {};
}

problem check_types(const elastic& e, const job_spec& job) {
  if (e.types.size() > max_gpu_types)
    return fmt::format("types: found {} names, expected at most {}", e.types.size(), max_gpu_types);
  if (std::ranges::find(e.types, "") != e.types.end()) return "types: found an empty name";
  auto sorted = e.types;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    return fmt::format("types: found '{}' twice", shown(*twice));
  if (e.same_types && !e.types.empty())
    return "types: found both same and names, expected one of them";
  if (const auto& only = job.limits.required_gpu_type;
      !only.empty() && !e.types.empty() && std::ranges::find(e.types, only) == e.types.end())
    return fmt::format("types: lack gpu_type ('{}')", shown(only));
  return {};
}

problem check_rates(const elastic& e) {
  if (e.rates.size() > max_rates)
    return fmt::format("rates: found {}, expected at most {}", e.rates.size(), max_rates);
  std::vector<std::tuple<std::string_view, std::uint32_t, std::uint32_t>> of;
  for (const auto& rate : e.rates) {
    if (auto p = first_invalid_inside(rate_keys(), rate)) return inside("rates", std::move(p));
    if (rate.gpu.empty()) return "rates: gpu: missing";
    if (rate.data_parallel > rate.gpus)
      return fmt::format("rates: data_parallel: found {}, expected at most gpus ({})",
                         rate.data_parallel, rate.gpus);
    const auto ranks = rate.data_parallel > 0 ? rate.data_parallel : rate.gpus;
    of.emplace_back(rate.gpu, rate.gpus, ranks);
  }
  std::ranges::sort(of);
  if (const auto twice = std::ranges::adjacent_find(of); twice != of.end())
    return fmt::format("rates: found {} {} with data_parallel {} twice", std::get<1>(*twice),
                       shown(std::get<0>(*twice)), std::get<2>(*twice));
  return {};
}

}  // namespace

std::optional<objection> objection_to_elastic(const job_spec& job) {
  if (!job.program.elastic) return {};
  if (!facts_of(job).has_processes)
    return failure("elastic",
                   "for programs (command:) only; a training may be stopped and moved without it");
  const auto& e = *job.program.elastic;
  return at_key("elastic",
                first_of([&] { return first_invalid_inside(elastic_keys(), e); },
                         [&] { return check_gpus(e, job); }, [&] { return check_types(e, job); },
                         [&] { return check_rates(e); }));
}

}  // namespace troupe::admission
