#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "messages/stage.hpp"
#include "messages/units.hpp"

namespace troupe::actors {

/// Merges a newer report into `known`, with the iterations and events of both. Iterations in
/// `known` from the first newer one on are replaced: the job resumed from a checkpoint and repeated
/// them.
void append(training_report& known, const training_report& newer);

/// Training reports by job, in bounded memory: for each training the newest `exact_iterations`, at
/// most as many older ones (every n-th, with n doubling as they grow), and the newest `kept_news`
/// events; for ended trainings only the last `kept_ended`.
class training_history {
 public:
  static constexpr std::size_t exact_iterations = 1000, kept_news = 200, kept_ended = 100;

  /// What of a report must outlive the controller, if it has iterations, a checkpoint or a sentence
  /// that nobody has told before. Numbers of each stage are left out: they are many, and come again
  /// with the next report.
  std::optional<training_report> to_keep(const training_report& r) const;
  /// A duplicate or late report changes nothing.
  void add(const training_report& r);
  /// The job has ended: its history may be dropped once enough others have ended.
  void ended(job_id job);

  void forget(job_id job) { jobs_.erase(job); }
  /// Reports that make this log of an empty one, without each stage's numbers: one a job.
  std::vector<training_report> snapshot() const;

  /// The newest report, with the iterations and news after a position that was answered before (0:
  /// all that is kept), and the newest position; nothing: nobody has told of this job, or what was
  /// told is forgotten.
  std::optional<std::pair<training_report, std::uint64_t>> since(job_id job,
                                                                 std::uint64_t after) const;

  /// The newest report with the last few iterations and no news, for what goes by their pace.
  std::optional<training_report> recent(job_id job) const;

  /// How many iterations the leases before this one have come to, and how long one took in the
  /// middle. 0: nothing is known, or this lease's trainer has told of itself already.
  std::uint64_t reached(job_id job, lease_id lease) const;
  double took_s(job_id job, lease_id lease) const;

  /// Iterations in the newest whole checkpoint that a lease's trainer has told of.
  std::uint64_t saved(job_id job, lease_id lease) const;

 private:
  // Positions number all that was ever told of a job, so that a follower can say what it has.
  struct numbered_iteration {
    std::uint64_t position = 0;
    iteration_record what;
  };
  struct history {
    training_report newest;  // without iterations and news
    std::uint64_t position = 0;
    std::vector<numbered_iteration> older;  // iterations that `stride` divides, and the first one
    std::deque<numbered_iteration> exact;
    std::uint64_t stride = 1;
    std::deque<std::pair<std::uint64_t, std::string>> news;

    void forget_from(std::uint64_t iteration);
    void add(const iteration_record& i);
    bool empty() const { return older.empty() && exact.empty(); }
  };
  const history* of(job_id job) const;
  /// The history that leases before this one have left, or null.
  const history* before(job_id job, lease_id lease) const;

  std::map<job_id, history> jobs_;
  std::deque<job_id> ended_;
};

}  // namespace troupe::actors
