#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "actors/training/planning/planned_stages.hpp"
#include "actors/training/replicas/view_change.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// Where a training's stages are, and how it goes on without those that are lost: each goes to a
/// peer in its datacenter, whose weights and device it shares from then on, the one that has the
/// fewest. It decides and counts; the trainer sends. Stages are numbered pipeline * stages + stage,
/// and a device has the number of the stage that has it by the plan.
///
/// A device that was lost, and whose part of the lease is still held, is *absent*: it is asked to
/// make itself ready and to *stand by*. Then a view begins in which it has its own stage again,
/// with the state of a peer that gives it (`view_begin::gives`, `takes`). Until that view is stable
/// the device takes nothing over, and a loss leaves it out: it is absent again.
///
/// A stage without a peer, whose worker has ended and whose node has copies of its state, is
/// *awaited*: the others stop until its device stands by, and all begin from a boundary of which it
/// has a copy.
///
/// The trainer's term is its lease's: when its node is lost, so is the lease. So no other trainer
/// can follow an older view, and none is written down before it begins.
class healing {
 public:
  healing() = default;  // of a training that does not heal
  /// Gives the stages their first view. `datacenter_of`: of a node's address.
  healing(training_plan& plan, std::function<std::uint32_t(address)> datacenter_of);

  bool heals() const { return !hosts_.empty(); }
  bool is_changing() const { return heals() && change_.state() != view_change::phase::stable; }
  bool is_gathering() const { return change_.state() == view_change::phase::gathering; }
  /// The stages' places contradict each other.
  bool has_failed() const { return change_.state() == view_change::phase::lost; }
  std::uint64_t view() const { return change_.number(); }
  std::uint64_t from() const { return change_.from(); }

  /// The stages that share the device of this one.
  std::vector<std::size_t> sharing(std::size_t i) const;
  /// Would another stage's device take over those of this one?
  bool can_lose(std::size_t i) const;
  /// The device of a stage is lost, and all stages on it. REQUIRES: can_lose(i).
  void lose(std::size_t i, double now_s);

  /// The stage's device has lost its state, and its node has copies.
  bool can_await(std::size_t i) const;
  void await(std::size_t i, double now_s);
  bool awaits(std::size_t i) const;
  /// It stands by, and its node has copies of the state after these iterations. True: from() is
  /// decided.
  bool on_copies(std::size_t i, std::vector<std::uint64_t> iterations);

  /// A device to be asked whether it is back, and the number by which it stands by.
  struct absent_device {
    std::size_t stage = 0;
    std::uint64_t number = 0;
    address node = 0;
  };
  /// Those that are due at this time. `every_s`: how often each is asked, at first; `held_s`: one
  /// that has not answered for so long has lost its part of the lease.
  std::vector<absent_device> take_absent(double now_s, double every_s, double held_s);
  /// The setup by which that device stands by.
  stage_setup standby_of(const training_plan& plan, const absent_device& d) const;
  enum class answer { starting, ready, failed };
  /// Its answer. False: it is of an earlier loss, or from elsewhere.
  bool on_standby(std::size_t i, std::uint64_t number, address from, answer what);
  /// All stop, so that those that stand by may join. REQUIRES: !is_changing(); can_rejoin().
  void rejoin(double now_s);
  bool can_rejoin() const;
  /// Devices that join in the view that begins.
  const std::set<std::size_t>& returning() const { return returning_; }

  /// A stage's answer. True: all have said where they are, and from() is decided.
  bool on_place(std::size_t i, const view_place& at, std::vector<std::uint64_t> copies = {});
  /// The update before from(); null: no stage has said it. `lacks_update`: stages need it.
  const agreed_update* last_update() const;
  bool lacks_update() const { return !change_.is_level() && !last_update(); }
  /// A pipeline's record of the iteration before from(); null: no stage has said it.
  const pipeline_record* record_of(std::uint32_t pipeline) const;
  /// Stages that nobody has, from the time they are lost until they are placed.
  const std::vector<std::size_t>& lost() const { return lost_; }
  /// Places them in the plan, and those that stand by if their stage's iterations up to from() were
  /// reported; and gives all stages the new addresses. REQUIRES: on_place() was true.
  void place(training_plan& plan, const std::function<std::uint64_t(std::size_t)>& reported);
  /// A stage goes on in the view. True: it was the last one. REQUIRES: a joiner has its state.
  bool on_begun(std::size_t i, std::uint64_t view, double now_s);
  /// Stages that have not answered, and so are to be asked again.
  std::vector<std::size_t> unanswered() const;
  /// The begin of the view, for a stage.
  view_begin begin_of(const training_plan& plan, std::size_t i) const;

  /// Devices that have joined in the latest view.
  std::size_t joined_now() const { return joined_now_; }
  /// None: nothing was lost.
  const std::optional<training_heals>& heals_so_far() const { return so_far_; }

 private:
  replica_id id_of(std::size_t i) const {
    return {static_cast<std::uint32_t>(i % stages_), static_cast<std::uint32_t>(i / stages_)};
  }
  std::size_t index_of(const replica_id& r) const { return r.replica * stages_ + r.stage; }
  std::optional<std::size_t> best_host(std::size_t i, std::optional<std::size_t> but = {}) const;
  bool is_alive(std::size_t host) const { return !gone_.contains(host); }
  void place_back(training_plan& plan, std::size_t i);
  bool decide();

  std::uint32_t stages_ = 1;
  std::vector<std::size_t> hosts_;  // by stage: the stage that had its device first
  std::vector<address> addresses_;  // of these devices' nodes, as planned
  std::vector<std::uint32_t> datacenters_;
  std::vector<std::vector<std::uint16_t>> devices_;
  struct gone {
    std::uint64_t number = 0;          // of its latest loss, among all
    std::uint32_t times = 0;           // that it was lost, or failed to stand by
    double since_s = 0, ask_at_s = 0;  // 0: it was not yet asked
    bool answered = false, stands_by = false, awaited = false;
  };
  static constexpr std::uint32_t max_returns = 8;  // then it is not asked any more
  std::map<std::size_t, gone> gone_;               // devices
  std::map<std::size_t, std::uint32_t> losses_;    // by device, also of those that came back
  std::uint64_t numbers_ = 0;
  std::set<std::size_t> returning_;  // of gone_: placed in the view that begins
  std::vector<std::size_t> lost_, joining_;
  bool heals_now_ = false;  // the view changes after a loss
  view_change change_;
  double began_s_ = 0;
  std::size_t joined_now_ = 0;
  std::uint64_t updated_ = 0;            // boundary of the newest update that a stage has said
  std::optional<agreed_update> update_;  // that one
  std::optional<training_heals> so_far_;
};

}  // namespace troupe::actors
