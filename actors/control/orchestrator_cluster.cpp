// The orchestrator's cluster: what the cluster file and operators make of it.

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "actors/control/orchestrator.hpp"
#include "actors/protocol/messenger.hpp"
#include "actors/protocol/permissions.hpp"
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
void orchestrator_state::choose_cluster(const cluster& file) {
  const auto print = fingerprint(file);
  const auto* known = ledger_->roster();
  cluster_changed next{file, wall(), file.settings.lease_s, print};
  if (known == nullptr) {
    next.cluster.version = wall_ms();
    // Entries of an earlier version name nodes by their place in this file. A snapshot that begins
    // with the cluster makes them independent of it.
    const bool is_new = host_.journal->size() == 0;
    if (auto ok = ledger_->apply(next); !ok) throw std::runtime_error(ok.error().text);
    if (is_new) {
      batch_.add(next);
    } else {
      auto entries = ledger_->snapshot();
      for (auto& r : training_.snapshot()) entries.emplace_back(training_progress{std::move(r)});
      if (auto ok = host_.journal->compact(entries); !ok) throw std::runtime_error(ok.error().text);
    }
  } else if (known->file != print) {
    auto merged = merge(known->cluster, file, wall_ms(), [this](auto n) { return is_busy(n); });
    if (merged) {
      if (!record_cluster(std::move(*merged), print))
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
  follow_cluster();
}

bool orchestrator_state::is_busy(node_index n) const {
  for (const auto& [id, l] : ledger_->leases())
    for (std::size_t i = 0; i < l.ended.size(); ++i)
      if (!l.ended[i] && l.granted.parts[i].node == n) return true;
  return false;
}

/// False: the journal does not take it.
bool orchestrator_state::record_cluster(merged_cluster next, std::uint64_t file) {
  const auto& known = *ledger_->roster();
  if (next.cluster == known.cluster && file == known.file) return true;
  if (next.cluster != known.cluster) log_difference(next.what);
  const auto longest_s = std::max(known.longest_lease_s, next.cluster.settings.lease_s);
  return record(cluster_changed{std::move(next.cluster), wall(), longest_s, file});
}

/// While the hosts are connected: they get it, and what may not run on it is stopped.
bool orchestrator_state::change_cluster(merged_cluster next, std::uint64_t file) {
  const bool is_new = next.cluster != ledger_->roster()->cluster;
  if (!record_cluster(std::move(next), file)) return false;
  awaited_file_.reset();
  if (!is_new) return true;
  follow_cluster();
  limits_.clear();
  for (const auto& [id, l] : ledger_->leases()) remember_limit(l);
  stop_unwanted();
  for (std::uint32_t d = 0; d < gateways_.size(); ++d)
    if ((*gateways_present_)[d]) reply(gateway_address(d), cluster_update{*cluster_});
  for (node_index n = 0; n < nodes_.size(); ++n)
    if ((*nodes_present_)[n]) reply(node_address(n), cluster_update{*cluster_});
  return true;
}

/// The file of the controller's start, as soon as the nodes that it changes are idle.
void orchestrator_state::follow_awaited_file() {
  if (!awaited_file_) return;
  auto merged = merge(ledger_->roster()->cluster, *awaited_file_, wall_ms(),
                      [this](auto n) { return is_busy(n); });
  if (merged) change_cluster(std::move(*merged), fingerprint(*awaited_file_));
}

/// Everything that has a place for each host gets those of the new ones.
void orchestrator_state::follow_cluster() {
  const auto previous = cluster_;
  cluster_ = std::make_shared<const cluster>(ledger_->roster()->cluster);
  const auto& c = *cluster_;
  const auto grow = [this](auto& hosts, auto& present, std::size_t size) {
    const auto before = hosts.size();
    hosts.resize(size);
    for (auto i = before; i < size; ++i)
      hosts[i].last_report_s = now();  // silence counts from here
    auto flags = *present;
    flags.resize(size, false);
    present = shared_value{std::move(flags)};
  };
  grow(nodes_, nodes_present_, c.nodes.size());
  grow(gateways_, gateways_present_, c.datacenters.size());
  // Heartbeats renew nothing before the node has reported that it follows this cluster: its lease
  // may have another length. The process of a node that had been removed has ended.
  auto present = *nodes_present_;
  for (node_index n = 0; n < nodes_.size(); ++n) {
    nodes_[n].report = 0;
    if (previous && n < previous->nodes.size() && previous->nodes[n].removed && !c.nodes[n].removed)
      present[n] = false;
  }
  nodes_present_ = shared_value{std::move(present)};
  idle_.emplace(c);
  published_idle_ = nullptr;
  for (node_index n = 0; n < nodes_.size(); ++n)
    idle_->set_idle(n, (*nodes_present_)[n] ? ledger_->idle(n) : 0);
  longest_lease_until_s_.reset();
  if (const auto longest = ledger_->roster()->longest_lease_s; longest > c.settings.lease_s) {
    longest_lease_until_s_ = now();
    *longest_lease_until_s_ = now() + silence_limit_s();
  }
  state_has_changed();
  batch_.when_durable([this, now = cluster_] {
    if (options_.cluster->version != now->version || !(*options_.cluster == *now))
      options_.cluster.replace(*now);
  });
}

/// No node has been sent anything that would renew a lease of the earlier length since then
/// (`follow_cluster`).
void orchestrator_state::settle_lease_length() {
  if (!longest_lease_until_s_ || now() <= *longest_lease_until_s_) return;
  auto next = *ledger_->roster();
  next.at_s = wall();
  next.longest_lease_s = next.cluster.settings.lease_s;
  if (record(next)) longest_lease_until_s_.reset();
}

std::vector<job_id> orchestrator_state::jobs_on(node_index n) const {
  std::vector<job_id> jobs;
  for (const auto id : nodes_[n].leases)
    if (const auto* l = ledger_->lease(id)) jobs.push_back(l->granted.job);
  return jobs;
}

/// Follows from the ledger, so that a controller that was killed before it could do this does it at
/// its next start.
void orchestrator_state::stop_unwanted() {
  for (node_index n = 0; n < nodes_.size(); ++n) {
    if (nodes_[n].leases.empty()) continue;
    const auto why = ledger_->must_stop(n);
    if (!why) continue;
    for (const auto id : jobs_on(n)) preempt(id, *why);
  }
}

void orchestrator_state::on_reconfigure(address from, const runtime::caller& who,
                                        const reconfigure& r) {
  reconfigure_reply result{r.request, false, {}, {}, {}};
  const auto& known = *ledger_->roster();
  const auto refuse_it = [&](reason why) {
    result.done = false;
    result.why = std::move(why);
    reply(from, std::move(result));
  };
  if (!who.is_operator) return refuse_it(operators_only(who, "change the cluster"));
  if (auto ok = check_cluster(r.cluster); !ok) return refuse_it(ok.error());
  auto merged = merge(known.cluster, r.cluster, wall_ms(), [this](auto n) { return is_busy(n); });
  if (!merged) return refuse_it(merged.error());
  result.what = merged->what;
  if (merged->cluster != known.cluster)
    for (node_index n = 0; n < nodes_.size(); ++n)
      if (merged->cluster.nodes[n].removed)
        std::ranges::copy(jobs_on(n), std::back_inserter(result.stopping));
  if (!change_cluster(std::move(*merged), known.file))
    return refuse_it({reason::kind::invalid, "the journal does not take this cluster"});
  result.done = true;
  reply(from, std::move(result));
}

void orchestrator_state::on_drain_nodes(address from, const runtime::caller& who,
                                        const drain_nodes& d) {
  drain_reply result{d.request, false, {}, {}};
  if (!who.is_operator) {
    result.why = operators_only(who, d.drained ? "drain nodes" : "undrain nodes");
    return reply(from, std::move(result));
  }
  std::vector<node_index> found;
  for (const auto& name : d.nodes) {
    const auto& all = cluster_->nodes;
    const auto at =
        std::ranges::find_if(all, [&](const node& n) { return n.name == name && !n.removed; });
    if (at == all.end()) {
      result.why = {reason::kind::unknown,
                    fmt::format("no node '{}' in cluster {}", name.substr(0, 64), cluster_->name)};
      return reply(from, std::move(result));
    }
    found.push_back(static_cast<node_index>(at - all.begin()));
  }
  for (const auto n : found) {
    record(node_drained{n, wall(), d.drained, d.drained && d.stop, who.name});
    refresh_idle(n);
    if (d.drained) std::ranges::copy(jobs_on(n), std::back_inserter(result.jobs));
  }
  stop_unwanted();
  result.done = true;
  reply(from, std::move(result));
}

}  // namespace troupe::actors
