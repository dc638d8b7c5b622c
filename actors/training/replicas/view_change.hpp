#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace troupe::actors {

/// A replica of a stage, within a lease. Numbers are not used again.
struct replica_id {
  std::uint32_t stage = 0, replica = 0;

  auto operator<=>(const replica_id&) const = default;
};

/// Where a replica stands: after that many updates, and whether it holds all sums of the next one.
struct replica_place {
  std::uint64_t boundary = 0;
  bool ready = false;
  /// It goes on only from a copy of its state, and so do all others.
  bool restores = false;
  /// Boundaries of which it has copies of its state.
  std::vector<std::uint64_t> copies{};

  bool operator==(const replica_place&) const = default;
};

/// How a trainer that has lost replicas, or begins a term, brings those that are left to one
/// boundary. A view says which replicas a training has; views of a term are numbered, and a replica
/// that has answered in one ignores everything of those before, so that nothing is agreed on behind
/// the trainer's back.
///
///   stable      -> gathering, when a replica is suspected or comes back; with the next number
///   gathering   asks all for their place -> registering, when all have answered or are suspected
///   registering asks the controller to write down which replicas are left, if these are others
///   than
///               it knows: only then is anybody told to begin -> beginning, when it has
///   beginning   tells all the boundary from which they go on -> stable, when all have begun
///   lost        a stage has no replica left: the training restarts from its checkpoint
///
/// A suspicion in any of them leads back to gathering, with the next number: nothing that was
/// decided by then counts.
///
/// Why one boundary: an update is agreed on by all replicas of a view (update_commit.hpp), which
/// are ready then, and stay so until they update. So if some are at i + 1, the others are at i and
/// ready, and all can go to i + 1; those at i + 1 know the iteration's records. If nobody is there,
/// nobody can come there any more: they begin iteration i + 1 again, although all may be ready,
/// since a lost one's record may be known to nobody.
///
/// Where no peer has a replica's weights, copies of them may outlive it. It is waited for until it
/// can take one, and then all go on from copies, of the newest boundary of which each has one: what
/// the others have done since then, to weights or to buffers, is done again. Replicas that copy
/// their state after the same updates and keep two copies always have such a boundary, as they are
/// at most one update apart.
///
/// It decides; the trainer sends, repeats on every tick, and suspects.
class view_change {
 public:
  enum class phase { stable, gathering, registering, beginning, lost };

  view_change() = default;
  /// A training's first view: all replicas begin at the same boundary, and none is to be asked.
  view_change(std::set<replica_id> replicas, std::uint32_t stages)
      : stages_{stages}, registered_{replicas}, members_{std::move(replicas)} {}
  /// Another trainer takes over: begins with a gather of the registered replicas.
  static view_change in_new_term(std::set<replica_id> registered, std::uint32_t stages);

  phase state() const { return phase_; }
  std::uint64_t number() const { return number_; }
  /// The present view's replicas, or while it changes, those that are left.
  const std::set<replica_id>& members() const { return members_; }
  /// The boundary from which the view goes on. REQUIRES: beginning or later.
  std::uint64_t from() const { return from_; }
  /// None has yet to update by its sums to stand there.
  bool is_level() const;

  /// All stop at one boundary, because one is there to join, or has lost its weights. REQUIRES: the
  /// training is not lost.
  void regather();
  /// The replica is not to be waited for.
  void suspect(const replica_id& r);
  /// An answer to the gather of this number. Older ones are ignored.
  void on_place(const replica_id& r, std::uint64_t number, const replica_place& at);
  /// The controller has written down the view of this number.
  void on_registered(std::uint64_t number);
  /// A replica that begins with this view: one is there to begin, but none is to be asked for its
  /// place. REQUIRES: beginning.
  void join(const replica_id& r);
  /// All begin the view with copies of their states. REQUIRES: beginning or later.
  bool restores() const;
  /// A replica goes on in the view of this number.
  void on_begun(const replica_id& r, std::uint64_t number);

  /// Whom to ask for its place, or to tell to begin: those that have not answered.
  std::vector<replica_id> unanswered() const;

 private:
  void gather();
  void decide();
  bool has_every_stage() const;

  std::uint32_t stages_ = 1;
  std::set<replica_id> registered_, members_;
  std::uint64_t number_ = 0, from_ = 0;
  phase phase_ = phase::stable;
  std::map<replica_id, replica_place> places_;
  std::set<replica_id> begun_;
};

/// The boundary to which replicas at these places can all go; none: their places contradict the
/// agreement, or copies are missing. REQUIRES: there is a place.
std::optional<std::uint64_t> common_boundary(const std::map<replica_id, replica_place>& places);

}  // namespace troupe::actors
