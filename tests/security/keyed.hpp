#pragma once

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <caf/all.hpp>

#include "actors/protocol/permissions.hpp"
#include "harness/all_messages.hpp"
#include "runtime/keys.hpp"

// A cluster with encrypted connections: every host and user has its own key, and a holder of a key
// may send arbitrary frames over its connection.

namespace troupe::test {

inline std::string name_of(std::uint16_t type) {
  for (const auto& p : actors::permissions())
    if (p.type == type) return p.name;
  return "?";
}
/// Which role may send which message to which, from docs/security.md, written a second time.
inline bool expected_in_table(const std::string& type, actors::role from, actors::role to) {
  using enum actors::role;
  static const std::set<std::tuple<std::string, actors::role, actors::role>> all{
      {"submit_job", client, controller},
      {"submit_reply", controller, client},
      {"cancel_job", client, controller},
      {"cancel_reply", controller, client},
      {"suspend_job", client, controller},
      {"suspend_reply", controller, client},
      {"requeue_job", client, controller},
      {"requeue_reply", controller, client},
      {"reconfigure", client, controller},
      {"reconfigure_reply", controller, client},
      {"drain_nodes", client, controller},
      {"drain_reply", controller, client},
      {"move_job", client, controller},
      {"move_reply", controller, client},
      {"query_jobs", client, controller},
      {"query_reply", controller, client},
      {"explain_job", client, controller},
      {"explanation", controller, client},
      {"query_training", client, controller},
      {"training_reply", controller, client},
      {"read_log", client, controller},
      {"read_log", client, node},
      {"log_chunk", controller, client},
      {"log_chunk", node, client},
      {"node_report", node, controller},
      {"node_orders", controller, node},
      {"training_report", node, controller},
      {"training_report_ack", controller, node},
      {"gateway_report", gateway, controller},
      {"node_heartbeat", node, gateway},
      {"lease_renewals", controller, gateway},
      {"lease_renewal", gateway, node},
      {"cluster_update", controller, gateway},
      {"cluster_update", controller, node},
      {"cluster_update", controller, front},
      {"stage_setup", node, node},
      {"stage_run", node, node},
      {"stage_report", node, node},
      {"tensor", node, node},
      {"tensor_request", node, node},
      {"stripe", gateway, gateway},
      {"generate", front, node},
      {"generated", node, front},
      {"generated_ack", front, node},
      {"cancel_generate", front, node},
      {"decoder_state", node, front},
      {"prefill_request", node, gateway},
      {"prefill_reply", gateway, node},
      {"prefill_order", gateway, node},
      {"prefill_progress", node, gateway},
      {"prefill_progress", gateway, node},
      {"cancel_prefill", node, gateway},
      {"cancel_prefill", gateway, node},
      {"prefill_block", node, node},
      {"blocks_received", node, node},
      {"bubble_offer", node, gateway},
      {"stage_signal", node, gateway},
      {"front_report", front, controller},
      {"serving_leases", controller, front},
      {"serving_leases", controller, gateway}};
  return all.contains({type, from, to});
}
/// Which messages stay in their sender's datacenter.
inline bool stays_in_datacenter(const std::string& type) {
  static const std::set<std::string> all{
      "prefill_request", "prefill_reply",   "prefill_order", "prefill_progress", "cancel_prefill",
      "prefill_block",   "blocks_received", "stage_signal",  "node_heartbeat",   "lease_renewal"};
  return all.contains(type);
}

/// A program, for a model that every GPU here can hold.
inline submit_job a_job() {
  submit_job s;
  s.spec.name = "one";
  s.spec.model.name = "bert-large";
  s.spec.model.family = "bert";
  s.spec.model.hidden = 1024;
  s.spec.model.layers = 24;
  s.spec.model.heads = 16;
  s.spec.model.sequence = 512;
  s.spec.model.vocabulary = 30522;
  s.spec.global_batch = 4;
  s.spec.program.command = {"true"};
  return s;
}

}  // namespace troupe::test
