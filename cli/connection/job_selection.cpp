#include "cli/connection/job_selection.hpp"

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>

namespace troupe::cli {

bool matches_pattern(const std::string& name, const std::string& pattern) {
  // After a `*`, the rest of the pattern is tried at every later place.
  std::size_t n = 0, p = 0, star = std::string::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++, resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++n, ++p;
    } else if (star != std::string::npos) {
      p = star + 1, n = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string::npos;
}

void job_selection::options(CLI::App& app) {
  std::vector<std::string> states;
  for (int s = 0; s <= static_cast<int>(job_state::cancelled); ++s)
    states.emplace_back(to_string(static_cast<job_state>(s)));
  app.add_flag("--mine", mine_, "Only jobs that this key has submitted");
  app.add_option("--name", pattern_, "Only jobs with such a name; * and ? match any characters");
  app.add_option("--states", states_, "Only jobs in these states: waiting,running")
      ->delimiter(',')
      ->check(CLI::IsMember(states));
}

bool job_selection::holds(const job_status& j, const std::string& caller) const {
  return (!mine_ || j.owner == caller) && (pattern_.empty() || matches_pattern(j.name, pattern_)) &&
         (states_.empty() || std::ranges::find(states_, to_string(j.state)) != states_.end());
}

void job_numbers::options(CLI::App& app, const char* what) {
  app.add_option("JOB", words_, what)->type_name("NUMBER|FIRST-LAST");
}

expected<std::vector<job_id>> job_numbers::ids() const {
  // A mistyped range must not become millions of requests.
  constexpr job_id max = 10'000;  // of a range
  std::vector<job_id> ids;
  for (const auto& word : words_) {
    const auto bad = [&word](std::string_view wanted) {
      return refuse(reason::kind::invalid, fmt::format("found '{}', expected {}", word, wanted));
    };
    job_id first = 0;
    const auto* const end = word.data() + word.size();
    auto read = std::from_chars(word.data(), end, first);
    auto last = first;
    if (read.ec == std::errc{} && read.ptr != end && *read.ptr == '-')
      read = std::from_chars(read.ptr + 1, end, last);
    if (read.ec != std::errc{} || read.ptr != end || first == 0)
      return bad("a job's number, or a range of them as 3-7");
    if (last < first) return bad("a range whose first number is not above its last");
    if (last - first >= max) return bad(fmt::format("a range of at most {} numbers", max));
    for (auto id = first; id <= last; ++id) ids.push_back(id);
  }
  // Each where it was named first.
  std::set<job_id> seen;
  std::erase_if(ids, [&](job_id id) { return !seen.insert(id).second; });
  return ids;
}

void chosen_jobs::options(CLI::App& app) {
  numbers_.options(app, "Job numbers, or ranges of them");
  selection_.options(app);
}

expected<std::vector<job_id>> chosen_jobs::ids(remote& r) const {
  const auto bad = [](const char* why) { return refuse(reason::kind::invalid, why); };
  // Both together could mean either set, and cancelling the wrong jobs cannot be undone.
  if (!numbers_.empty() && !selection_.empty())
    return bad("expected job numbers or --mine, --name and --states, found both");
  if (!numbers_.empty()) return numbers_.ids();
  if (selection_.empty()) return bad("expected job numbers, or --mine, --name or --states");
  const auto reply = r.ask_all_jobs();
  if (!reply) return refuse(reply.error());
  std::vector<job_id> ids;
  for (const auto& j : reply->jobs)
    // Filters choose among jobs that the verb can still change; numbers may name any, and get an
    // answer each.
    if (!is_final(j.state) && selection_.holds(j, r.caller())) ids.push_back(j.job);
  return ids;
}

}  // namespace troupe::cli
