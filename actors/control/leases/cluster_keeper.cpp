#include "actors/control/leases/cluster_keeper.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "actors/protocol/messenger.hpp"
#include "actors/protocol/permissions.hpp"
#include "messages/base/invariant.hpp"
#include "messages/codec/codec.hpp"
#include "runtime/host/log.hpp"

namespace troupe::actors {

namespace {

std::string names(const std::vector<std::string>& all) {
  return all.empty() ? "nothing" : fmt::format("{}", fmt::join(all, ", "));
}

void log_difference(const cluster_difference& what) {
  runtime::log(runtime::log_level::info, "orchestrator", "the cluster has changed",
               {{"added", names(what.added)},
                {"removed", names(what.removed)},
                {"changed", names(what.changed)}});
}

}  // namespace

/// The journal's cluster holds until the controller is started with a file that differs from the
/// one of its last start. The first is the file's.
void cluster_keeper::choose(const cluster& file) {
  const auto print = fingerprint(file);
  const auto* known = records_.book().roster();
  if (known == nullptr) {
    cluster_changed first{file, records_.wall(), file.settings.lease_s, print};
    first.cluster.version = records_.wall_ms();
    records_.record_first_cluster(first);
  } else if (known->file != print) {
    auto merged = merged_with(file);
    if (merged) {
      if (!record(std::move(*merged), print))
        throw std::runtime_error("the cluster file does not fit the journal");
    } else if (merged.error().code == reason::kind::unavailable) {
      // That lease cannot end without a controller, so this one starts.
      runtime::log(runtime::log_level::warn, "orchestrator",
                   "the cluster file is followed once its nodes are idle, or by a reconfigure",
                   {{"why", merged.error().text}});
      awaited_file_ = file;
    } else {
      throw std::runtime_error("the cluster file does not fit the journal: " + merged.error().text);
    }
  }
  follow();
}

expected<merged_cluster> cluster_keeper::merged_with(const cluster& file) const {
  TROUPE_INVARIANT(records_.book().roster(), "a cluster file is merged into the journal's cluster");
  return merge(records_.book().roster()->cluster, file, records_.wall_ms(),
               [this](auto n) { return is_busy(n); });
}

/// By the ledger, and not by the host table, which knows no leases while the controller starts.
bool cluster_keeper::is_busy(node_index n) const {
  for (const auto& [id, l] : records_.book().leases())
    for (std::size_t i = 0; i < l.ended.size(); ++i)
      if (!l.ended[i] && l.granted.parts[i].node == n) return true;
  return false;
}

/// False: the journal does not take it.
bool cluster_keeper::record(merged_cluster next, std::uint64_t file) {
  const auto& known = *records_.book().roster();
  if (next.cluster == known.cluster && file == known.file) return true;
  if (next.cluster != known.cluster) log_difference(next.what);
  // Nodes that do not know of a shorter lease yet hold their work for the longer one.
  const auto longest_s = std::max(known.longest_lease_s, next.cluster.settings.lease_s);
  TROUPE_INVARIANT(next.cluster.nodes.size() >= known.cluster.nodes.size(),
                   "nodes that left a cluster file keep their places");
  TROUPE_INVARIANT(next.cluster.datacenters.size() >= known.cluster.datacenters.size(),
                   "datacenters that left a cluster file keep their places");
  TROUPE_INVARIANT(next.cluster.gpus.size() >= known.cluster.gpus.size(),
                   "types of GPUs that left a cluster file keep their places");
  return records_.record(
      cluster_changed{std::move(next.cluster), records_.wall(), longest_s, file});
}

/// While the hosts are connected: they get it, and what may not run on it is stopped.
bool cluster_keeper::change(merged_cluster next, std::uint64_t file) {
  const bool is_new = next.cluster != records_.book().roster()->cluster;
  if (!record(std::move(next), file)) return false;
  awaited_file_.reset();
  if (!is_new) return true;
  follow();
  limits_.follow_cluster();
  stop_unwanted();
  const auto& c = records_.present_cluster();
  for (std::uint32_t d = 0; d < hosts_.gateways(); ++d)
    if (hosts_.is_gateway_present(d)) records_.reply(gateway_address(d), cluster_update{c});
  for (node_index n = 0; n < hosts_.nodes(); ++n)
    if (hosts_.is_present(n)) records_.reply(node_address(n), cluster_update{c});
  return true;
}

/// The transport admits hosts by the published cluster: one that a crash could undo would admit a
/// host under a number that the journal gives to another.
void cluster_keeper::follow() {
  const auto previous = records_.shared_cluster();
  records_.follow_cluster();
  TROUPE_INVARIANT(!previous || previous->version <= records_.present_cluster().version,
                   "the version of the cluster does not fall");
  hosts_.follow_cluster(previous.get());
  TROUPE_INVARIANT(hosts_.nodes() == records_.present_cluster().nodes.size(),
                   "the table of hosts follows the cluster");
  records_.when_durable([this, now = records_.shared_cluster()] {
    if (published_->version != now->version || !(*published_ == *now)) published_.replace(*now);
  });
}

/// The file of the controller's start, as soon as the nodes that it changes are idle.
void cluster_keeper::on_tick() {
  if (!awaited_file_) return;
  if (auto merged = merged_with(*awaited_file_))
    change(std::move(*merged), fingerprint(*awaited_file_));
}

void cluster_keeper::stop_unwanted() {
  for (node_index n = 0; n < hosts_.nodes(); ++n) {
    if (hosts_.node(n).leases.empty()) continue;
    const auto why = records_.book().must_stop(n);
    if (!why) continue;
    TROUPE_INVARIANT(n < records_.present_cluster().nodes.size(),
                     "a node whose work must stop is one of the cluster");
    const bool removed = records_.present_cluster().nodes[n].removed;
    for (const auto id : hosts_.jobs_on(n))
      leases_.preempt(id, removed ? end_word::removed : end_word::drained, *why);
  }
}

void cluster_keeper::on(const inbound<reconfigure>& m) {
  reconfigure_reply result{m.body.request, false, {}, {}, {}};
  const auto& known = *records_.book().roster();
  const auto refuse_it = [&](reason why) {
    result.done = false;
    result.why = std::move(why);
    records_.reply(m.from, std::move(result));
  };
  if (!m.sender.is_operator) return refuse_it(operators_only(m.sender, "change the cluster"));
  if (auto ok = check_cluster(m.body.cluster); !ok) return refuse_it(ok.error());
  auto merged = merged_with(m.body.cluster);
  if (!merged) return refuse_it(merged.error());
  result.what = merged->what;
  if (merged->cluster != known.cluster)
    for (node_index n = 0; n < hosts_.nodes(); ++n)
      if (merged->cluster.nodes[n].removed)
        std::ranges::copy(hosts_.jobs_on(n), std::back_inserter(result.stopping));
  if (!change(std::move(*merged), known.file))
    return refuse_it({reason::kind::invalid, "the journal does not take this cluster"});
  result.done = true;
  records_.reply(m.from, std::move(result));
}

void cluster_keeper::on(const inbound<drain_nodes>& m) {
  const auto& d = m.body;
  const auto& c = records_.present_cluster();
  drain_reply result{d.request, false, {}, {}};
  if (!m.sender.is_operator) {
    result.why = operators_only(m.sender, d.drained ? "drain nodes" : "undrain nodes");
    return records_.reply(m.from, std::move(result));
  }
  // All names are looked up first: a request with a wrong one changes nothing.
  std::vector<node_index> found;
  for (const auto& name : d.nodes) {
    const auto at =
        std::ranges::find_if(c.nodes, [&](const node& n) { return n.name == name && !n.removed; });
    if (at == c.nodes.end()) {
      result.why = {reason::kind::unknown,
                    fmt::format("no node '{}' in cluster {}", name.substr(0, 64), c.name)};
      return records_.reply(m.from, std::move(result));
    }
    found.push_back(static_cast<node_index>(at - c.nodes.begin()));
  }
  for (const auto n : found) {
    records_.record(
        node_drained{n, records_.wall(), d.drained, d.drained && d.stop, m.sender.name});
    hosts_.refresh_idle(n);
    if (d.drained) std::ranges::copy(hosts_.jobs_on(n), std::back_inserter(result.jobs));
  }
  stop_unwanted();
  result.done = true;
  records_.reply(m.from, std::move(result));
}

}  // namespace troupe::actors
