#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/serving/prefill/lent_bubbles.hpp"
#include "actors/serving/prefill/prefill_permissions.hpp"
#include "messages/base/time.hpp"
#include "messages/domain/address.hpp"
#include "messages/wire/frame.hpp"
#include "messages/wire/message.hpp"
#include "messages/wire/prefill.hpp"
#include "runtime/host/shared_cluster.hpp"

namespace troupe::actors {

/// A prefill controller's decisions since it began, and how its promises ended.
struct prefill_counts {
  std::uint64_t promised = 0;                     // among them the next four
  std::uint64_t ended = 0;                        // the last guest has ended
  std::uint64_t cancelled = 0;                    // before that, by the decoder
  std::uint64_t expired = 0;                      // no guest has reported the end
  std::uint64_t lost = 0;                         // a guest, or the whole offer, is gone
  std::map<std::string, std::uint64_t> declined;  // by reason
  std::uint64_t rejected = 0;                     // messages that their sender may not send

  bool operator==(const prefill_counts&) const = default;
};

/// Promises prefills in the bubbles of trainings to decoders of its datacenter, or declines at once
/// (docs/serving_protocol.md). A state machine: time is an argument, and its messages are returned.
/// The gateway's actor passes it the messages for the gateway itself.
///
/// Three classes share the work: prefill_permissions decides whose messages count, lent_bubbles
/// knows when a training's devices are idle and what fits there, and this class has the promises.
/// States of a promise:
///
///   promised -> ordered    at once; under rule look-ahead when its first bubble is about to begin
///   ordered  -> held       every guest of the group has acknowledged its order, which is repeated
///                          until then
///   held     -> ended      every guest has reported its end
///
/// From every state a promise is cancelled by its decoder, lost with a guest or the whole offer, or
/// expires; guests that have an order are then sent cancellations until they answer.
///
/// A training's prompts run in each group in the order of their promises, so that none is ever
/// later because of another one. Only rule look-ahead fills bubbles with what fits: what a bubble
/// gets is decided, and ordered, a moment before it begins.
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

  /// Repeats orders and cancellations, and ends what has expired. Call at next_s() or later.
  outbox on_time(double now_s);
  /// When on_time() is due; never: not before a message.
  double next_s() const;

  const prefill_counts& counts() const { return counts_; }
  /// Offers and requests that were rejected for their sender's lease since the last call.
  std::vector<rejection> take_rejections() { return std::exchange(rejections_, {}); }
  /// Promised prefills that are not over.
  std::size_t promised() const { return promises_.size(); }

 private:
  struct promise {
    prefill_name name;
    lease_id lease = 0;  // of the training
    std::uint32_t group = 0;
    std::uint32_t tokens = 0;
    std::int32_t priority = 0;
    payload body;
    double end_s = 0;                   // as promised to the decoder
    double allowance_s = 0;             // for lateness, in end_s
    double latest_s = 0;                // when it expires
    std::uint64_t sequence = 0;         // of its orders; 0: none was sent
    std::vector<bool> held{}, ended{};  // by guest
    double repeat_s = never;            // orders to guests that have not acknowledged them
    double due_s = never;               // in due_
  };
  /// A cancellation that guests have not answered.
  struct cancellation {
    std::map<std::uint32_t, address> open;  // guests
    double until_s = 0, repeat_s = 0;
  };
  struct lending {
    lent_bubbles bubbles;
    double last_seen_s = 0;
    std::uint64_t orders = 0;  // sent so far, for their sequence
  };

  void on_leases(const serving_leases& s, double now_s, outbox& out);
  void on_offer(address from, const bubble_offer& o, double now_s, outbox& out);
  void on_signal(address from, const stage_signal& s, double now_s);
  void on_request(address from, const prefill_request& r, const payload& body, double now_s,
                  outbox& out);
  void on_progress(address from, const prefill_progress& p, double now_s, outbox& out);
  void on_cancel(address from, const cancel_prefill& c, double now_s, outbox& out);
  void reject(address from, const reason& why);

  std::string decide(const prefill_request& r, const payload& body, double now_s, outbox& out);
  void order_begun(double now_s, outbox& out);
  void order(lending& l, promise& p, double end_s, double now_s, outbox& out);
  void send_orders(promise& p, double now_s, outbox& out);
  void set_due(promise& p);
  void forget(const prefill_name& name, double now_s, bool cancel, outbox& out);
  void send_cancellation(const prefill_name& name, cancellation& c, double now_s, outbox& out);
  void withdraw(lease_id lease, double now_s, outbox& out);
  void remember(const prefill_name& name, reason declined, double now_s);
  const guest_group& group_of(const promise& p) const;
  prefill_reply reply_of(const promise& p, double promised_s) const;

  shared_cluster cluster_;
  std::uint64_t incarnation_ = 0;
  prefill_permissions permissions_;
  std::vector<rejection> rejections_;
  std::map<lease_id, lending> lendings_;
  std::map<prefill_name, promise> promises_;
  std::set<std::pair<double, prefill_name>> due_;  // promises: to be repeated, or expired
  std::map<prefill_name, cancellation> cancellations_;
  std::map<prefill_name, reason> verdicts_;  // on requests that are over, for late repetitions
  std::deque<std::pair<double, prefill_name>> verdict_times_;
  prefill_counts counts_;
};

}  // namespace troupe::actors
