#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/base/units.hpp"
#include "messages/domain/address.hpp"
#include "messages/domain/completion.hpp"

// Messages between fronts, which have the clients' requests, and decoders, which complete prompts
// (docs/serving_protocol.md).

namespace troupe {

/// A request of a front. The front alone begins attempts, from 1; what belongs to an older attempt
/// is ignored.
struct request_name {
  address front = 0;
  std::uint64_t incarnation = 0;  // of the front
  std::uint64_t number = 0;
  std::uint32_t attempt = 1;

  static constexpr auto fields() {
    using t = request_name;
    return std::tuple{&t::front, &t::incarnation, &t::number, &t::attempt};
  }
  auto operator<=>(const request_name&) const = default;
};

/// Front to decoder: complete a prompt. Body: its tokens, then the completion's first tokens, which
/// an earlier attempt has generated, as 32-bit integers; in a simulation it may be empty. Repeated
/// until a `generated` answers it.
struct generate {
  request_name name;
  lease_id lease = 0;  // the decoder's
  completion_request what;
  std::uint32_t replay = 0;  // tokens of the answer that the front has already

  static constexpr auto fields() {
    using t = generate;
    return std::tuple{&t::name, &t::lease, &t::what, &t::replay};
  }
  bool operator==(const generate&) const = default;
};

/// How a prompt was computed.
struct prefill_place {
  bool bubbles = false;            // else by the decoder
  std::uint32_t guests = 0;        // devices that computed it in bubbles
  double promised_s = 0;           // predicted at admission, after the request
  double prefill_s = 0;            // from the request to the last operation's end
  double transfer_s = 0;           // from there until the cache was whole
  std::uint32_t yields = 0;        // suspensions for the training
  std::uint64_t kv_bytes = 0;      // of the cache
  reason declined;                 // why not in bubbles; empty: it was, or was not asked for
  double queue_s = 0;              // from the request to the first operation's begin
  std::uint64_t hidden_bytes = 0;  // of hidden states, between its guests
  static constexpr std::size_t required = 8;

  static constexpr auto fields() {
    using t = prefill_place;
    return std::tuple{&t::bubbles, &t::guests,   &t::promised_s, &t::prefill_s, &t::transfer_s,
                      &t::yields,  &t::kv_bytes, &t::declined,   &t::queue_s,   &t::hidden_bytes};
  }
  bool operator==(const prefill_place&) const = default;
};

/// Decoder to front: what it has generated beyond the `known` tokens, in order. A statement,
/// repeated until it is acknowledged; one without tokens means that the request is held.
struct generated {
  enum class ending : std::uint8_t { none, stop, length, failed };
  request_name name;
  lease_id lease = 0;
  std::uint32_t first = 0;  // position of the first of `tokens` in the answer
  std::vector<generated_token> tokens;
  ending finish = ending::none;          // after these tokens
  reason why;                            // failed: declined, or the device cannot go on
  std::optional<prefill_place> where{};  // with the first token

  static constexpr auto fields() {
    using t = generated;
    return std::tuple{&t::name, &t::lease, &t::first, &t::tokens, &t::finish, &t::why, &t::where};
  }
  bool operator==(const generated&) const = default;
};

/// Front to decoder: it has the answer's first `tokens` tokens; `finished`: and its end, so the
/// decoder forgets the request. Also the answer to statements about requests that the front does
/// not have (any more).
struct generated_ack {
  request_name name;
  lease_id lease = 0;
  std::uint32_t tokens = 0;
  bool finished = false;

  static constexpr auto fields() {
    using t = generated_ack;
    return std::tuple{&t::name, &t::lease, &t::tokens, &t::finished};
  }
  bool operator==(const generated_ack&) const = default;
};

/// Front to decoder: end this attempt and all earlier ones. Answered by a `generated` with an
/// ending, and repeated until then.
struct cancel_generate {
  request_name name;
  lease_id lease = 0;

  static constexpr auto fields() {
    return std::tuple{&cancel_generate::name, &cancel_generate::lease};
  }
  bool operator==(const cancel_generate&) const = default;
};

/// Decoder to every front, every quarter of a heartbeat and when it becomes ready: it serves this
/// model. A front without it for a lease's duration takes the decoder for lost.
struct decoder_state {
  lease_id lease = 0;
  std::uint64_t sequence = 0;
  std::string model;          // the served name
  std::uint32_t context = 0;  // positions of a sequence, at most
  std::uint32_t pages = 0, free_pages = 0;
  std::uint32_t running = 0, waiting = 0;
  std::uint32_t max_sequences = 0;
  bool ending = false;            // takes no more requests
  std::uint64_t incarnation = 0;  // of its node
  std::string folder{};           // of the model, for its tokenizer
  std::uint64_t files = 0;        // hash of the model's files, as its job has it
  static constexpr std::size_t required = 12;

  static constexpr auto fields() {
    using t = decoder_state;
    return std::tuple{&t::lease,       &t::sequence, &t::model,   &t::context,       &t::pages,
                      &t::free_pages,  &t::running,  &t::waiting, &t::max_sequences, &t::ending,
                      &t::incarnation, &t::folder,   &t::files};
  }
  bool operator==(const decoder_state&) const = default;
};

/// A decoder as a front knows it.
struct reported_decoder {
  node_index node = 0;
  decoder_state state;

  static constexpr auto fields() {
    return std::tuple{&reported_decoder::node, &reported_decoder::state};
  }
  bool operator==(const reported_decoder&) const = default;
};

/// Outcomes of a front's requests since it began: one for each prompt and choice.
struct front_counts {
  std::uint64_t finished = 0;
  std::uint64_t cancelled = 0;  // the client left
  std::uint64_t declined = 0;   // no decoder had room
  std::uint64_t failed = 0;
  std::uint64_t retries = 0;  // attempts after the first
  std::uint64_t tokens = 0;   // generated
  // Prompts by where they were computed, and the bubbles' devices' suspensions for the training.
  std::uint64_t by_bubbles = 0, by_decoders = 0, yields = 0;

  static constexpr auto fields() {
    using t = front_counts;
    return std::tuple{&t::finished, &t::cancelled,  &t::declined,    &t::failed, &t::retries,
                      &t::tokens,   &t::by_bubbles, &t::by_decoders, &t::yields};
  }
  bool operator==(const front_counts&) const = default;
};

/// Front to controller, every heartbeat, for display: nothing is decided by it.
struct front_report {
  std::uint64_t incarnation = 0, sequence = 0;
  std::uint32_t requests = 0;  // that have not ended
  front_counts counts;
  // The newest first tokens, from the request to their arrival at the front; 0: there are none.
  double ttft_p50_s = 0, ttft_p99_s = 0;
  std::vector<reported_decoder> decoders;
  std::optional<std::uint64_t> cluster{};  // version of the cluster that it follows; none: 0
  static constexpr std::size_t required = 7;

  static constexpr auto fields() {
    using t = front_report;
    return std::tuple{&t::incarnation, &t::sequence,   &t::requests, &t::counts,
                      &t::ttft_p50_s,  &t::ttft_p99_s, &t::decoders, &t::cluster};
  }
  bool operator==(const front_report&) const = default;
};

}  // namespace troupe
