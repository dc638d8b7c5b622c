#include "planners/troupe/reasons.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "messages/base/refuse.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/plans/shortage.hpp"
#include "planners/policy/elastic_jobs.hpp"

namespace troupe::planners {

namespace {

std::string gpus_text(const cluster& c, const plan& how) {
  std::string types;
  for (const auto g : how.gpu_types) types += (types.empty() ? "" : " or ") + c.gpus[g].name;
  return fmt::format("{} {}", how.gpus(), types);
}

std::string of_nodes(const cluster& c, const allocation& where) {
  std::string out;
  for (const auto& share : where) {
    const auto& name = c.gpu_of(share.node).name;
    if (out.find(name) == std::string::npos) out += (out.empty() ? "" : " and ") + name;
  }
  return fmt::format("{} {}", total_gpus(where), out);
}

std::string behind_text(const assigned& a) {
  if (a.behind == 0) return "nobody is behind it";
  return fmt::format("{} job{} {} behind it, so that a GPU-second costs {:.2g} s of waiting",
                     a.behind, a.behind == 1 ? "" : "s", a.behind == 1 ? "is" : "are", a.price);
}

}  // namespace

// Every figure of a sentence is one that the decision used; a sentence that restated a rule without
// its figures could not be checked by its reader.
std::string why_assigned(const cluster& c, const assigned& a) {
  const auto& x = *a.who;
  const bool runs = !x.job->where.empty();
  if (!a.option && x.job->facts().exact_gpus)
    return fmt::format("starts on {}, as many as it asks for (gpus); {}",
                       of_nodes(c, a.mixed->where), behind_text(a));
  if (!a.option)
    return fmt::format("gets {}, because no GPUs of one kind hold it", of_nodes(c, a.mixed->where));
  const auto& option = x.options()[*a.option];
  const auto& how = option.how;
  const double new_s = x.samples_left_on(option.guess) / how.samples_per_s + restart_of(c, *x.job);
  if (!runs)
    return fmt::format("starts on {}, the best of {} configurations: {}; {}", gpus_text(c, how),
                       x.options().size(),
                       x.job->facts().has_known_length ? fmt::format("{:.0f} s to its end", new_s)
                                                       : "how long it runs is not known",
                       behind_text(a));
  const auto now = total_gpus(x.job->where);
  const double present_s =
      x.samples_left / x.job->spec->global_batch * x.job->iteration_s + x.start_left_s;
  return fmt::format(
      "{} from {} to {}: {:.0f} s to its end with the restart, instead of {:.0f} s; {}",
      how.gpus() > now   ? "grows"
      : how.gpus() < now ? "shrinks"
                         : "moves",
      of_nodes(c, x.job->where), gpus_text(c, how), new_s, present_s, behind_text(a));
}

std::string why_behind(const snapshot& s, const contender& x, std::size_t before, std::size_t fixed,
                       const settling_jobs& settling) {
  const plan* min = nullptr;
  for (const auto& o : x.options())
    if (min == nullptr || o.how.gpus() < min->gpus()) min = &o.how;
  for (const auto& p : *x.job->plans)
    if (x.options().empty() && p.bytes_per_gpu > x.job->history.bytes_floor &&
        (min == nullptr || p.gpus() < min->gpus()))
      min = &p;
  const auto work = x.job->facts().has_known_length
                        ? fmt::format("its {:.3g} GPU-seconds of work left", x.work())
                        : std::string{"a job of middle length, as which it counts"};
  return fmt::format(
      "needs {}{}{}; {}{}; {} running jobs have a higher priority or less than {}, and {} others "
      "are not stopped for it{}",
      gpus_text(s.cluster, *min), x.job->facts().exact_gpus ? "" : " at least",
      scatter_text(s.cluster, s.idle, *x.job, *min), idle_text(s, *min), waits_for_text(s, *x.job),
      before, work, fixed, settling.text());
}

// The sentence up to its first time, and, behind a line break, up to its second: who asks later
// gets shorter times.
wait_note note_patient(const snapshot& s, const assigned& a, double until_s) {
  const auto why = because(reason::kind::insufficient,
                           "could start now, but waits for {}, which running jobs release in \n s: "
                           "with this wait it ends earlier and costs all jobs less; {}; in ",
                           gpus_text(s.cluster, a.who->options()[a.awaited].how), behind_text(a));
  return {a.who->job->id, wait_code::soon_released, s.at_change().now_s + a.wait_s, until_s,
          std::make_shared<const reason>(why)};
}

std::string why_patient(const snapshot& s, const wait_note& note) {
  const auto& text = note.why->text;
  const auto half = text.find('\n');
  return fmt::format("{}{:.0f}{}{:.0f} s it no longer waits for them", text.substr(0, half),
                     std::max(0.0, note.first - s.now_s), text.substr(half + 1),
                     std::max(0.0, note.second - s.now_s));
}

std::string settling_jobs::text() const {
  if (jobs == 0) return {};
  return fmt::format("; {} of them began lately and {} left alone, the first of them for {:.0f} s",
                     jobs, jobs == 1 ? "is" : "are", left_s);
}

}  // namespace troupe::planners
