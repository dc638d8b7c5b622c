#pragma once

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "actors/control/spoken_world.hpp"

namespace troupe::actors::tests {

inline constexpr address a_client = first_client_address + 1;

/// A controller whose nodes and client are the test.
struct controller_by_hand : spoken_world {
  explicit controller_by_hand(std::string_view policy = "frenzy",
                              const std::function<void(cluster&)>& change = {})
      : controller_by_hand{std::shared_ptr<const planners::policy>{planners::make_policy(policy)},
                           change} {}
  /// `connected`: another transport around the controller's.
  explicit controller_by_hand(
      const std::shared_ptr<const planners::policy>& by,
      const std::function<void(cluster&)>& change = {},
      const std::function<std::shared_ptr<runtime::transport>(std::shared_ptr<runtime::transport>)>&
          connected = {}) {
    cluster_->settings.lease_s = 30;
    if (change) change(*cluster_);
    round_s = by->traits().round_s;
    world.add_host(controller_address, [this, by, connected](runtime::host h) {
      if (connected) h.net = connected(h.net);
      return start_controller(world.system(), h, {cluster_, by, false, true, {}, {}}).all;
    });
    for (address g = 1; g <= 3; ++g) speak_for(g);
    speak_for(a_client);
  }
  void report(node_index n, std::vector<part_report> parts = {}) {
    note_orders();
    node_report r;
    r.incarnation = 7;
    r.sequence = ++sequence;
    if (const auto known = orders.find(n); known != orders.end())
      r.epoch = known->second.epoch, r.orders = known->second.sequence,
      r.journal = known->second.journal;
    r.parts = std::move(parts);
    if (const auto known = pythons.find(n); known != pythons.end()) r.python = known->second;
    say(gateway_address(cluster_->nodes[n].datacenter), node_address(n), controller_address, r);
  }
  void all_report() {
    for (node_index n = 0; n < cluster_->nodes.size(); ++n) report(n);
  }
  /// Nodes confirm their orders, in time, until a round of the policy has passed.
  void pass_round() {
    for (double left = round_s + 2; left > 0; left -= 10) {
      all_report_running();
      world.run_until(world.now_s() + std::min(left, 10.0));
    }
    note_orders();
  }
  void all_report_running() {
    for (node_index n = 0; n < cluster_->nodes.size(); ++n) {
      note_orders();
      std::vector<part_report> parts;
      for (const auto& w : orders[n].work) {
        part_report p;
        p.lease = w.lease;
        parts.push_back(p);
      }
      report(n, parts);
    }
  }
  void note_orders() {
    for (address g = 1; g <= 3; ++g)
      for (auto& [to, o] : take_all(g)) orders[node_of(to)] = o;
  }
  /// Orders by their receiver, which a gateway would forward.
  std::vector<std::pair<address, node_orders>> take_all(address gateway) {
    std::vector<std::pair<address, node_orders>> all;
    for (auto& [e, o] : take_with_envelopes<node_orders>(gateway)) all.emplace_back(e.to, o);
    return all;
  }
  /// The nodes that are to run a decoder.
  std::vector<node_index> decoders() {
    note_orders();
    std::vector<node_index> all;
    for (const auto& [n, o] : orders)
      for (const auto& w : o.work)
        if (w.serve) all.push_back(n);
    return all;
  }
  template <class Reply>
  Reply ask(message m, address who = a_client) {
    take<Reply>(who);
    say(who, who, controller_address, m);
    const auto all = take<Reply>(who);
    REQUIRE(all.size() == 1);
    return all[0];
  }
  job_id submit(const job_spec& job) { return ask<submit_reply>(submit_job{++asked, job}).job; }
  job_status job(job_id id) { return ask<query_reply>(query_jobs{++asked, id}).jobs.at(0); }

  std::map<node_index, node_orders> orders;
  std::map<node_index, python_environment> pythons;  // as nodes report them
  std::uint64_t sequence = 0, asked = 100;
  double round_s = 0;
};

}  // namespace troupe::actors::tests
