#include "simulation/oracle.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "actors/control/ledger/ends.hpp"
#include "messages/domain/work_kind.hpp"

namespace troupe::simulation {

oracle::oracle(const cluster& c, std::function<double(node_index)> slowdown)
    : cluster_{c}, slowdown_{std::move(slowdown)} {}

namespace {

/// The largest count that a host whose clock is fast or slow can have of these iterations. It
/// counts the time of the start, too.
std::uint64_t by_any_clock(std::uint64_t iterations, const lease_granted& g) {
  const double start = g.iteration_s > 0 ? g.start_s / g.iteration_s : 0;
  return iterations + 1 +
         static_cast<std::uint64_t>((static_cast<double>(iterations) + start) / 20);
}

template <class Other>
constexpr const char* name_of(const Other&) {
  return "other entry";
}
constexpr const char* name_of(const epoch_begun&) {
  return "epoch";
}
constexpr const char* name_of(const job_accepted&) {
  return "accepted";
}
constexpr const char* name_of(const lease_granted&) {
  return "granted";
}
constexpr const char* name_of(const lease_revoked&) {
  return "revoked";
}
constexpr const char* name_of(const part_ended&) {
  return "part ended";
}
constexpr const char* name_of(const job_ended&) {
  return "ended";
}
constexpr const char* name_of(const member_ended&) {
  return "member ended";
}
constexpr const char* name_of(const training_progress&) {
  return "training progress";
}
constexpr const char* name_of(const job_suspended&) {
  return "suspended";
}
constexpr const char* name_of(const program_saved&) {
  return "program saved";
}

}  // namespace

template <class Entry>
void oracle::print(const Entry& e) const {
  if constexpr (requires { e.lease; })
    fmt::print(stderr, "{:.6f} {} lease {}\n", now_s_, name_of(e), e.lease);
  else if constexpr (requires { e.job; })
    fmt::print(stderr, "{:.6f} {} job {}\n", now_s_, name_of(e), e.job);
  else
    fmt::print(stderr, "{:.6f} {}\n", now_s_, name_of(e));
  if constexpr (requires { e.detail; }) fmt::print(stderr, "    {}\n", e.detail);
  if constexpr (requires { e.parts; })
    for (const auto& p : e.parts)
      fmt::print(stderr, "    node {}, incarnation {}, {} GPUs, job {}\n", p.node, p.incarnation,
                 p.devices.size(), e.job);
  if constexpr (requires { e.report; })
    for (const auto& line : e.report.events) fmt::print(stderr, "    {}\n", line);
}

void oracle::on_entry(double now_s, const journal_entry& e) {
  now_s_ = now_s;
  ++entries_;
  if (trace_) std::visit([&](const auto& entry) { print(entry); }, e);
  if (owed_ != 0 && !std::holds_alternative<epoch_begun>(e)) {
    const auto* revoked = std::get_if<lease_revoked>(&e);
    if (!revoked || revoked->lease != owed_)
      fail("a part of lease {} ended badly and the others are not revoked", owed_);
    owed_ = 0;
  }
  std::visit([this](const auto& entry) { on(entry); }, e);
}

void oracle::on_work(double now_s, node_index n, const work_order* w, const part_report* ended) {
  now_s_ = now_s;
  if (trace_ && !w) fmt::print(stderr, "{:.6f} node {} dies\n", now_s, n);
  if (trace_ && w)
    fmt::print(stderr, "{:.6f} node {} {} lease {} of job {}, {} iterations {}\n", now_s, n,
               ended ? "ends" : "begins", w->lease, w->job,
               ended ? ended->iterations : w->iterations, ended ? ended->detail : "");
  if (!w)
    dies(n);
  else if (!ended)
    begins(n, *w);
  else
    ends(n, *w, *ended);
}

// -- what the controller writes down

void oracle::on(const job_accepted& e) {
  const auto [at, fresh] = jobs_.try_emplace(e.job, job_view{.spec = e.spec});
  if (!fresh) fail("job {} is accepted twice", e.job);
  if (!e.members) return;
  if (trace_)
    fmt::print(stderr, "    a union of {} {}\n", e.members->jobs.size(),
               to_string(e.members->kind));
  at->second.members = e.members;
  for (const auto id : e.members->jobs) {
    const auto& j = jobs_[id];
    if (j.ended || j.in != 0 || j.members)
      fail("union {} has job {}, which does not wait", e.job, id);
    if (!j.spec.merging.allowed) fail("union {} has job {}, whose user has not agreed", e.job, id);
    if (j.spec.merging.kind.value_or(merge_kind::shared) != e.members->kind)
      fail("union {} has job {} of another kind", e.job, id);
  }
}

std::vector<job_id> oracle::members_in(const job_view& of_union, job_id id) const {
  std::vector<job_id> out;
  for (const auto m : of_union.members->jobs)
    if (jobs_.at(m).in == id) out.push_back(m);
  return out;
}

/// The iterations of a union's members once `done` of its own are. With adapters each has one in
/// every round until it has no more; a round takes as long as it has samples.
std::map<job_id, std::uint64_t> oracle::done_in(const job_view& of_union,
                                                std::uint64_t done) const {
  const auto all = of_union.spec.iterations;
  done = std::min(done, all);
  std::map<job_id, std::uint64_t> out;
  if (of_union.members->kind == merge_kind::shared) {
    for (const auto& [id, n] : of_union.brought) out[id] = n * done / all;
    return out;
  }
  double samples = 0;
  for (const auto& [id, n] : of_union.brought)
    samples += static_cast<double>(n) * jobs_.at(id).spec.global_batch;
  samples *= static_cast<double>(done) / static_cast<double>(all);
  for (std::uint64_t round = 1;; ++round) {
    double needed = 0;
    for (const auto& [id, n] : of_union.brought)
      if (n >= round) needed += jobs_.at(id).spec.global_batch;
    if (needed == 0 || samples + 1e-4 < needed) return out;
    samples -= needed;
    for (const auto& [id, n] : of_union.brought) out[id] = std::min(n, round);
  }
}

/// Its GPUs are free, or their holder's part goes on and the lease is to follow it.
void oracle::follow(const lease_granted& e) {
  for (const auto& part : e.parts)
    for (const auto d : part.devices) {
      lease_id other = 0;
      if (runs_on(part.node, d, &other) && other != e.after)
        fail("lease {} is granted GPU {} of node {}, where lease {} still runs", e.lease, d,
             part.node, other);
      if (!e.after) continue;
      const auto before = leases_.find(*e.after);
      if (before == leases_.end()) continue;
      for (const auto& p : before->second.parts)
        if (!p.released && p.node == part.node &&
            std::ranges::find(p.devices, d) != p.devices.end() &&
            !successors_.try_emplace({part.node, d}, e.lease).second)
          fail("leases {} and {} are both to follow lease {} on GPU {} of node {}", e.lease,
               successors_.at({part.node, d}), *e.after, d, part.node);
    }
}

void oracle::on(const lease_granted& e) {
  const auto job = jobs_.find(e.job);
  if (job == jobs_.end() || job->second.ended)
    return fail("lease {} is for job {}, which is not there or has ended", e.lease, e.job);
  lease_id other = 0;
  if (job_runs(e.job, 0, &other))
    fail("lease {} is granted to job {}, of which lease {} still runs", e.lease, e.job, other);
  if (job->second.in != 0)
    fail("lease {} is granted to job {}, which runs in union {}", e.lease, e.job, job->second.in);
  auto [it, fresh] = leases_.try_emplace(e.lease);
  if (!fresh) return fail("lease {} is granted twice", e.lease);
  auto& l = it->second;
  l.granted = e;
  for (const auto& part : e.parts) {
    auto& p = l.parts.emplace_back();
    p.node = part.node;
    p.devices = part.devices;
  }
  follow(e);
  job->second.lease = e.lease;
  if (!job->second.members) return;
  std::uint64_t sum = 0, max = 0;
  for (const auto id : job->second.members->jobs) {
    auto& m = jobs_.at(id);
    if (m.in != 0) fail("job {} is in unions {} and {}", id, m.in, e.job);
    if (job_runs(id, 0, &other)) fail("job {} of a union runs by lease {}", id, other);
    m.in = e.job;
    m.lease = e.lease;
    job->second.brought[id] = m.spec.iterations - m.done;
    sum += m.spec.iterations - m.done;
    max = std::max(max, m.spec.iterations - m.done);
  }
  const bool shared = job->second.members->kind == merge_kind::shared;
  if (job->second.spec.iterations != (shared ? max : sum))
    fail("union {} is to do {} iterations, and its members have {} to do, {} at most", e.job,
         job->second.spec.iterations, sum, max);
}

void oracle::on(const lease_revoked& e) {
  const auto it = leases_.find(e.lease);
  if (it == leases_.end()) return;
  it->second.revoked = true;
  const auto word = actors::word_of(e);
  if (!it->second.why || word == end_word::cancelled) it->second.why = word;
  const auto& j = jobs_.at(it->second.granted.job);
  if (e.why == lease_outcome::preempted && word != end_word::node_stopped &&
      facts_of(j.spec).has_processes && !j.spec.program.elastic && !j.suspended)
    fail("lease {} of program {} is revoked ({}), which nobody may stop", e.lease,
         it->second.granted.job, e.detail);
}

void oracle::on(const job_suspended& e) {
  if (const auto it = jobs_.find(e.job); it != jobs_.end()) it->second.suspended = e.suspended;
}

/// Each part of the lease has done what is saved, and it is more than was saved before.
void oracle::on(const program_saved& e) {
  const auto it = leases_.find(e.lease);
  if (it == leases_.end())
    return fail("lease {} is not running, but the journal records a save of its program", e.lease);
  auto& l = it->second;
  const auto& j = jobs_.at(l.granted.job);
  if (!facts_of(j.spec).elastic)
    fail("a save of lease {} is recorded, but job {} is not an elastic program", e.lease,
         l.granted.job);
  const auto before = std::max(j.done, l.saved.value_or(0));
  if (e.saved <= before)
    fail("lease {} has {} saved iterations, expected more than the {} before", e.lease, e.saved,
         before);
  for (const auto& p : l.parts) {
    const auto did = p.running ? done_by(p, l.granted) : p.done;
    if (e.saved > j.done + by_any_clock(did, l.granted))
      fail("lease {} has {} saved iterations, but node {} completed only {} after the first {}",
           e.lease, e.saved, p.node, did, j.done);
  }
  l.saved = e.saved;
}

void oracle::on(const part_ended& e) {
  const auto it = leases_.find(e.lease);
  if (it == leases_.end() || e.part >= it->second.parts.size() || it->second.parts[e.part].released)
    return fail("part {} of lease {} ends, and was not held", e.part, e.lease);
  auto& l = it->second;
  auto& p = l.parts[e.part];
  if (p.running)
    fail("the GPUs of lease {} on node {} are given back, and it still runs there ({})", e.lease,
         p.node, e.detail);
  p.released = true;
  for (const auto d : p.devices) successors_.erase({p.node, d});
  p.outcome = e.outcome;
  p.credited = e.iterations;
  if (e.program) p.saved = e.program->saved;
  // A training goes on without a part that is lost, but for its trainer's.
  p.left = l.granted.heals.value_or(false) && e.part > 0 && e.outcome == lease_outcome::lost &&
           !l.revoked;
  if (!p.left) note_why(l, e);
  if (facts_of(jobs_.at(l.granted.job).spec).elastic)
    check_saved(e, l, p);
  else
    check_credit(e, l, p);
  const bool over =
      std::all_of(l.parts.begin(), l.parts.end(), [](const part_view& x) { return x.released; });
  if (over)
    close(e.lease, e.at_s);
  else if (e.outcome != lease_outcome::succeeded && !l.revoked && !p.left)
    owed_ = e.lease;
}

/// The lease is over. If its job goes on, then from what every part of it is credited with.
void oracle::close(lease_id id, double ended_s) {
  const auto& l = leases_.at(id);
  auto min = std::numeric_limits<std::uint64_t>::max();
  const auto& trainer = l.parts.front();
  const bool healed =
      l.granted.heals.value_or(false) && trainer.outcome == lease_outcome::succeeded;
  for (const auto& p : l.parts)
    if (!p.left && (!healed || &p == &trainer)) min = std::min(min, p.credited);
  auto& job = jobs_.at(l.granted.job);
  if (job.members) {
    auto done = done_in(job, min);
    for (const auto m : members_in(job, l.granted.job)) {
      jobs_.at(m).done += done[m];
      jobs_.at(m).in = 0;
      count_loss(l, jobs_.at(m), ended_s, done[m] > 0);
    }
  }
  if (!facts_of(job.spec).elastic) {
    const auto before = std::exchange(job.done, std::min(job.spec.iterations, job.done + min));
    if (!job.members) count_loss(l, job, ended_s, job.done > before);
    return;
  }
  std::optional<std::uint64_t> saved;
  bool whole = true;
  for (const auto& p : l.parts) {
    whole = whole && p.outcome == lease_outcome::succeeded;
    if (p.saved) saved = std::min(saved.value_or(*p.saved), *p.saved);
  }
  if (!saved) saved = l.saved;  // no part has reported at its end
  if (saved && *saved < job.done)
    fail("lease {} leaves {} saved iterations of job {}, which had {}", id, *saved, l.granted.job,
         job.done);
  const auto before = job.done;
  job.done = whole ? job.spec.iterations : saved.value_or(job.done);
  count_loss(l, job, ended_s, job.done > before);
}

/// Compares what the journal calls saved with what the part did, and with its own last report.
void oracle::check_saved(const part_ended& e, const lease_view& l, const part_view& p) {
  const auto& j = jobs_.at(l.granted.job);
  const auto saved = p.saved.value_or(j.done);
  if (saved > j.done + by_any_clock(p.done, l.granted))
    fail("lease {} leaves {} saved iterations on node {}, which did {} after {} ({})", e.lease,
         saved, p.node, p.done, j.done, e.detail);
  if (p.node_saved && e.outcome != lease_outcome::lost && saved != *p.node_saved)
    fail("lease {} leaves {} saved iterations on node {}, which reported {} ({})", e.lease, saved,
         p.node, *p.node_saved, e.detail);
}

void oracle::on(const member_ended& e) {
  const auto at = jobs_.find(e.job);
  if (at == jobs_.end() || at->second.in == 0)
    return fail("job {} leaves a union, and is in none", e.job);
  auto& j = at->second;
  const auto& of_union = jobs_.at(j.in);
  const auto& l = leases_.at(of_union.lease);
  auto did = std::numeric_limits<std::uint64_t>::max();
  for (const auto& p : l.parts) did = std::min(did, by_any_clock(done_by(p, l.granted), l.granted));
  const auto done = j.done + done_in(of_union, did)[e.job];
  if (e.outcome == lease_outcome::succeeded && done < j.spec.iterations)
    fail("job {} leaves its union as done, with {} of {} iterations", e.job, done,
         j.spec.iterations);
  j.left_done = e.outcome == lease_outcome::succeeded;
  j.in = 0;
}

void oracle::on(const job_ended& e) {
  const auto it = jobs_.find(e.job);
  if (it == jobs_.end() || it->second.ended) return fail("job {} ends twice, or never was", e.job);
  auto& j = it->second;
  j.ended = true;
  j.final_state = e.final_state;
  if (lease_id other = 0; job_runs(e.job, 0, &other))
    fail("job {} ends while lease {} of it runs", e.job, other);
  if (j.in != 0) fail("job {} ends while it is in union {}", e.job, j.in);
  if (j.members && !members_in(j, e.job).empty()) fail("union {} ends before its members", e.job);
  if (e.final_state != job_state::finished || j.left_done) return;
  const auto last = leases_.find(j.lease);
  if (last == leases_.end()) return fail("job {} finishes and has never run", e.job);
  bool known = true;  // at the end of its last lease; else its nodes reported it on their return
  const auto& parts = last->second.parts;
  // A real program's ranks work in step: one that says that all is done says so for the others,
  // which may have been asked to stop a moment before.
  const bool one_finished =
      facts_of(j.spec).elastic && std::ranges::any_of(parts, &part_view::succeeded);
  const bool healed = last->second.granted.heals.value_or(false) && parts.front().succeeded;
  for (const auto& p : parts) {
    if (healed && &p != &parts.front()) continue;
    known = known && p.outcome == lease_outcome::succeeded;
    if (!p.succeeded && !(one_finished && p.stopped))
      fail("job {} finishes, and node {} has not done its part of lease {}", e.job, p.node,
           j.lease);
  }
  if (known && j.done != j.spec.iterations)
    fail("job {} finishes with {} of {} iterations", e.job, j.done, j.spec.iterations);
}

void oracle::on(const training_progress& e) {
  const auto it = jobs_.find(e.report.job);
  if (it == jobs_.end()) return fail("a training tells of job {}", e.report.job);
  for (const auto& i : e.report.iterations)
    it->second.reported = std::max(it->second.reported, i.iteration);
  it->second.saved = std::max(it->second.saved, e.report.saved);
}

/// Compares a part's credit in the journal with the work that its node did.
void oracle::check_credit(const part_ended& e, const lease_view& l, const part_view& p) {
  if (p.training) {
    if (e.outcome == lease_outcome::succeeded && !p.succeeded)
      fail("part {} of training lease {} is called done, and node {} did not do it", e.part,
           e.lease, p.node);
    const auto& j = jobs_.at(l.granted.job);
    if (e.outcome != lease_outcome::succeeded && e.iterations > 0 &&
        j.done + e.iterations > j.saved)
      fail("training lease {} is credited with {} iterations after {}, and {} were saved", e.lease,
           e.iterations, j.done, j.saved);
    return;
  }
  if (e.iterations > by_any_clock(p.done, l.granted))
    fail("lease {} is credited with {} iterations on node {}, which did {} ({})", e.lease,
         e.iterations, p.node, p.done, e.detail);
  // The iterations that a node did and reported are credited.
  const bool reported = (p.stopped || p.succeeded) && e.outcome != lease_outcome::lost;
  if (reported && !l.granted.out_of_memory && by_any_clock(e.iterations, l.granted) < p.done)
    fail("lease {} is credited with {} iterations only, and node {} did {} ({})", e.lease,
         e.iterations, p.node, p.done, e.detail);
}

// -- at the end

void oracle::check_end(const std::set<std::string>& jobs, const std::vector<job_id>& accepted,
                       const std::vector<journal_entry>& journal, const actors::ledger* live) {
  std::optional<actors::ledger> replayed{std::in_place, cluster_};
  for (const auto& e : journal)
    if (auto ok = replayed->apply(e); !ok)
      return fail("the journal contradicts itself: {}", ok.error().text);
  if (journal.size() != entries_)
    fail("{} entries were acted on, and the journal has {}", entries_, journal.size());
  std::set<job_id> answered{accepted.begin(), accepted.end()};
  const auto taken = accepted.size();
  // A job that can never run is refused, without its number, and kept as failed.
  std::size_t refused = 0;
  for (const auto& [id, j] : replayed->jobs())
    if (!answered.contains(id) && !j.members && j.state == job_state::failed &&
        j.progress.attempts == 0) {
      answered.insert(id);
      ++refused;
    }
  if (taken + refused != jobs.size())
    fail("only {} of {} submissions were answered", taken + refused, jobs.size());
  std::size_t unions = 0;
  for (const auto& [id, j] : replayed->jobs()) {
    unions += j.members.has_value();
    if (j.members && !is_final(j.state)) fail("union {} has not ended", id);
  }
  if (replayed->jobs().size() != jobs.size() + unions)
    fail("{} submissions made {} jobs", jobs.size(), replayed->jobs().size() - unions);
  std::set<std::string> found;
  for (auto id : answered) {
    const auto* j = replayed->job(id);
    if (!j) return fail("job {} was accepted and is lost", id);
    if (!is_final(j->state)) fail("job {} has not ended: it is {}", id, to_string(j->state));
    found.insert(j->spec->name);
  }
  if (found != jobs) fail("the replies to {} submissions name {} jobs", jobs.size(), found.size());
  for (auto id : notified_cancelled_)
    if (const auto* j = replayed->job(id); !j || j->state != job_state::cancelled)
      fail("a client was told that job {} is cancelled, and it is {}", id,
           j ? to_string(j->state) : "not there");
  check_counts(*replayed);
  if (!running_.empty()) fail("lease {} still runs after all jobs have ended", *running_.begin());
  if (!live || !(*live == *replayed)) fail("the ledger does not equal the journal");
}

// -- the books

oracle::part_view* oracle::part_on(lease_id lease, node_index n) {
  const auto it = leases_.find(lease);
  if (it == leases_.end()) return nullptr;
  auto& parts = it->second.parts;
  const auto p =
      std::find_if(parts.begin(), parts.end(), [n](const part_view& x) { return x.node == n; });
  return p == parts.end() ? nullptr : &*p;
}

const oracle::part_view* oracle::runs_on(node_index n, std::uint16_t device,
                                         lease_id* lease) const {
  for (auto id : running_)
    for (const auto& p : leases_.at(id).parts)
      if (p.running && p.node == n &&
          std::find(p.devices.begin(), p.devices.end(), device) != p.devices.end()) {
        *lease = id;
        return &p;
      }
  return nullptr;
}

bool oracle::job_runs(job_id id, lease_id except, lease_id* lease) const {
  for (auto l : running_)
    if (l != except && leases_.at(l).granted.job == id) {
      *lease = l;
      return true;
    }
  return false;
}

}  // namespace troupe::simulation
