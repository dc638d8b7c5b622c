#include <algorithm>
#include <tuple>
#include <type_traits>
#include <utility>

#include "actors/control/ledger/bounded_reports.hpp"
#include "actors/control/ledger/ends.hpp"
#include "actors/control/ledger/ledger.hpp"
#include "messages/admission/measured.hpp"
#include "messages/base/invariant.hpp"

// Conversion of a ledger to snapshot entries and back.

namespace troupe::actors {

namespace {

std::vector<std::uint32_t> indices_of(const std::vector<bool>& flags) {
  std::vector<std::uint32_t> result;
  for (std::uint32_t i = 0; i < flags.size(); ++i)
    if (flags[i]) result.push_back(i);
  return result;
}

/// Fails for an index beyond the parts.
expected<std::vector<bool>> flags_of(const std::vector<std::uint32_t>& parts, std::size_t size) {
  std::vector<bool> result(size, false);
  for (const auto part : parts) {
    if (part >= size) return contradiction("a lease of {} parts has no {}", size, part);
    result[part] = true;
  }
  return result;
}

/// The fields that a job's record and its entry in a snapshot have in common.
template <class Job>
auto common_fields(Job& j) {
  return std::tie(j.request, j.state, j.submitted_s, j.started_s, j.ended_s, j.progress, j.history,
                  j.lease, j.how, j.where, j.predicted_bytes, j.peak_bytes, j.memory, j.detail,
                  j.owner, j.lost_parts, j.exit_code, j.suspended, j.suspensions, j.failed_rank,
                  j.members, j.in, j.elastic, j.word, j.not_before_s);
}

/// The same of a lease.
template <class Lease>
auto common_lease_fields(Lease& l) {
  return std::tie(l.granted, l.revoked, l.outcome, l.detail, l.iterations, l.peak_bytes,
                  l.exit_code, l.failed_part, l.program, l.revoked_s, l.saved, l.rank);
}

job_kept kept(const job_record& j) {
  job_kept k;
  common_fields(k) = common_fields(j);
  k.job = j.id;
  k.spec = *j.spec;
  k.tries = j.tries.all();
  k.lost_succeeded = indices_of(j.lost_succeeded);
  return k;
}

job_record restored(const job_kept& k) {
  job_record j;
  common_fields(j) = common_fields(k);
  if (j.elastic) j.elastic = bounded(*std::move(j.elastic));
  if (!admission::is_memory(j.peak_bytes)) j.peak_bytes = 0;
  j.id = k.job;
  j.tries = shared_list{k.tries};
  j.spec = shared_value{k.spec};
  return j;
}

}  // namespace

/// By time of end and not by number: a job may wait for weeks and end today. Nobody asks for a
/// union that has ended.
jobs_forgotten ledger::long_ended(std::size_t keep) const {
  jobs_forgotten result;
  std::vector<std::pair<double, job_id>> by_end;
  for (const auto& [id, j] : jobs_) {
    if (!is_final(j.state)) continue;
    if (j.members)
      result.jobs.push_back(id);
    else
      by_end.emplace_back(j.ended_s, id);
  }
  std::sort(by_end.begin(), by_end.end());
  by_end.resize(by_end.size() - std::min(keep, by_end.size()));
  for (const auto& [ended_s, id] : by_end) result.jobs.push_back(id);
  return result;
}

expected<void> ledger::on(const jobs_forgotten& e) {
  for (const auto id : e.jobs)
    if (const auto* j = job(id); !j || !is_final(j->state))
      return contradiction("job {} is forgotten, but has not ended", id);
  for (const auto id : e.jobs) {
    // A client's request number may have been reused for a later job.
    const auto request = jobs_.at(id).request;
    if (const auto* of = requests_.find(request); of && *of == id) requests_.erase(request);
    TROUPE_INVARIANT(!closed_.contains(id), "a job that is forgotten has its end in the journal");
    jobs_.erase(id);
  }
  TROUPE_INVARIANT(jobs_.size() >= unfinished_, "no unfinished job is forgotten");
  return {};
}

/// Entries of their own for whole jobs and leases, since those that led to them are gone. Restoring
/// them gives a ledger that equals this one, which tests compare field by field.
std::vector<journal_entry> ledger::snapshot() const {
  std::vector<journal_entry> result;
  result.emplace_back(snapshot_begun{*epochs_, journal_, next_job_, next_lease_, clock_,
                                     latest_s_ > 0 ? std::optional{latest_s_} : std::nullopt});
  if (*roster_) result.emplace_back(**roster_);
  for (const auto& [n, d] : drained_) result.emplace_back(d);
  for (const auto& [id, j] : jobs_) {
    auto k = kept(j);
    if (const auto* outcome = closed_.find(id)) k.closed = *outcome;
    result.emplace_back(std::move(k));
  }
  for (const auto& [id, l] : leases_) {
    lease_kept k;
    common_lease_fields(k) = common_lease_fields(l);
    TROUPE_INVARIANT(l.ended.size() == l.granted.parts.size(),
                     "a lease in a snapshot knows all of its parts");
    k.ended = indices_of(l.ended);
    k.succeeded = indices_of(l.succeeded);
    if (auto zero = indices_of(l.ended_with_zero); !zero.empty())
      k.ended_with_zero = std::move(zero);
    if (l.grace_s > 0) k.grace_s = l.grace_s;
    k.word = word_beside(l.outcome, l.word);
    result.emplace_back(std::move(k));
  }
  return result;
}

expected<void> ledger::on(const snapshot_begun& e) {
  if (epoch() != 0 || !jobs_.empty()) return contradiction("a snapshot begins after other entries");
  if (!std::is_sorted(e.epochs.begin(), e.epochs.end()))
    return contradiction("a snapshot's epochs are not in order");
  epochs_ = shared_value{e.epochs};
  journal_ = e.journal;
  clock_ = e.clock;
  latest_s_ = e.latest_s.value_or(0);
  next_job_ = e.next_job;
  next_lease_ = e.next_lease;
  return {};
}

expected<void> ledger::on(const job_kept& e) {
  if (e.job >= next_job_ || jobs_.contains(e.job))
    return contradiction("job {} of a snapshot already exists, or is invalid", e.job);
  auto j = restored(e);
  auto succeeded = flags_of(e.lost_succeeded, e.lost_parts.size());
  if (!succeeded) return refuse(succeeded.error());
  j.lost_succeeded = std::move(*succeeded);
  if (!j.lost_parts.empty()) lost_.set(j.lease, j.id);
  jobs_.set(e.job, std::move(j));
  if (!e.members) requests_.set(e.request, e.job);
  if (!is_final(e.state)) ++unfinished_;
  if (e.closed) closed_.set(e.job, *e.closed);
  return {};
}

expected<void> ledger::on(const lease_kept& e) {
  const auto& g = e.granted;
  if (g.lease >= next_lease_ || leases_.contains(g.lease) || !jobs_.contains(g.job))
    return contradiction("lease {} of a snapshot belongs to no job, or is invalid", g.lease);
  auto ended = flags_of(e.ended, g.parts.size());
  auto succeeded = flags_of(e.succeeded, g.parts.size());
  if (!ended || !succeeded) return refuse((ended ? succeeded : ended).error());
  auto with_zero =
      flags_of(e.ended_with_zero.value_or(std::vector<std::uint32_t>{}), g.parts.size());
  if (!with_zero) return refuse(with_zero.error());
  lease_record l;
  common_lease_fields(l) = common_lease_fields(e);
  if (l.program) l.program = bounded(*l.program);
  if (!admission::is_memory(l.peak_bytes)) l.peak_bytes = 0;
  l.ended = std::move(*ended);
  l.succeeded = std::move(*succeeded);
  l.ended_with_zero = std::move(*with_zero);
  l.grace_s = e.grace_s.value_or(0);
  l.word = e.word.value_or(word_of(e.outcome));
  // Parts that have ended hold no GPUs: other leases may have them.
  auto held = g;
  for (std::size_t i = g.parts.size(); i-- > 0;)
    if (l.ended[i]) held.parts.erase(held.parts.begin() + static_cast<std::ptrdiff_t>(i));
  // A removed node's number of GPUs is no longer in the cluster: those of the leases are added
  // again.
  for (const auto& part : held.parts) {
    const auto* known = nodes_.find(part.node);
    if (!known || !known->removed) continue;
    auto node = *known;
    for (const auto d : part.devices)
      if (d >= node.holders.size()) node.holders.resize(std::size_t{d} + 1, 0);
    nodes_.set(part.node, std::move(node));
  }
  if (auto ok = check_parts(held); !ok) return ok;
  hold_parts(g, l.ended);
  leases_.set(g.lease, std::move(l));
  return {};
}

}  // namespace troupe::actors
