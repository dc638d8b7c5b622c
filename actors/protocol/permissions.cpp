#include "actors/protocol/permissions.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "messages/base/refuse.hpp"
#include "messages/wire/message.hpp"
#include "runtime/host/log.hpp"

namespace troupe::actors {

namespace {

constexpr std::uint8_t client = 1, node = 2, gateway = 4, controller = 8, front = 16, no_role = 0;

template <class T>
constexpr permission row(const char* name, std::uint8_t from, std::uint8_t to,
                         condition also = condition::none, condition then = condition::none) {
  return {type_id<T>, name, from, to, also, then};
}

// Greetings and credit are handled by the transport and never forwarded.
/// One row for each type of message, checked against the list of messages below. A type that is
/// missing here does not compile, so no message is allowed by omission.
constexpr std::array table{
    row<hello>("hello", no_role, no_role),
    row<welcome>("welcome", no_role, no_role),
    row<refusal>("refusal", no_role, no_role),
    row<credit>("credit", no_role, no_role),
    row<find_node>("find_node", no_role, no_role),
    row<node_endpoint>("node_endpoint", no_role, no_role),
    row<submit_job>("submit_job", client, controller),
    row<submit_reply>("submit_reply", controller, client),
    row<cancel_job>("cancel_job", client, controller, condition::owner),
    row<cancel_reply>("cancel_reply", controller, client),
    row<suspend_job>("suspend_job", client, controller, condition::owner),
    row<suspend_reply>("suspend_reply", controller, client),
    row<requeue_job>("requeue_job", client, controller, condition::owner),
    row<requeue_reply>("requeue_reply", controller, client),
    row<move_job>("move_job", client, controller, condition::owner),
    row<move_reply>("move_reply", controller, client),
    row<query_jobs>("query_jobs", client, controller),
    row<query_reply>("query_reply", controller, client),
    row<explain_job>("explain_job", client, controller),
    row<explanation>("explanation", controller, client),
    // To a node it is sent by the controller itself, in the client's name: see may_arrive.
    row<read_log>("read_log", client, controller | node, condition::owner),
    row<log_chunk>("log_chunk", controller | node, client),
    row<reconfigure>("reconfigure", client, controller, condition::is_operator),
    row<reconfigure_reply>("reconfigure_reply", controller, client),
    row<drain_nodes>("drain_nodes", client, controller, condition::is_operator),
    row<drain_reply>("drain_reply", controller, client),
    row<node_report>("node_report", node, controller),
    row<node_orders>("node_orders", controller, node),
    row<gateway_report>("gateway_report", gateway, controller),
    row<node_heartbeat>("node_heartbeat", node, gateway, condition::same_datacenter),
    row<lease_renewals>("lease_renewals", controller, gateway),
    row<lease_renewal>("lease_renewal", gateway, node, condition::same_datacenter),
    row<stage_setup>("stage_setup", node, node, condition::trainer),
    row<stage_run>("stage_run", node, node, condition::trainer),
    row<stage_report>("stage_report", node, node, condition::lease_node),
    row<tensor>("tensor", node, node, condition::lease_node),
    row<tensor_request>("tensor_request", node, node, condition::lease_node),
    row<stripe>("stripe", gateway, gateway),
    row<training_report>("training_report", node, controller, condition::trainer),
    row<training_report_ack>("training_report_ack", controller, node),
    row<query_training>("query_training", client, controller),
    row<training_reply>("training_reply", controller, client),
    row<generate>("generate", front, node),
    row<generated>("generated", node, front, condition::asked_decoder),
    row<generated_ack>("generated_ack", front, node),
    row<cancel_generate>("cancel_generate", front, node),
    row<decoder_state>("decoder_state", node, front, condition::decoder),
    row<prefill_request>("prefill_request", node, gateway, condition::same_datacenter,
                         condition::decoder),
    row<prefill_reply>("prefill_reply", gateway, node, condition::same_datacenter),
    row<prefill_order>("prefill_order", gateway, node, condition::same_datacenter),
    row<prefill_progress>("prefill_progress", node | gateway, node | gateway,
                          condition::same_datacenter),
    row<cancel_prefill>("cancel_prefill", node | gateway, node | gateway,
                        condition::same_datacenter),
    // Their lane ends at the gateway: between datacenters there is none for them.
    row<prefill_block>("prefill_block", node, node, condition::same_datacenter, condition::guest),
    row<blocks_received>("blocks_received", node, node, condition::same_datacenter,
                         condition::receiver),
    row<bubble_offer>("bubble_offer", node, gateway, condition::lender),
    row<stage_signal>("stage_signal", node, gateway, condition::same_datacenter, condition::guest),
    row<front_report>("front_report", front, controller),
    row<serving_leases>("serving_leases", controller, front | gateway),
    row<cluster_update>("cluster_update", controller, gateway | node | front),
};

/// By type: every host asks for a row with every frame.
constexpr auto rows = [] {
  std::array<const permission*, std::ranges::max(table, {}, &permission::type).type + 1> all{};
  for (const auto& p : table) all[p.type] = &p;
  return all;
}();

constexpr const permission* row_of(std::uint16_t type) {
  return type < rows.size() ? rows[type] : nullptr;
}

/// The size is compared too, so that no row is left of a type that is no message any more.
template <class... T>
constexpr bool has_a_row_each(const std::variant<T...>*) {
  return ((row_of(type_id<T>) != nullptr) && ...) && table.size() == sizeof...(T);
}
static_assert(has_a_row_each(static_cast<const message*>(nullptr)),
              "add the new message to the table of permissions");

/// The gateway of a gateway's, node's or front's datacenter; none: it is in no datacenter.
std::optional<address> gateway_at(const cluster& c, address a) {
  if (is_gateway(c, a)) return a;
  if (is_node(c, a) || is_front(c, a)) return gateway_of(c, a);
  return {};
}

}  // namespace

std::span<const permission> permissions() {
  return table;
}

std::optional<role> role_of(const cluster& c, address a) {
  if (a == controller_address) return role::controller;
  if (is_gateway(c, a)) return role::gateway;
  if (is_node(c, a)) return role::node;
  if (is_front(c, a)) return role::front;
  if (is_client(a)) return role::client;
  return {};
}

expected<void> may_arrive(const cluster& c, address self, const envelope& e) {
  const auto* p = row_of(e.type);
  const auto from = role_of(c, e.from), to = role_of(c, e.to);
  const bool allowed = p != nullptr && from && to && p->allows(*from, *to);
  // The controller checks the job's owner before it requests a log from a node: a client's frame
  // sent to a node directly would bypass that.
  const bool way_around = self == controller_address && e.to != self && from == role::client;
  // Prefills and heartbeats are between hosts of one datacenter. A gateway of another one that is
  // taken over must not order work here.
  const bool too_far = allowed && p->also == condition::same_datacenter &&
                       gateway_at(c, e.from) != gateway_at(c, e.to);
  if (too_far)
    return refuse(reason::kind::refused,
                  "{} may not send a {} to {}, which is in another datacenter",
                  host_name(c, e.from), p->name, host_name(c, e.to));
  if (allowed && !way_around) return {};
  return refuse(reason::kind::refused, "{} may not send a {} to {}", host_name(c, e.from),
                p ? p->name : fmt::format("message of type {}", e.type), host_name(c, e.to));
}

bool may_act_on(const runtime::caller& who, const std::string& owner) {
  return who.is_operator || who.name == owner;
}

reason not_theirs(const runtime::caller& who, job_id job, const std::string& owner,
                  const char* what) {
  return {reason::kind::refused,
          fmt::format("job {} belongs to {}: {} may not {}; only its owner or an operator may", job,
                      owner, who.name, what)};
}

reason operators_only(const runtime::caller& who, const char* what) {
  return {reason::kind::refused,
          fmt::format("{} may not {}: only an operator may", who.name, what)};
}

/// Refused silently for the sender: an answer would show an attacker what it may try next, and cost
/// more than the frame.
bool frame_guard::admits(const envelope& e) {
  const auto ok = may_arrive(*cluster_, self_, e);
  if (ok) return true;
  ++refused_;
  const auto lines = limiter_.pass(std::to_string(e.from), clock_->now_s());
  if (lines > 0)
    runtime::log(runtime::log_level::warn, host_name(*cluster_, self_), "rejected a frame",
                 {{"why", ok.error().text}, {"frames", lines}});
  return false;
}

}  // namespace troupe::actors
