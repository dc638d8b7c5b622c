#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include "actors/control/ledger/ledger.hpp"

#include "messages/domain/cluster.hpp"
#include "messages/wire/journal.hpp"
#include "messages/wire/work.hpp"

namespace troupe::simulation {

/// Watches a run from outside: the journal entries, the work of the nodes, and the answers to
/// clients. It keeps books of its own and compares; the first contradiction stays.
///
/// - No GPU runs two parts, and none is granted or given back while something runs on it.
/// - No job has work of two leases at a time, anywhere; no part begins twice, or without a lease.
/// - A node stops only what was revoked, or what its own lease no longer covers.
/// - A lease asks for the iterations that are still to be done: what earlier leases are credited
///   with, and not more than was done there. A job finishes by work that was done to its end.
/// - A part that ends badly has its partners revoked before anything else is written.
/// - A job ends cancelled once a client has the answer that it is cancelled.
/// - A job is in one union at most, and in none that it must not be in; a union ends with its
///   lease, and its members are credited with their part of what it did.
/// - A program is stopped only if it is elastic, or somebody has asked for it. An elastic one goes
///   on from what it has saved, which never falls and never exceeds what it did.
/// - A GPU that is held passes only to the one lease that was granted to follow its holder.
class oracle {
 public:
  /// `slowdown`: how many times as long work that begins now takes on a node.
  oracle(const cluster& c, std::function<double(node_index)> slowdown);

  void on_entry(double now_s, const journal_entry& e);
  void on_work(double now_s, node_index n, const work_order* w, const part_report* ended);
  void on_cancelled(job_id id) { notified_cancelled_.insert(id); }

  /// At the end: `jobs` were submitted, by name; clients have answers for `accepted`; the journal
  /// and the controller's ledger are these.
  void check_end(const std::set<std::string>& jobs, const std::vector<job_id>& accepted,
                 const std::vector<journal_entry>& journal, const actors::ledger* live);

  /// Writes down what it sees, a line each, to standard error.
  void trace() { trace_ = true; }

  /// The first thing that was wrong; empty: nothing.
  const std::string& invalid() const { return wrong_; }

  struct job_view {
    job_spec spec;
    std::uint64_t done = 0;                 // iterations that ended leases are credited with
    std::uint64_t reported = 0, saved = 0;  // iterations, by a training's reports
    lease_id lease = 0;                     // the latest
    job_id in = 0;                          // the union that it runs in
    std::optional<job_union> members{};
    std::map<job_id, std::uint64_t> brought{};  // iterations of each member when the union began
    bool suspended = false;
    std::uint32_t losses = 0;  // attempts in a row that a node ended, without progress
    bool left_done = false;    // it left a union that goes on, with all its iterations done
    bool ended = false;
    job_state final_state = job_state::waiting;
  };
  const std::map<job_id, job_view>& jobs() const { return jobs_; }
  /// The job of a lease; null: it was not granted.
  const job_spec* spec_of(lease_id lease) const {
    const auto l = leases_.find(lease);
    return l == leases_.end() ? nullptr : &jobs_.at(l->second.granted.job).spec;
  }

 private:
  struct part_view {
    node_index node = 0;
    std::vector<std::uint16_t> devices;
    std::uint64_t asked = 0;  // iterations, by the order that the node followed
    double begun_s = 0, slowdown = 1;
    double start_s = 0, iteration_s = 0;  // by the order
    bool begun = false, running = false, training = false;
    bool released = false;  // the journal has its end
    lease_outcome outcome = lease_outcome::succeeded;
    std::uint64_t credited = 0, done = 0;     // iterations: by the journal; by what the node did
    std::optional<std::uint64_t> saved;       // by the journal, from the job's beginning
    std::optional<std::uint64_t> node_saved;  // by the node's last report
    bool stopped = false, succeeded = false;  // by the node, which lives on
    bool left = false;                        // it was lost, and its training goes on
  };
  struct lease_view {
    lease_granted granted;
    bool revoked = false;
    std::optional<std::uint64_t> saved;       // by its running program, from the job's beginning
    std::optional<end_word> why;              // the first thing that ended it
    bool by_part = false;                     // that was a part that failed by itself
    bool finished = false, with_zero = true;  // its program says so; all parts ended so
    std::vector<part_view> parts;
  };

  template <class Other>
  void on(const Other&) {}  // moves no GPU and no job
  void on(const job_accepted& e);
  void on(const lease_granted& e);
  void on(const lease_revoked& e);
  void on(const part_ended& e);
  void on(const job_ended& e);
  void on(const member_ended& e);
  void on(const training_progress& e);
  void on(const job_suspended& e);
  void on(const program_saved& e);
  std::vector<job_id> members_in(const job_view& of_union, job_id id) const;
  std::map<job_id, std::uint64_t> done_in(const job_view& of_union, std::uint64_t done) const;
  void follow(const lease_granted& e);
  void begins(node_index n, const work_order& w);
  void ends(node_index n, const work_order& w, const part_report& r);
  void dies(node_index n);
  void check_order(const work_order& w, const lease_view& l, const part_view& p);
  void check_credit(const part_ended& e, const lease_view& l, const part_view& p);
  part_view* part_on(lease_id lease, node_index n);
  const part_view* runs_on(node_index n, std::uint16_t device, lease_id* lease) const;
  bool job_runs(job_id id, lease_id except, lease_id* lease) const;
  std::uint64_t done_by(const part_view& p, const lease_granted& g) const;
  void check_saved(const part_ended& e, const lease_view& l, const part_view& p);
  /// `ended_s`: the journal's time, as the grant's: a controller's clock and the world's differ.
  void close(lease_id id, double ended_s);
  void note_why(lease_view& l, const part_ended& e);
  static void count_loss(const lease_view& l, job_view& j, double at_s, bool progress);
  void check_counts(const actors::ledger& book);
  template <class Entry>
  void print(const Entry& e) const;
  template <class... T>
  void fail(const char* format, const T&... values) {
    if (wrong_.empty())
      wrong_ = fmt::format("at {:.6f} s: ", now_s_) + fmt::format(fmt::runtime(format), values...);
  }

  const cluster& cluster_;
  std::function<double(node_index)> slowdown_;
  double now_s_ = 0;
  std::map<job_id, job_view> jobs_;
  std::map<lease_id, lease_view> leases_;
  std::set<lease_id> running_;  // leases with a part that runs somewhere
  std::set<job_id> notified_cancelled_;
  std::map<std::pair<node_index, std::uint16_t>, lease_id> successors_;
  lease_id owed_ = 0;  // a part of it ended badly: its revocation must be the next entry
  std::size_t entries_ = 0;
  bool trace_ = false;
  std::string wrong_;
};

}  // namespace troupe::simulation
