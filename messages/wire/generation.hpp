#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "messages/base/fields.hpp"
#include "messages/base/reason.hpp"
#include "messages/base/units.hpp"
#include "messages/domain/address.hpp"
#include "messages/domain/completion.hpp"

// Between fronts, which have the clients' requests, decoders, which complete prompts, prefill
// controllers (one in the process of each gateway) and guests (beside the stages of trainings).
// docs/serving_protocol.md describes the order of these messages and the recovery of lost ones.

namespace troupe {

/// An attempt of a front's request. The front alone begins attempts; frames of an older attempt are
/// ignored.
struct request_name {
  address front = 0;              // its address
  std::uint64_t incarnation = 0;  // the front's
  std::uint64_t number = 0;
  std::uint32_t attempt = 1;  // from 1; what belongs to an older one is ignored

  TROUPE_FIELDS(request_name, front, incarnation, number, attempt);
  auto operator<=>(const request_name&) const = default;
};

/// Front to decoder: complete a prompt. The body has the prompt's tokens, then those of the
/// completion that an earlier attempt has generated, as 32-bit integers, little-endian; in a
/// simulation it may be empty. Repeated until a `generated` answers. An answer begins, if
/// `what.scores_prompt` is true, with the prompt's tokens from the second on, with their
/// logarithmic probabilities; then comes the completion. The body has only tokens of the completion
/// after those of the prompt.
struct generate {
  request_name name;
  lease_id lease = 0;  // the decoder's
  completion_request what;
  std::uint32_t replay = 0;  // tokens of the answer that the front has already; the rest follows
  std::optional<std::string> adapter{};  // of the decoder's; none: the model itself
  static constexpr std::size_t required = 4;

  TROUPE_FIELDS(generate, name, lease, what, replay, adapter);
};

/// How a prompt was computed.
struct prefill_place {
  bool bubbles = false;            // else by the decoder
  std::uint32_t guests = 0;        // devices that computed it in bubbles
  double promised_s = 0;           // predicted when it was admitted, after the request
  double prefill_s = 0;            // from the request to the end of the last operation
  double transfer_s = 0;           // from there until the cache was whole
  std::uint32_t yields = 0;        // suspensions for the training
  std::uint64_t kv_bytes = 0;      // of the cache
  reason declined;                 // why not in bubbles; empty: it was, or that was not asked for
  double queue_s = 0;              // from the request to the begin of the first operation
  std::uint64_t hidden_bytes = 0;  // of hidden states, between its guests
  std::optional<std::uint32_t> cached{};  // positions that another prompt had computed; none: 0
  static constexpr std::size_t required = 8;

  TROUPE_FIELDS(prefill_place, bubbles, guests, promised_s, prefill_s, transfer_s, yields, kv_bytes,
                declined, queue_s, hidden_bytes, cached);
};

/// Decoder to front: the tokens that it has generated beyond the known ones, in order. A statement,
/// repeated until `generated_ack` answers; one without tokens means that the decoder has the
/// request.
struct generated {
  enum class ending : std::uint8_t {
    none,    // it goes on
    stop,    // at one of the last tokens
    length,  // at `max_tokens`, or the context's end
    failed   // declined, or lost
  };
  request_name name;
  lease_id lease = 0;       // the decoder's
  std::uint32_t first = 0;  // position of the first of `tokens` in the answer
  std::vector<generated_token> tokens;
  ending finish = ending::none;          // after these tokens
  reason why;                            // of `failed`: declined, or the device cannot go on
  std::optional<prefill_place> where{};  // with the first token

  TROUPE_FIELDS(generated, name, lease, first, tokens, finish, why, where);
};

/// Front to decoder: it has these tokens. Also the answer to a `generated` of a request that the
/// front does not have (any more).
struct generated_ack {
  request_name name;
  lease_id lease = 0;        // the decoder's
  std::uint32_t tokens = 0;  // this many of the answer's first tokens
  bool finished = false;     // it has the end as well: the decoder forgets the request

  TROUPE_FIELDS(generated_ack, name, lease, tokens, finished);
};

/// Front to decoder: end this attempt and all earlier ones. Repeated until a `generated` with an
/// ending answers.
struct cancel_generate {
  request_name name;
  lease_id lease = 0;  // the decoder's

  TROUPE_FIELDS(cancel_generate, name, lease);
};

/// Decoder to every front, every quarter of a heartbeat and when it becomes ready: it serves this
/// model. A front that has not received it for `lease_s` considers the decoder lost.
struct decoder_state {
  lease_id lease = 0;
  std::uint64_t sequence = 0;               // of this statement
  std::string model;                        // the served name
  std::uint32_t context = 0;                // positions of a sequence, at most
  std::uint32_t pages = 0, free_pages = 0;  // of its cache
  std::uint32_t running = 0, waiting = 0;   // sequences
  std::uint32_t max_sequences = 0;          // running and waiting, at most
  bool ending = false;                      // it takes no more requests
  std::uint64_t incarnation = 0;            // of its node
  std::string folder{};                     // of the model, for its tokenizer
  std::uint64_t files = 0;  // hash of the model's files, as its job has it; 0: unknown
  /// Free pages with the beginning of a prompt; none: 0, as in what follows.
  std::optional<std::uint32_t> cached_pages{};
  std::optional<std::uint64_t> set_back{};             // sequences, since it began, each time
  std::optional<std::uint64_t> computed_prompt{};      // positions of prompts, since it began
  std::optional<std::uint64_t> cached_prompt{};        // and those that other prompts had computed
  std::optional<std::vector<std::string>> adapters{};  // names of those that it serves, too
  static constexpr std::size_t required = 12;

  TROUPE_FIELDS(decoder_state, lease, sequence, model, context, pages, free_pages, running, waiting,
                max_sequences, ending, incarnation, folder, files, cached_pages, set_back,
                computed_prompt, cached_prompt, adapters);
};

/// A decoder as a front knows it.
struct reported_decoder {
  node_index node = 0;  // its index in the cluster
  decoder_state state;  // its latest

  TROUPE_FIELDS(reported_decoder, node, state);
};

/// The ends of a front's requests since it began, one for each prompt and choice.
struct front_counts {
  std::uint64_t finished = 0;
  std::uint64_t cancelled = 0;  // the client left
  std::uint64_t declined = 0;   // no decoder had room
  std::uint64_t failed = 0;
  std::uint64_t retries = 0;      // attempts after the first
  std::uint64_t tokens = 0;       // generated
  std::uint64_t by_bubbles = 0;   // prompts that were computed in bubbles
  std::uint64_t by_decoders = 0;  // prompts that were computed by their decoders
  std::uint64_t yields = 0;       // suspensions of guests for a training

  TROUPE_FIELDS(front_counts, finished, cancelled, declined, failed, retries, tokens, by_bubbles,
                by_decoders, yields);
};

/// Front to controller, every heartbeat, for display: nothing is decided by it.
struct front_report {
  std::uint64_t incarnation = 0;  // the front's
  std::uint64_t sequence = 0;     // of this report
  std::uint32_t requests = 0;     // that have not ended
  front_counts counts;            // of those that have
  /// Quantile of its newest first tokens' times, from the request to their arrival at the front; 0:
  /// there are none.
  double ttft_p50_s = 0, ttft_p99_s = 0;
  std::vector<reported_decoder> decoders;  // that it knows
  std::optional<std::uint64_t> cluster{};  // version of the cluster that it follows; none: 0
  static constexpr std::size_t required = 7;

  TROUPE_FIELDS(front_report, incarnation, sequence, requests, counts, ttft_p50_s, ttft_p99_s,
                decoders, cluster);
};

}  // namespace troupe
