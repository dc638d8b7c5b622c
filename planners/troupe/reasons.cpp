#include "planners/troupe/reasons.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

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

std::string why_assigned(const cluster& c, const assigned& a) {
  const auto& x = *a.who;
  const bool runs = !x.job->where.empty();
  if (!a.option)
    return fmt::format("gets {}, because no GPUs of one kind hold it", of_nodes(c, a.mixed_where));
  const auto& how = x.options()[*a.option].how;
  const double new_s = x.samples_left / how.samples_per_s + c.settings.restart_s;
  if (!runs)
    return fmt::format("starts on {}, the best of {} configurations: {:.0f} s to its end; {}",
                       gpus_text(c, how), x.options().size(), new_s, behind_text(a));
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

std::string why_behind(const cluster& c, const contender& x, std::uint32_t idle, std::size_t before,
                       std::size_t fixed) {
  const plan* least = nullptr;
  for (const auto& o : x.options())
    if (least == nullptr || o.how.gpus() < least->gpus()) least = &o.how;
  for (const auto& p : *x.job->plans)
    if (x.options().empty() && p.bytes_per_gpu > x.job->bytes_floor &&
        (least == nullptr || p.gpus() < least->gpus()))
      least = &p;
  return fmt::format(
      "needs {} at least, and {} GPUs are idle; {} running jobs have a higher priority or less "
      "than its "
      "{:.3g} GPU-seconds of work left, and {} others are not stopped for it",
      least ? gpus_text(c, *least) : "more GPUs", idle, before, x.work(), fixed);
}

}  // namespace troupe::planners
