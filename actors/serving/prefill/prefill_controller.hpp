#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/serving/decoder/median_of_recent.hpp"
#include "messages/base/time.hpp"
#include "messages/domain/address.hpp"
#include "messages/domain/cluster.hpp"
#include "messages/wire/frame.hpp"
#include "messages/wire/message.hpp"
#include "messages/wire/prefill.hpp"
#include "planners/bubbletea/prefill_forecast.hpp"
#include "runtime/host/shared_cluster.hpp"

namespace troupe::actors {

/// What a prefill controller has done since it began.
struct prefill_counts {
  std::uint64_t promised = 0;                     // and of these
  std::uint64_t ended = 0;                        // the last guest has ended
  std::uint64_t cancelled = 0;                    // before that, by the decoder
  std::uint64_t expired = 0;                      // never heard of again
  std::uint64_t lost = 0;                         // a guest, or the whole offer, is gone
  std::map<std::string, std::uint64_t> declined;  // by reason
  std::uint64_t rejected = 0;                     // messages that their sender may not send

  bool operator==(const prefill_counts&) const = default;
};

/// Promises prefills in the bubbles of trainings to decoders of its datacenter, or declines at once
/// (docs/serving_protocol.md). Who decodes and who lends the cluster's controller states: messages
/// of others are rejected, and so are all before its first statement. A state machine: time is an
/// argument, and what it says is returned. The gateway's actor feeds it the messages for the
/// gateway itself.
///
/// A training's prompts run in each group in the order of their promises, so that none is ever
/// later because of another one. Only rule look-ahead fills bubbles with what fits: what a bubble
/// gets is decided, and ordered, a moment before it begins; orders of the other rules are sent at
/// once.
class prefill_controller {
 public:
  struct outgoing {
    address to = 0;
    message what;
    payload body = {};
  };
  using outbox = std::vector<outgoing>;

  prefill_controller() = default;
  /// `incarnation`: of its host; orders of a later one come after those of an earlier one.
  prefill_controller(shared_cluster c, std::uint32_t datacenter, std::uint64_t incarnation);

  /// A message that its sender may not send.
  struct rejection {
    address from = 0;
    std::string why;
  };

  /// Handles serving_leases, bubble_offer, stage_signal, prefill_request, prefill_progress and
  /// cancel_prefill, and ignores all others.
  outbox on_message(address from, const message& m, const payload& body, double now_s);

  /// Repeats orders and cancellations, forgets what is over. Call at next_s() or later.
  outbox on_time(double now_s);
  /// When it has something to do; never: nothing without a message.
  double next_s() const;

  const prefill_counts& counts() const { return counts_; }
  /// Offers and requests that were rejected for their sender's lease since the last call.
  std::vector<rejection> take_rejections() { return std::exchange(rejections_, {}); }
  /// Promised prefills that are not over.
  std::size_t promised() const { return promises_.size(); }

 private:
  /// What a training lends here.
  struct lending {
    bubble_offer offer;
    double last_seen_s = 0;
    planners::prefill_forecast forecast;
    std::map<stage_name, std::uint32_t> device_of;  // in the forecast
    // By device: when the window of its present iteration began (planners::window_plan).
    std::vector<std::optional<double>> origin_s;
    // Guests compute nothing before they have seen one iteration.
    std::vector<double> lent_from_s;       // by device
    std::vector<std::uint64_t> iteration;  // by device: that one's number
    std::vector<double> factor;            // by device: of its guest's times, in the forecast
    // By device: from one barrier to the next, or in an iteration if there is none.
    std::vector<planners::idle_windows> busy;
    double period_s = 0;                             // after which that is repeated
    std::vector<double> known_until_s;               // by device: end of its windows
    std::vector<std::uint32_t> group_of;             // by device
    std::set<std::uint32_t> paused;                  // devices, until their next signal
    bool looks_ahead = false;                        // its rule
    std::uint64_t sequence = 0;                      // of orders
    std::set<std::pair<double, prefill_name>> ends;  // planned, of prompts that are ordered
    median_of_recent lateness;                       // of prompts' ends after those planned
  };
  struct promise {
    prefill_name name;
    lease_id lease = 0;  // of the training
    std::uint32_t group = 0;
    std::uint64_t id = 0;  // in the forecast
    std::uint32_t tokens = 0;
    std::int32_t priority = 0;
    payload body;
    double made_s = 0, end_s = 0, latest_s = 0;
    double allowance_s = 0;         // for lateness, in end_s
    std::uint64_t sequence = 0;     // 0: not ordered yet
    std::vector<bool> held, ended;  // by guest
    double repeat_s = 0;
    double due_s = never;      // in due_
    double planned_s = never;  // its end, in lending::ends
    bool over() const;
  };
  /// A cancellation that guests have not answered.
  struct cancellation {
    std::map<std::uint32_t, address> open;  // guests
    double until_s = 0, repeat_s = 0;
  };
  /// What was answered to a request that is over, for late repetitions.
  struct verdict {
    double at_s = 0;
    reason declined;
  };

  static double usual_lateness_s(const lending& l);
  static double plan_time_s(const lending& l, double now_s);
  bool is_local(address a) const;
  bool valid(const bubble_offer& o) const;
  void state(const serving_leases& s, double now_s, outbox& out);
  const lending_lease* lease_of(const bubble_offer& o) const;
  expected<void> may_offer(address from, const bubble_offer& o) const;
  expected<void> may_request(address from, const prefill_request& r) const;
  void reject(address from, const reason& why);
  void on_offer(address from, const bubble_offer& o, double now_s, outbox& out);
  void adopt(lending& l, const bubble_offer& o, double now_s);
  void on_signal(address from, const stage_signal& s, double now_s);
  void on_request(address from, const prefill_request& r, const payload& body, double now_s,
                  outbox& out);
  void on_progress(address from, const prefill_progress& p, double now_s, outbox& out);
  void on_cancel(address from, const cancel_prefill& c, double now_s, outbox& out);

  std::string decide(const prefill_request& r, const payload& body, double now_s, outbox& out);
  void plan_windows(lending& l, std::uint32_t device, double now_s);
  void close(lending& l, const stage_name& stage, double now_s);
  void correct_times(lending& l, std::uint32_t device, double factor, double now_s);
  void roll(lending& l, double now_s);
  void allow_for_lateness(lending& l, double now_s);
  void order_begun(lending& l, double now_s, outbox& out);
  void order(lending& l, promise& p, double end_s, double now_s, outbox& out);
  void send_orders(promise& p, double now_s, outbox& out);
  void set_due(promise& p);
  void forget(const prefill_name& name, double now_s, bool cancel, outbox& out);
  void send_cancellation(const prefill_name& name, cancellation& c, double now_s, outbox& out);
  void withdraw(lease_id lease, double now_s, outbox& out);
  void decline(const prefill_request& r, address to, const std::string& why, outbox& out);
  void remember(const prefill_name& name, reason declined, double now_s);
  const guest_group& group_of(const promise& p) const;

  shared_cluster cluster_;
  std::uint32_t datacenter_ = 0;
  std::uint64_t incarnation_ = 0;
  serving_leases leases_;  // the controller's last statement
  std::vector<rejection> rejections_;
  std::map<lease_id, lending> lendings_;
  std::map<prefill_name, promise> promises_;
  std::set<std::pair<double, prefill_name>> due_;  // promises: to be repeated, or expired
  std::map<std::uint64_t, prefill_name> by_id_;
  std::map<prefill_name, cancellation> cancellations_;
  std::map<prefill_name, verdict> verdicts_;
  std::deque<std::pair<double, prefill_name>> verdict_times_;
  std::uint64_t ids_ = 0;
  prefill_counts counts_;
};

}  // namespace troupe::actors
