#pragma once

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <caf/all.hpp>

#include "actors/protocol/permissions.hpp"
#include "runtime/zeromq/keys.hpp"
#include "runtime_real/world.hpp"

// A cluster whose connections are encrypted: every host and person has a key of its own, and
// whoever holds one says what it likes over it.

namespace troupe::test {

using runtime::zeromq_options;
using runtime::zeromq_transport;
using runtime::test::eventually;
using runtime::test::long_s;
using runtime::test::mailbox;
using runtime::test::must_open;
using runtime::test::two_datacenters;

inline constexpr address dc1 = 1, dc2 = 2, a0 = 3, a1 = 4, b0 = 5;
inline constexpr address client_1 = first_client_address + 1;

/// Keys of the hosts, of "client" and "operator", and of two more people.
class key_directory {
 public:
  key_directory() {
    using runtime::key_role;
    REQUIRE(runtime::make_keys(
        directory_.path(), runtime::key_names(two_datacenters()),
        {{"alice", key_role::client}, {"bob", key_role::client}, {"root", key_role::operator_}}));
  }
  std::string path() const { return directory_.path(); }

  /// A host's options; it listens on a port of its own if it ever does.
  zeromq_options host(const std::string& name, const std::string& upstream = {}) const {
    zeromq_options o;
    o.name = name;
    o.cluster = two_datacenters();
    o.incarnation = 1;
    o.keys = path();
    o.upstream = upstream;
    if (name == "controller" || name.ends_with("/gateway")) o.listen = "tcp://127.0.0.1:*";
    return o;
  }
  /// A client that comes with somebody's key.
  zeromq_options client(const std::string& key, const std::string& controller) const {
    zeromq_options o;
    o.name = "client";
    o.client = true;
    o.incarnation = std::hash<std::string>{}(key);
    o.keys = path();
    o.client_key = key;
    o.upstream = controller;
    return o;
  }

 private:
  scratch directory_;
};

/// Calls `f` with a value of every type of message.
template <class F, class... T>
void for_each_message(F&& f, const std::variant<T...>*) {
  (f(message{T{}}), ...);
}
template <class F>
void for_each_message(F&& f) {
  for_each_message(std::forward<F>(f), static_cast<const message*>(nullptr));
}

inline std::string name_of(std::uint16_t type) {
  for (const auto& p : actors::permissions())
    if (p.type == type) return p.name;
  return "?";
}
inline std::uint16_t type_of(const message& m) {
  return std::visit([]<class T>(const T&) { return type_id<T>; }, m);
}

/// Who may send what to whom, as a reader of docs/security.md has it, written down once more.
inline bool expected_in_table(const std::string& type, actors::role from, actors::role to) {
  using enum actors::role;
  static const std::set<std::tuple<std::string, actors::role, actors::role>> all{
      {"submit_job", client, controller},
      {"submit_reply", controller, client},
      {"cancel_job", client, controller},
      {"cancel_reply", controller, client},
      {"suspend_job", client, controller},
      {"suspend_reply", controller, client},
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
      {"stage_setup", node, node},
      {"stage_run", node, node},
      {"stage_report", node, node},
      {"tensor", node, node},
      {"tensor_request", node, node},
      {"stripe", gateway, gateway}};
  return all.contains({type, from, to});
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
  s.spec.command = {"true"};
  return s;
}

}  // namespace troupe::test
