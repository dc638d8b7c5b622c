#include "web/dashboard/dashboard_facts.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace troupe::web {

// Not every reply has a view. The index past the last gateway stands for "unknown", for which the
// names below give "?".
std::uint32_t datacenter_of(const query_reply& r, node_index n) {
  if (r.view && n < r.view->datacenters.size()) return r.view->datacenters[n];
  return static_cast<std::uint32_t>(r.gateways.size());
}

std::string name_of_node(const query_reply& r, node_index n) {
  return n < r.nodes.size() ? r.nodes[n].name : "?";
}

std::string name_of_datacenter(const query_reply& r, std::uint32_t datacenter) {
  return datacenter < r.gateways.size() ? r.gateways[datacenter].datacenter : "?";
}

bool holds_gpus(const job_status& j) {
  return j.state == job_state::running || j.state == job_state::stopping;
}

bool stands_for_others(const job_status& j) {
  return !j.merged_with ||
         std::ranges::none_of(*j.merged_with, [&](job_id id) { return id < j.job; });
}

void ended_jobs::look_at(const query_reply& r) {
  std::set<job_id> ended;
  for (const auto& j : r.jobs) {
    if (!is_final(j.state)) continue;
    ended.insert(j.job);
    if (known_ && !known_->contains(j.job) && j.why) ++by_why_[*j.why];
  }
  known_ = std::move(ended);
}

std::vector<reported_decoder> decoders_of(const query_reply& r) {
  std::map<std::pair<node_index, lease_id>, reported_decoder> all;
  if (r.view && r.view->fronts)
    for (const auto& f : *r.view->fronts)
      for (const auto& d : f.report.decoders) {
        // The last report of an absent front may be of any age.
        if (!f.present) continue;
        const auto [at, fresh] = all.try_emplace({d.node, d.state.lease}, d);
        // Several fronts report a decoder; the decoder's own sequence numbers order what they know
        // of it.
        if (!fresh && d.state.sequence > at->second.state.sequence) at->second = d;
      }
  std::vector<reported_decoder> result;
  for (auto& [name, d] : all) result.push_back(std::move(d));
  return result;
}

std::optional<std::uint64_t> bytes_between(const query_reply& r, std::uint32_t from,
                                           std::uint32_t to) {
  if (from >= r.gateways.size()) return {};
  const auto& g = r.gateways[from];
  if (std::ranges::find(r.gateways_absent, g.datacenter) != r.gateways_absent.end()) return {};
  // None has been sent, or simulated gateways do not count, as traffic has no price.
  if (!g.traffic.sent_to || to >= g.traffic.sent_to->size()) return 0;
  return (*g.traffic.sent_to)[to];
}

std::vector<wan_direction> wan_directions(const query_reply& r) {
  std::vector<wan_direction> all;
  const auto count = static_cast<std::uint32_t>(r.gateways.size());
  if (r.view)
    for (const auto& l : r.view->wan)
      if (l.a < count && l.b < count)
        for (const auto& [from, to] : {std::pair{l.a, l.b}, std::pair{l.b, l.a}})
          all.push_back({from, to, l, bytes_between(r, from, to)});
  // Tensors can cross between datacenters for which the file lists no link.
  const auto listed = [&](std::uint32_t from, std::uint32_t to) {
    return std::ranges::any_of(
        all, [&](const wan_direction& d) { return d.from == from && d.to == to; });
  };
  for (std::uint32_t from = 0; from < count; ++from)
    for (std::uint32_t to = 0; to < count; ++to)
      if (const auto bytes = bytes_between(r, from, to);
          bytes.value_or(0) > 0 && from != to && !listed(from, to))
        all.push_back({from, to, {}, bytes});
  return all;
}

}  // namespace troupe::web
