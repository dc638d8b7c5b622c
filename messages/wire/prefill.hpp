#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "messages/base/fields.hpp"
#include "messages/base/reason.hpp"
#include "messages/base/units.hpp"
#include "messages/domain/address.hpp"
#include "messages/domain/serving.hpp"
#include "messages/domain/stage_name.hpp"
#include "messages/wire/guest.hpp"

// Messages about prefill in the bubbles of trainings: between decoders, the prefill controller of
// their datacenter (in its gateway's process), and the guests beside the stages of a training
// (docs/serving_protocol.md).

namespace troupe {

/// One attempt to prefill a prompt in bubbles, numbered by the decoder that asked for it.
struct prefill_name {
  address decoder = 0;  // address of its node
  lease_id lease = 0;   // the decoder's
  std::uint64_t number = 0;

  TROUPE_FIELDS(prefill_name, decoder, lease, number);
  auto operator<=>(const prefill_name&) const = default;
};

/// Decoder, once it has reserved the pages, to the prefill controller in its datacenter's gateway.
/// The body has the tokens, as in `generate`. Repeated until `prefill_reply` answers.
struct prefill_request {
  prefill_name name;
  std::string model;  // the served name
  std::uint32_t tokens = 1;
  double within_s = 0;  // the prefill must end within this time
  std::int32_t priority = 0;

  TROUPE_FIELDS(prefill_request, name, model, tokens, within_s, priority);
};

/// The answer to `prefill_request`, at once: the prefill is predicted to end after `promised_s`, or
/// the reason why it is declined (a key of `declined_by_reason` as its text).
struct prefill_reply {
  prefill_name name;
  double promised_s = 0;  // predicted time until the prefill's end
  /// Addresses of the nodes that will send blocks, by the number of their guest.
  std::vector<address> guests;
  reason declined;  // why it is not promised; empty: it is

  TROUPE_FIELDS(prefill_reply, name, promised_s, guests, declined);
};

/// A prefill pipeline: all layers, in order.
struct guest_group {
  std::vector<guest_place> guests;
  /// For each token, from one guest to the next; the slowest hop.
  double hop_token_s = 0, hop_latency_s = 0;

  TROUPE_FIELDS(guest_group, guests, hop_token_s, hop_latency_s);
};

/// The planned busy times of one stage of an offer.
struct stage_busy_times {
  stage_name stage;
  std::vector<busy_time> busy;  // of `shown` iterations

  TROUPE_FIELDS(stage_busy_times, stage, busy);
};

/// Trainer to the gateways of its datacenters: the groups of guests there, and the timetable of
/// their stages. A statement, repeated every heartbeat; one without groups, or silence for
/// `lease_s`, ends the lending.
struct bubble_offer {
  lease_id lease = 0;          // the training's
  std::uint64_t trainer = 0;   // its incarnation
  std::uint64_t sequence = 0;  // of this content
  bubble_lending how;
  std::vector<guest_group> groups;  // in this datacenter
  /// From an iteration's begin to the next one's, where there is no barrier.
  double iteration_s = 0;
  std::vector<stage_busy_times> stages;  // the timetable
  std::uint32_t max_tokens = 0;          // of a prompt whose cache fits the guests' memory; 0: any
  std::uint32_t shown = 1;               // iterations whose times `stages` has
  std::uint64_t window = 0;           // iterations from one barrier to the next; 0: there are none
  double window_s = 0;                // time of a window, from first step to first step
  std::uint64_t first_iteration = 0;  // completed before the first barrier
  static constexpr std::size_t required = 8;

  TROUPE_FIELDS(bubble_offer, lease, trainer, sequence, how, groups, iteration_s, stages,
                max_tokens, shown, window, window_s, first_iteration);
};

/// Stage with a guest to its gateway: its first step of the iteration after `iteration` began
/// `ago_s` ago.
struct stage_signal {
  stage_name stage;
  std::uint64_t trainer = 0;    // incarnation of the setup
  std::uint64_t iteration = 0;  // completed iterations
  double ago_s = 0;
  // The usual time of the guest's operations over that of its place in the offer, if that was
  // measured.
  std::optional<double> guest_factor{};
  static constexpr std::size_t required = 4;

  TROUPE_FIELDS(stage_signal, stage, trainer, iteration, ago_s, guest_factor);
};

/// Prefill controller to every guest of the group: compute this prompt. The first guest's body has
/// the tokens. Repeated until a `prefill_progress` answers.
struct prefill_order {
  prefill_name name;
  std::uint64_t sequence = 0;  // of the group: guests execute prompts in this order
  std::uint32_t tokens = 1;
  std::uint32_t guest = 0;  // the receiver's number in the group
  guest_group group;
  double latest_s = 0;  // it gives up after this time
  std::int32_t priority = 0;

  TROUPE_FIELDS(prefill_order, name, sequence, tokens, guest, group, latest_s, priority);
};

/// Begin of `prefill_progress.why` of a guest whose training was delayed too often, and reason of
/// declined requests while all guests are paused.
inline constexpr std::string_view paused_by_delay_budget = "paused_by_delay_budget";

/// Guest to prefill controller: it has the order, its part has ended, or it does not have the order
/// (any more) because the device, the stage or the prompt is gone. Prefill controller to decoder,
/// as `gone`: the answer to `cancel_prefill`.
struct prefill_progress {
  enum class state : std::uint8_t {
    held,   // it has the order
    ended,  // it has computed and sent its part
    gone    // it does not have the order
  };
  prefill_name name;
  std::uint32_t guest = 0;
  state now = state::held;
  double computed_s = 0;     // time of its operations
  double ended_ago_s = 0;    // since the end of the last one
  std::uint32_t steps = 0;   // operations
  std::uint32_t yields = 0;  // suspensions for the training
  reason why;                // of `gone`
  double begun_ago_s = 0;    // since the begin of the first one
  /// Received from the guest before it, of hidden states.
  std::uint64_t hidden_bytes = 0;
  static constexpr std::size_t required = 8;

  TROUPE_FIELDS(prefill_progress, name, guest, now, computed_s, ended_ago_s, steps, yields, why,
                begun_ago_s, hidden_bytes);
};

/// Decoder to prefill controller, and that to the guests: this prefill is no longer needed, or its
/// cache is complete. Answered by a `prefill_progress` with `gone`.
struct cancel_prefill {
  prefill_name name;

  TROUPE_FIELDS(cancel_prefill, name);
};

/// A part of a guest's result; the body is its data, 32-bit floats. In a simulation the body may be
/// empty: the block takes as long as `bytes` would. It travels on a lane of its own, behind
/// tensors, and never to another datacenter.
struct prefill_block {
  enum class kind : std::uint8_t {
    hidden,  // to the next guest: hidden states of [first, first + count) positions
    cache,   // to the decoder: pages [first, first + count) of the guest's layers
    last     // to the decoder, from the last guest: the hidden state of the last position
  };
  kind what = kind::hidden;
  prefill_name name;
  std::uint32_t guest = 0;  // the sender's number in its group
  /// Among the guest's blocks of hidden states, or among those to the decoder.
  std::uint32_t index = 0;
  std::uint32_t blocks = 1;  // of these, in all
  std::uint32_t first_layer = 0, layers = 0;
  std::uint32_t first = 0;    // position, or page
  std::uint32_t count = 0;    // of positions, or pages
  std::uint64_t bytes = 0;    // of the data
  std::uint64_t hash = 0;     // XXH3-64 of the body; 0: it is empty
  prefill_progress progress;  // of the sender; in its last block with the time of its end

  TROUPE_FIELDS(prefill_block, what, name, guest, index, blocks, first_layer, layers, first, count,
                bytes, hash, progress);
};

/// Receiver of blocks to their sender: it has all with a smaller index than `all_below`, and these.
/// Repeated while some are missing, and once it has all; the sender resends missing blocks that it
/// sent long enough ago.
struct blocks_received {
  prefill_name name;
  std::uint32_t guest = 0;            // the sender of the blocks
  bool hidden = false;                // which blocks: its hidden states, or those to the decoder
  std::uint32_t all_below = 0;        // it has all blocks with a smaller index
  std::vector<std::uint32_t> others;  // it has these as well
  bool whole = false;  // nothing is missing, or it needs no more: the sender may forget them

  TROUPE_FIELDS(blocks_received, name, guest, hidden, all_below, others, whole);
};

}  // namespace troupe
