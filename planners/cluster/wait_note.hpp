#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/job.hpp"

namespace troupe::planners {

/// Why a waiting job got nothing in a decision. In brackets: the two numbers of its note.
enum class wait_code : std::uint8_t {
  too_few,    // fewer GPUs are idle than it needs (GPUs that it needs; those of them that are idle)
  too_far,    // enough are idle, but not where it can use them (the same)
  blocked,    // a job before it has to start first (that job)
  outranked,  // others come before it (how many; those that are not stopped for it)
  /// It could start, and waits for GPUs that running jobs release (when they do; until when it
  /// waits: both as snapshot::now_s). wait_note::why: the sentence around these.
  soon_released,
  searched,  // a search found nothing: wait_note::why (0; 0)
};

/// A policy notes it of a waiting job while it decides, so that the question why the job waits
/// decides nothing again.
struct wait_note {
  job_id job = 0;
  wait_code code = wait_code::too_few;
  double first = 0, second = 0;
  std::shared_ptr<const reason> why{};  // null: the code says all
};

/// The notes of one decision.
class wait_notes {
 public:
  void clear() { all_.clear(); }
  void add(wait_note n) { all_.push_back(std::move(n)); }
  /// The last one of a job: a policy may be asked again for a part of the cluster. Null: none.
  const wait_note* find(job_id job) const {
    const auto at = std::find_if(all_.rbegin(), all_.rend(),
                                 [job](const wait_note& n) { return n.job == job; });
    return at == all_.rend() ? nullptr : &*at;
  }
  /// The last one of a job with this code.
  const wait_note* find(job_id job, wait_code code) const {
    const auto at = std::find_if(all_.rbegin(), all_.rend(), [&](const wait_note& n) {
      return n.job == job && n.code == code;
    });
    return at == all_.rend() ? nullptr : &*at;
  }

 private:
  std::vector<wait_note> all_;
};

/// Why a job waits that the last decision did not see.
inline reason not_decided_yet() {
  return {reason::kind::insufficient, "waits for the next decision"};
}

}  // namespace troupe::planners
