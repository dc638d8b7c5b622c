#include "cli/verbs/jobs/job_action.hpp"

namespace troupe::cli {

int job_action::run(output& out) {
  const auto ids = chosen_.ids(remote_);
  if (!ids)
    return ids.error().code == reason::kind::invalid ? out.bad(ids.error())
                                                     : out.failure(ids.error());
  if (chosen_.is_one()) {
    const job_result one = act_(remote_, ids->front());
    if (!one.document.is_null()) out.document(one.document);
    if (one.why) return out.failure(*one.why);
    out.line("{}", one.line);
    return exit_done;
  }
  json all = json::array();
  bool failed = false;
  for (const auto id : *ids) {
    const job_result one = act_(remote_, id);
    const bool silent = one.why && one.why->code == reason::kind::unavailable;
    if (silent && all.empty()) return out.failure(*one.why);
    all.push_back(one.document.is_null() ? json{{"job", id}, {"reason", one.why->text}}
                                         : one.document);
    if (one.why)
      out.note("troupe: {}", one.why->text);
    else
      out.line("{}", one.line);
    failed = failed || one.why;
    if (silent) break;
  }
  if (ids->empty()) out.line("No such jobs.");
  out.document({{"jobs", all}});
  return failed ? exit_no : exit_done;
}

}  // namespace troupe::cli
