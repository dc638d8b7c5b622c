#pragma once

#include <cstdint>
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

/// Message types on the wire. Numbers are never reused.
template <class T>
inline constexpr std::uint16_t type_id = 0;

template <>
inline constexpr std::uint16_t type_id<hello> = 1;
template <>
inline constexpr std::uint16_t type_id<welcome> = 2;
template <>
inline constexpr std::uint16_t type_id<refusal> = 3;
template <>
inline constexpr std::uint16_t type_id<credit> = 4;
template <>
inline constexpr std::uint16_t type_id<find_node> = 5;
template <>
inline constexpr std::uint16_t type_id<node_endpoint> = 6;
template <>
inline constexpr std::uint16_t type_id<submit_job> = 10;
template <>
inline constexpr std::uint16_t type_id<submit_reply> = 11;
template <>
inline constexpr std::uint16_t type_id<cancel_job> = 12;
template <>
inline constexpr std::uint16_t type_id<cancel_reply> = 13;
template <>
inline constexpr std::uint16_t type_id<query_jobs> = 14;
template <>
inline constexpr std::uint16_t type_id<query_reply> = 15;
template <>
inline constexpr std::uint16_t type_id<explain_job> = 16;
template <>
inline constexpr std::uint16_t type_id<explanation> = 17;
template <>
inline constexpr std::uint16_t type_id<read_log> = 18;
template <>
inline constexpr std::uint16_t type_id<log_chunk> = 19;
template <>
inline constexpr std::uint16_t type_id<suspend_job> = 20;
template <>
inline constexpr std::uint16_t type_id<suspend_reply> = 21;
template <>
inline constexpr std::uint16_t type_id<move_job> = 22;
template <>
inline constexpr std::uint16_t type_id<move_reply> = 23;
template <>
inline constexpr std::uint16_t type_id<reconfigure> = 24;
template <>
inline constexpr std::uint16_t type_id<reconfigure_reply> = 25;
template <>
inline constexpr std::uint16_t type_id<drain_nodes> = 26;
template <>
inline constexpr std::uint16_t type_id<drain_reply> = 27;
template <>
inline constexpr std::uint16_t type_id<requeue_job> = 28;
template <>
inline constexpr std::uint16_t type_id<requeue_reply> = 29;
template <>
inline constexpr std::uint16_t type_id<node_report> = 30;
template <>
inline constexpr std::uint16_t type_id<node_orders> = 31;
template <>
inline constexpr std::uint16_t type_id<gateway_report> = 32;
template <>
inline constexpr std::uint16_t type_id<node_heartbeat> = 33;
template <>
inline constexpr std::uint16_t type_id<lease_renewals> = 34;
template <>
inline constexpr std::uint16_t type_id<lease_renewal> = 35;
template <>
inline constexpr std::uint16_t type_id<cluster_update> = 36;
template <>
inline constexpr std::uint16_t type_id<stage_setup> = 40;
template <>
inline constexpr std::uint16_t type_id<stage_run> = 41;
template <>
inline constexpr std::uint16_t type_id<stage_report> = 42;
template <>
inline constexpr std::uint16_t type_id<tensor> = 43;
template <>
inline constexpr std::uint16_t type_id<stripe> = 44;
template <>
inline constexpr std::uint16_t type_id<training_report> = 45;
template <>
inline constexpr std::uint16_t type_id<query_training> = 46;
template <>
inline constexpr std::uint16_t type_id<training_reply> = 47;
template <>
inline constexpr std::uint16_t type_id<training_report_ack> = 48;
template <>
inline constexpr std::uint16_t type_id<tensor_request> = 49;
template <>
inline constexpr std::uint16_t type_id<generate> = 60;
template <>
inline constexpr std::uint16_t type_id<generated> = 61;
template <>
inline constexpr std::uint16_t type_id<generated_ack> = 62;
template <>
inline constexpr std::uint16_t type_id<cancel_generate> = 63;
template <>
inline constexpr std::uint16_t type_id<decoder_state> = 64;
template <>
inline constexpr std::uint16_t type_id<prefill_request> = 65;
template <>
inline constexpr std::uint16_t type_id<prefill_reply> = 66;
template <>
inline constexpr std::uint16_t type_id<prefill_order> = 67;
template <>
inline constexpr std::uint16_t type_id<prefill_progress> = 68;
template <>
inline constexpr std::uint16_t type_id<cancel_prefill> = 69;
template <>
inline constexpr std::uint16_t type_id<prefill_block> = 70;
template <>
inline constexpr std::uint16_t type_id<blocks_received> = 71;
template <>
inline constexpr std::uint16_t type_id<bubble_offer> = 72;
template <>
inline constexpr std::uint16_t type_id<stage_signal> = 73;
template <>
inline constexpr std::uint16_t type_id<front_report> = 74;
template <>
inline constexpr std::uint16_t type_id<serving_leases> = 75;

/// Messages up to this type are about one connection: transports exchange them, and nothing
/// forwards them.
inline constexpr std::uint16_t last_session_type = type_id<node_endpoint>;

/// Any message.
using message = std::variant<
    hello, welcome, refusal, credit, submit_job, submit_reply, cancel_job, cancel_reply, query_jobs,
    query_reply, explain_job, explanation, read_log, log_chunk, suspend_job, suspend_reply,
    move_job, move_reply, node_report, node_orders, gateway_report, node_heartbeat, lease_renewals,
    lease_renewal, stage_setup, stage_run, stage_report, tensor, stripe, training_report,
    query_training, training_reply, training_report_ack, tensor_request, find_node, node_endpoint,
    generate, generated, generated_ack, cancel_generate, decoder_state, prefill_request,
    prefill_reply, prefill_order, prefill_progress, cancel_prefill, prefill_block, blocks_received,
    bubble_offer, stage_signal, front_report, requeue_job, requeue_reply, serving_leases,
    reconfigure, reconfigure_reply, drain_nodes, drain_reply, cluster_update>;

}  // namespace troupe
