#include "actors/node/awaited_work.hpp"

#include <algorithm>
#include <map>
#include <string_view>

#include <fmt/format.h>

namespace troupe::actors {

namespace {

constexpr std::size_t max_named = 8;  // jobs in a sentence

/// Only a training's first part has its job's description; a program has its name in a variable.
std::string name_of_job(const work_order& w) {
  constexpr std::string_view variable = "TROUPE_JOB_NAME=";
  if (w.train && w.train->part == 0) return w.train->spec.name;
  for (const auto& v : w.environment)
    if (v.starts_with(variable)) return v.substr(variable.size());
  return {};
}

}  // namespace

double grace_of(const troupe::cluster& c, const work_order& w) {
  if (w.serve) return c.settings.grace_s;
  if (w.train) return c.settings.preempt_grace_s;
  return w.program ? w.program->grace_s : 0;
}

awaited_work awaited(const troupe::cluster& c, const std::vector<const work_order*>& work) {
  awaited_work result;
  std::map<job_id, std::string> jobs;
  for (const auto* w : work) {
    result.within_s = std::max(result.within_s, grace_of(c, *w));
    const auto name = name_of_job(*w);
    jobs[w->job] = name.empty() ? fmt::to_string(w->job) : fmt::format("{} ({})", w->job, name);
  }
  if (jobs.empty()) return result;
  std::string names;
  std::size_t named = 0;
  for (const auto& [id, text] : jobs)
    if (++named <= max_named) names += (named > 1 ? ", " : "") + text;
  if (jobs.size() > max_named) names += fmt::format(" and {} more", jobs.size() - max_named);
  result.sentence = fmt::format("waits at most {:.3g} s for job{} {}", result.within_s,
                                jobs.size() > 1 ? "s" : "", names);
  return result;
}

}  // namespace troupe::actors
