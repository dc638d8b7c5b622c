#include "actors/control/ledger/public_detail.hpp"

#include <algorithm>
#include <array>

#include "messages/domain/work_kind.hpp"

namespace troupe::actors {

namespace {

constexpr std::string_view hidden = "its owner and operators see why";
constexpr std::string_view status = "exit status ";

/// Sentences of Troupe's own begin so, and have nothing of the job's.
constexpr std::array<std::string_view, 26> own_sentences{
    "cancelled by",   "suspended by",  "requeued by",     "moved by",       "moved to",
    "drained",        "preempted",     "stopped after",   "stopped before", "stopped; the job",
    "resumed after",  "re-planned",    "node ",           "the node ",      "job ",
    "had succeeded",  "lost its node", "failed, or lost", "its decoder",    "its time limit",
    "its deadline",   "rank ",         "ranks ",          "the policy",     "it got no GPUs",
    "all its members"};

bool begins_with_one(std::string_view text) {
  return std::ranges::any_of(own_sentences, [&](auto own) { return text.starts_with(own); });
}

constexpr std::size_t max_own = 128;  // of Troupe's own words about a status

/// "exit status 9 (SIGKILL)"; a line of the output would follow behind a colon.
std::string exit_text(std::string_view detail) {
  const auto colon = detail.find(':');
  if (colon == std::string_view::npos) return std::string{detail.substr(0, max_own)};
  return std::string{detail.substr(0, std::min(colon, max_own))} +
         ": it says that it ran out of memory";
}

}  // namespace

std::string public_detail(std::string_view detail) {
  constexpr std::string_view latest = "; most recently: ";
  constexpr std::size_t max_prefix = 300;  // of names of hosts
  if (detail.empty()) return {};
  if (const auto end = detail.find(latest); end < max_prefix && begins_with_one(detail))
    return std::string{detail.substr(0, end + latest.size())} +
           public_detail(detail.substr(end + latest.size()));
  // "rank 1 on east-2: ", "stage 0 of pipeline 1 on node a: ", "node east-2: "
  constexpr std::string_view node = "node ";
  const auto at = detail.find(": ");
  const bool of_node = detail.starts_with(node) && detail.find(' ', node.size()) == at + 1;
  if (detail.starts_with("rank ") || detail.starts_with("stage ") || of_node)
    if (at < max_prefix)
      return std::string{detail.substr(0, at + 2)} + public_detail(detail.substr(at + 2));
  if (detail.starts_with(status)) return exit_text(detail);
  if (begins_with_one(detail)) return std::string{detail};
  return std::string{hidden};
}

bool has_own_text(const job_record& j) {
  return j.state == job_state::failed || j.history.out_of_memory > 0 ||
         j.exit_code.value_or(0) != 0 || j.elastic || !facts_of(*j.spec).has_processes;
}

}  // namespace troupe::actors
