#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <tl/expected.hpp>

#include "messages/base/time.hpp"
#include "planners/bubbletea/bubbles.hpp"
#include "planners/bubbletea/device_cursor.hpp"
#include "planners/bubbletea/prefill_work.hpp"

// Which prompts are prefilled in which bubbles (docs/planners/bubbletea.md): each is promised or
// declined at once (BubbleTea, section 5: a prompt that no bubble can take is left to the GPUs that
// only serve). All times are in seconds of one clock.

namespace troupe::planners {

/// A prompt. The larger priority goes first, then the earlier `latest_s`, arrival and id.
struct prefill_prompt {
  std::uint64_t id = 0;
  double arrival_s = 0;
  std::uint32_t tokens = 1;
  double latest_s = never;  // by when the prefill must have ended
  std::int32_t priority = 0;

  bool operator==(const prefill_prompt&) const = default;
};

/// The group takes it. If the training keeps its timetable, its prefill ends at `end_s`, or by
/// `latest_s` if later requests go before it (a larger priority, an earlier deadline, look-ahead).
struct prefill_promise {
  std::uint32_t group = 0;
  double end_s = 0;

  bool operator==(const prefill_promise&) const = default;
};

enum class decline_reason : std::uint8_t {
  no_bubble_before_deadline,
  no_guest_for_model,  // there are no groups
  timetable_unknown,   // nothing is known from now on
  guest_memory,        // the groups' devices have no room for its cache
  queue_full,          // a group could, but has max_promised prompts
  too_long,            // more than max_tokens, or an operation is longer than any bubble
};
inline constexpr std::size_t decline_reasons = 6;
/// The key of `declined_by_reason`.
std::string_view to_string(decline_reason why);

/// Operations of a prompt that a device runs one after the other, from `begin_s` to `end_s`.
struct prefill_piece {
  std::uint64_t request = 0;
  std::uint32_t device = 0, group = 0, guest = 0, tile = 0;
  std::uint32_t operations = 0;
  double begin_s = 0, end_s = 0;

  bool operator==(const prefill_piece&) const = default;
};

/// A device's next work: a piece from now on, or nothing before `again_s` (never: until another
/// guest of its group ends a piece, or a request is admitted).
struct next_piece {
  std::optional<prefill_piece> piece;
  double again_s = never;
};

/// The promises of a prefill controller, and how far each is. Every group keeps the plan of all its
/// promised prompts: after each of them a cursor per guest. A new prompt is inserted by its order,
/// walked through the windows from the cursors before it, and those behind it are walked again; a
/// group in which one of these would end too late does not take it. So no promise breaks another.
///
/// Invariants: a group's guests run its prompts in the order of the queue, and each hands on its
/// tiles in order; a prompt that has begun is never put behind another; the entries before a
/// guest's `current` have ended on it. A copy is independent. Times never decrease from call to
/// call. Not thread-safe.
class prefill_packing {
 public:
  /// Windows by device, up to a horizon; a group's guests name their devices, and each device is
  /// in one group at most. `cache_tokens`: of the longest prompt whose cache fits the guests; 0:
  /// any.
  prefill_packing(packing_options options, std::vector<prefill_group> groups,
                  std::vector<idle_windows> windows, std::uint32_t cache_tokens = 0);

  /// A promise that breaks no other one, or the reason why there is none. Of the groups that are
  /// free soonest the one where the prefill ends first; under rule whole, where it begins first.
  tl::expected<prefill_promise, decline_reason> admit(const prefill_prompt& r, double now_s);

  /// The device's work from now on. Precondition: its last piece has ended.
  next_piece next(std::uint32_t device, double now_s);

  /// The piece, which next() gave, has ended as planned. True: it was its request's last one.
  bool ended(const prefill_piece& piece);

  /// The device has these windows from now on. They may begin before `now_s`, and must if the
  /// device runs a piece. The plan of its group follows; promises that it no longer keeps stay
  /// promised.
  void set_windows(std::uint32_t device, idle_windows windows, double now_s);

  /// A promised prompt of this group has ended otherwise than by the last ended(), or was
  /// cancelled: its pieces that still run count as ended now. False: the group does not have it.
  bool remove(std::uint32_t group, std::uint64_t id, double now_s);

  /// The device's guest takes `factor` times as long as its group said at first, also for what is
  /// promised: the plan of its group follows, as for new windows. From the first call on, under
  /// resumable, a layer of a tile counts as sixteen operations. Precondition: factor > 0.
  void set_factor(std::uint32_t device, double factor, double now_s);

  /// The group's devices are busy until then, with what is not known here.
  void delay(std::uint32_t group, double until_s, double now_s);

  /// When a promised prompt of this group ends, as planned now; never: the group does not have it.
  double planned_end_s(std::uint32_t group, std::uint64_t id) const;

  /// The end of what is known of the devices' windows.
  double horizon_s() const { return horizon_s_; }

  /// The device of the guest that follows this one in its group; none: it is the last one.
  std::optional<std::uint32_t> device_after(const prefill_piece& piece) const;
  const std::vector<prefill_group>& groups() const { return groups_; }
  std::size_t promised() const { return promised_; }

 private:
  static constexpr std::uint32_t none = 0xffffffff;
  static constexpr double tiny = 1e-9;         // seconds: rounding of times
  using cursors = std::vector<device_cursor>;  // by guest

  /// A device of the training, and the guest on it.
  struct device_state {
    idle_windows windows;
    double factor = 1;                      // on its guest's times, see set_factor()
    std::uint32_t group = none, guest = 0;  // none: no guest
  };
  /// A guest's progress with a prompt.
  struct progress {
    std::uint32_t tile = 0, done = 0;  // operations of the tile
    std::vector<double> ready_s;       // by tile: when its input is there; never: unknown
  };
  /// A promised prompt.
  struct entry {
    prefill_prompt request;
    std::shared_ptr<const prefill_work> work;
    std::vector<progress> at;  // by guest
    cursors after;             // by the plan, when each guest has ended it
    bool begun = false;
    double by_s = never;  // its end by which every reordering must keep it
  };
  /// A guest's place in the queue of its group.
  struct guest_state {
    std::uint64_t current = 0;  // number of its entry
    bool running = false;       // a piece of that entry
    device_cursor free;         // after its last piece
  };
  /// A group's promises. Entries are numbered in the order of execution; a number stays an entry's
  /// own while those before it leave the front of the queue.
  struct group_state {
    std::deque<entry> queue;
    std::uint64_t first = 0;  // number of the queue's first entry
    std::vector<guest_state> guests;
    std::uint32_t kind = 0;
    double key = 0;  // in by_free_
  };
  /// Groups that take equally long.
  struct group_kind {
    std::uint32_t example = 0;
    std::vector<double> room_s;                // by guest: the longest bubble of any of them
    std::shared_ptr<const prefill_work> work;  // for prepared_tokens_
  };
  struct place {
    std::uint32_t group = 0;
    std::size_t position = 0;  // in its queue
    double begin_s = 0, end_s = never;
  };

  void find_kinds();
  void prepare(std::uint32_t tokens);
  std::optional<decline_reason> impossible(const prefill_prompt& r, double now_s) const;
  static bool in_time(double end_s, double by_s) { return end_s < never && end_s <= by_s; }
  static bool goes_before(const prefill_prompt& a, const prefill_prompt& b);

  static std::size_t begun(const group_state& g);
  std::size_t position_of(const group_state& g, const prefill_prompt& r) const;
  /// Windows of the device of a group's first guest.
  const idle_windows& first_windows(std::uint32_t group) const {
    return devices_[groups_[group].guests[0].device].windows;
  }
  static cursors free_of(const group_state& g);
  static cursors before(const group_state& g, std::size_t position, double now_s);
  double earliest_s(double now_s) const;
  double carry_out(std::uint32_t group, const prefill_work& w, cursors& at) const;
  bool keeps(std::uint32_t group, std::size_t from, cursors at) const;
  void plan_from(std::uint32_t group, std::size_t position, cursors at);
  double carry_out_rest(std::uint32_t group, const entry& e, cursors& at) const;
  void plan_again(std::uint32_t group, double now_s);

  void set_key(std::uint32_t group, double key);
  double free_s(std::uint32_t group, double now_s);
  std::optional<place> place_in(std::uint32_t group, const prefill_prompt& r, double now_s) const;
  std::optional<place> best_place(const prefill_prompt& r, double now_s, bool& full);

  bool reorder(std::uint32_t group, std::size_t from, const std::vector<std::size_t>& first,
               double now_s);
  void look_ahead(std::uint32_t group, double now_s);

  packing_options options_;
  std::vector<prefill_group> groups_;
  std::vector<device_state> devices_;
  std::uint32_t cache_tokens_;
  std::vector<group_state> states_;                     // by group
  std::set<std::pair<double, std::uint32_t>> by_free_;  // groups; none is free before its key
  std::vector<group_kind> kinds_;
  std::uint32_t prepared_tokens_ = 0;
  std::optional<prefill_prompt> last_;  // goes behind all promised ones
  double last_begin_s_ = 0;             // the last promised one's; for rule whole
  double horizon_s_ = 0;
  std::size_t promised_ = 0;
};

}  // namespace troupe::planners
