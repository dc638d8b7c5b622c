#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "messages/base/fields.hpp"

namespace troupe {

/// Why an attempt, a part of it, a member of a union or a job has ended, in one word. New words
/// are added at the end.
enum class end_word : std::uint8_t {
  finished,
  exit,           // its command ended with a status other than 0
  signal,         // a signal that Troupe did not send killed it
  out_of_memory,  // of a GPU
  start_failed,   // its command or its files cannot be used
  diverged,       // a training whose numbers are not finite
  rank_wait,      // rank_wait_s passed after other parts had ended
  time_limit,
  deadline,
  infeasible,  // no plan for it can run in this cluster
  lost_node,   // its node was killed, or silent for longer than its lease
  cancelled,
  suspended,
  requeued,
  moved,         // by its owner or an operator
  drained,       // its node, with --stop
  node_stopped,  // its node's process was ended in an orderly way
  removed,       // its node left the cluster
  preempted,     // by the policy, which stops, resizes or moves it
  merged,        // its union was changed or ended
  not_started    // its node could not start it, for a reason that is not the job's
};

/// Words of end_word, in its order.
inline constexpr std::array<std::string_view, 21> end_words{
    "finished",  "exit",       "signal",     "out_of_memory", "start_failed", "diverged",
    "rank_wait", "time_limit", "deadline",   "infeasible",    "lost_node",    "cancelled",
    "suspended", "requeued",   "moved",      "drained",       "node_stopped", "removed",
    "preempted", "merged",     "not_started"};

constexpr std::string_view to_string(end_word w) {
  return end_words[static_cast<std::size_t>(w)];
}

/// Who causes an end: `retries` counts what jobs do, `max_restarts` what nodes do, and nothing
/// counts what people and policies do.
enum class blame : std::uint8_t { nobody, job, node, people, policy };

constexpr blame blame_of(end_word w) {
  switch (w) {
    case end_word::finished:
      return blame::nobody;
    case end_word::exit:
    case end_word::signal:
    case end_word::out_of_memory:
    case end_word::start_failed:
    case end_word::diverged:
    case end_word::rank_wait:
    case end_word::time_limit:
    case end_word::deadline:
    case end_word::infeasible:
      return blame::job;
    case end_word::lost_node:
    case end_word::not_started:
      return blame::node;
    case end_word::cancelled:
    case end_word::suspended:
    case end_word::requeued:
    case end_word::moved:
    case end_word::drained:
    case end_word::node_stopped:
    case end_word::removed:
      return blame::people;
    case end_word::preempted:
    case end_word::merged:
      return blame::policy;
  }
  return blame::nobody;
}

/// How an attempt of a job has ended.
struct attempt_end {
  end_word why = end_word::finished;
  double started_s = 0;                     // when its lease was granted
  double ended_s = 0;                       // when its last part had ended
  double gpu_s = 0;                         // GPUs times the time that they were held
  std::optional<std::uint32_t> node{};      // index of the node that is the reason
  std::optional<std::uint32_t> rank{};      // the program's rank that failed
  std::optional<std::int32_t> exit_code{};  // of its command; 128 + n for a signal n

  TROUPE_FIELDS(attempt_end, why, started_s, ended_s, gpu_s, node, rank, exit_code);
};

/// When a program that has failed is queued again: `retries:` of a job file.
struct retry_rule {
  std::uint32_t attempts = 0;  // repetitions in a row without a newly saved iteration
  double delay_s = 10;         // before the first; doubled each time
  double max_delay_s = 600;    // at most
  std::vector<end_word> on{};  // only after these; empty: exit, signal, start_failed, rank_wait
  std::vector<std::int32_t> unless_exit{};  // not after these exit statuses

  TROUPE_FIELDS(retry_rule, attempts, delay_s, max_delay_s, on, unless_exit);
};

}  // namespace troupe
