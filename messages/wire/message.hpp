#pragma once

#include <cstdint>
#include <type_traits>
#include <variant>

#include "messages/wire/client.hpp"
#include "messages/wire/generation.hpp"
#include "messages/wire/prefill.hpp"
#include "messages/wire/serving_leases.hpp"
#include "messages/wire/session.hpp"
#include "messages/wire/stage.hpp"
#include "messages/wire/work.hpp"

namespace troupe {

/// Increased when a header or a body changes its meaning; peers of other versions are rejected.
inline constexpr std::uint8_t protocol_version = 3;

/// A row of the list of messages: a type, and its number on the wire.
template <class T, std::uint16_t Number>
struct message_row {};

template <class... Rows>
struct message_list;

template <class... T, std::uint16_t... Number>
struct message_list<message_row<T, Number>...> {
  using any = std::variant<T...>;

  /// 0: M is no message.
  template <class M>
  static constexpr std::uint16_t number_of() {
    return static_cast<std::uint16_t>((0 + ... + (std::is_same_v<M, T> ? Number : 0)));
  }
};

/// Every message. Numbers are never reused.
using all_messages = message_list<
    message_row<hello, 1>, message_row<welcome, 2>, message_row<refusal, 3>, message_row<credit, 4>,
    message_row<submit_job, 10>, message_row<submit_reply, 11>, message_row<cancel_job, 12>,
    message_row<cancel_reply, 13>, message_row<query_jobs, 14>, message_row<query_reply, 15>,
    message_row<explain_job, 16>, message_row<explanation, 17>, message_row<read_log, 18>,
    message_row<log_chunk, 19>, message_row<suspend_job, 20>, message_row<suspend_reply, 21>,
    message_row<move_job, 22>, message_row<move_reply, 23>, message_row<node_report, 30>,
    message_row<node_orders, 31>, message_row<gateway_report, 32>, message_row<node_heartbeat, 33>,
    message_row<lease_renewals, 34>, message_row<lease_renewal, 35>, message_row<stage_setup, 40>,
    message_row<stage_run, 41>, message_row<stage_report, 42>, message_row<tensor, 43>,
    message_row<stripe, 44>, message_row<training_report, 45>, message_row<query_training, 46>,
    message_row<training_reply, 47>, message_row<training_report_ack, 48>,
    message_row<tensor_request, 49>, message_row<find_node, 5>, message_row<node_endpoint, 6>,
    message_row<generate, 60>, message_row<generated, 61>, message_row<generated_ack, 62>,
    message_row<cancel_generate, 63>, message_row<decoder_state, 64>,
    message_row<prefill_request, 65>, message_row<prefill_reply, 66>,
    message_row<prefill_order, 67>, message_row<prefill_progress, 68>,
    message_row<cancel_prefill, 69>, message_row<prefill_block, 70>,
    message_row<blocks_received, 71>, message_row<bubble_offer, 72>, message_row<stage_signal, 73>,
    message_row<front_report, 74>, message_row<requeue_job, 28>, message_row<requeue_reply, 29>,
    message_row<serving_leases, 75>, message_row<reconfigure, 24>,
    message_row<reconfigure_reply, 25>, message_row<drain_nodes, 26>, message_row<drain_reply, 27>,
    message_row<cluster_update, 36>>;

/// Any message.
using message = all_messages::any;

template <class T>
inline constexpr std::uint16_t type_id = all_messages::number_of<T>();

/// Messages up to this type are about one connection: transports exchange them, and nothing
/// forwards them.
inline constexpr std::uint16_t last_session_type = type_id<node_endpoint>;

}  // namespace troupe
