#pragma once

#include <cstdint>
#include <type_traits>
#include <variant>

#include "messages/wire/client.hpp"
#include "messages/wire/generation.hpp"
#include "messages/wire/large_variant.hpp"
#include "messages/wire/prefill.hpp"
#include "messages/wire/serving_leases.hpp"
#include "messages/wire/session.hpp"
#include "messages/wire/stage.hpp"
#include "messages/wire/work.hpp"

namespace troupe {

/// Increased when a header or a body changes its meaning; peers of other versions are rejected.
inline constexpr std::uint8_t protocol_version = 5;

/// A message and its type number on the wire.
template <class T, std::uint16_t Number>
struct wire_type {
  using type = T;
  static constexpr std::uint16_t number = Number;
};

template <class... N>
struct message_table {
  using any = std::variant<typename N::type...>;
  /// 0: not a message.
  template <class T>
  static constexpr std::uint16_t number_of =
      static_cast<std::uint16_t>((0 + ... + (std::is_same_v<T, typename N::type> ? N::number : 0)));
};

/// All messages. Numbers are never reused.
using message_types = message_table<
    wire_type<hello, 1>, wire_type<welcome, 2>, wire_type<refusal, 3>, wire_type<credit, 4>,
    wire_type<find_node, 5>, wire_type<node_endpoint, 6>, wire_type<submit_job, 10>,
    wire_type<submit_reply, 11>, wire_type<cancel_job, 12>, wire_type<cancel_reply, 13>,
    wire_type<query_jobs, 14>, wire_type<query_reply, 15>, wire_type<explain_job, 16>,
    wire_type<explanation, 17>, wire_type<read_log, 18>, wire_type<log_chunk, 19>,
    wire_type<suspend_job, 20>, wire_type<suspend_reply, 21>, wire_type<move_job, 22>,
    wire_type<move_reply, 23>, wire_type<reconfigure, 24>, wire_type<reconfigure_reply, 25>,
    wire_type<drain_nodes, 26>, wire_type<drain_reply, 27>, wire_type<requeue_job, 28>,
    wire_type<requeue_reply, 29>, wire_type<node_report, 30>, wire_type<node_orders, 31>,
    wire_type<gateway_report, 32>, wire_type<node_heartbeat, 33>, wire_type<lease_renewals, 34>,
    wire_type<lease_renewal, 35>, wire_type<cluster_update, 36>, wire_type<stage_setup, 40>,
    wire_type<stage_run, 41>, wire_type<stage_report, 42>, wire_type<tensor, 43>,
    wire_type<stripe, 44>, wire_type<training_report, 45>, wire_type<query_training, 46>,
    wire_type<training_reply, 47>, wire_type<training_report_ack, 48>,
    wire_type<tensor_request, 49>, wire_type<generate, 60>, wire_type<generated, 61>,
    wire_type<generated_ack, 62>, wire_type<cancel_generate, 63>, wire_type<decoder_state, 64>,
    wire_type<prefill_request, 65>, wire_type<prefill_reply, 66>, wire_type<prefill_order, 67>,
    wire_type<prefill_progress, 68>, wire_type<cancel_prefill, 69>, wire_type<prefill_block, 70>,
    wire_type<blocks_received, 71>, wire_type<bubble_offer, 72>, wire_type<stage_signal, 73>,
    wire_type<front_report, 74>, wire_type<serving_leases, 75>>;

/// Any message.
using any_message = message_types::any;
using message = large_variant<any_message>;

template <class T>
inline constexpr std::uint16_t type_id = message_types::number_of<T>;

/// Messages up to this type are about one connection: transports exchange them, and nothing
/// forwards them.
inline constexpr std::uint16_t last_session_type = type_id<node_endpoint>;

}  // namespace troupe
