#include "planners/cost/tensor_routes.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "messages/base/folds.hpp"
#include "messages/domain/link_cost.hpp"
#include "planners/devices/profile.hpp"
#include "planners/model/job_device.hpp"
#include "planners/model/job_memory.hpp"

namespace troupe::planners {

// The rule of docs/planners/cost_model.md, "Links": inside a node each stage's GPUs have a link of
// their own, and all that leaves a node shares its card. Links 0, 1, ... are the stages', in the
// order of places; then one per node; then one for each tied embedding that crosses the WAN. Only
// senders' links are modelled: each receives no more than it sends.
tensor_routes::tensor_routes(const cluster& c, const job_spec& job, const pipeline_layout& layout,
                             std::uint32_t pipelines, const std::vector<stage_costs>& costs)
    : c_{c}, job_{job}, layout_{layout}, pipelines_{pipelines}, costs_{costs} {
  links_ = static_cast<std::uint32_t>(layout.places.size());
  std::map<node_index, std::uint32_t> cards;
  std::vector<node_index> unlike;  // one node of each kind of card
  std::map<node_index, std::uint32_t> kinds;
  for (const auto& p : layout.places) {
    const auto [at, fresh] = cards.try_emplace(p.node, links_);
    if (fresh) {
      ++links_;
      const auto same = std::ranges::find_if(
          unlike, [&](node_index n) { return c.nodes[n].inter == c.nodes[p.node].inter; });
      kinds[p.node] = static_cast<std::uint32_t>(same - unlike.begin());
      if (same == unlike.end()) unlike.push_back(p.node);
    }
    cards_.push_back(at->second);
    card_kinds_.push_back(kinds[p.node]);
  }
  for (std::uint32_t s = 0; s < layout.stages; ++s) {
    auto& runs = runs_.emplace_back(stage_runs{layout.runs_of(s)});
    if (runs.first.size() > 1) runs.between_s = between_s(s, runs.first);
    for (std::uint32_t p = 0; p < layout.pipelines; ++p) {
      runs.nodes.push_back(place(p, s).node);
      runs.card_kinds.push_back(card_kinds_[std::size_t{p} * layout.stages + s]);
    }
  }
}

stage_routes tensor_routes::of(std::uint32_t p, std::uint32_t s) {
  const auto last = layout_.stages - 1;
  stage_routes w;
  if (s < last && !layout_.crosses(p, s, s + 1))
    w.forward = route(p, s, p, s + 1, static_cast<double>(costs(p, s).activation_bytes));
  if (s > 0 && !layout_.crosses(p, s, s - 1))
    w.backward = route(p, s, p, s - 1, static_cast<double>(costs(p, s - 1).activation_bytes));
  w.tied = job_.model.tied_head && last > 0 && (s == 0 || s == last);
  w.sums = (layout_.pipelines > 1 || w.tied) && costs(p, s).gradient_bytes > 0;
  if (w.tied) w.tied_route = tied_route(p, s, s == 0 ? last : 0);
  if (const auto* sums = sums_of_devices(s)) {
    w.sum_s = sum_s(*sums, {}, layout_.pipelines, static_cast<double>(summed_bytes(p, s)));
    return w;
  }
  w.peers = peers(p, s, runs_[s].first);
  w.between_s = runs_[s].between_s;
  return w;
}

double tensor_routes::hop_s(std::uint32_t first, std::uint32_t end, std::uint32_t s) const {
  double longest = 0;
  if (s + 1 >= layout_.stages) return longest;
  for (auto p = first; p < end; ++p) {
    if (layout_.crosses(p, s, s + 1)) continue;
    const auto bytes = static_cast<double>(costs(p, s).activation_bytes);
    longest = std::max(
        {longest, route(p, s, p, s + 1, bytes).total_s(), route(p, s + 1, p, s, bytes).total_s()});
  }
  return longest;
}

std::uint32_t tensor_routes::link_of(std::uint32_t p, std::uint32_t s, node_index to) const {
  const auto i = p * layout_.stages + s;
  return shares_intra(c_, place(p, s).node, to) ? i : cards_[i];
}

lan_route tensor_routes::route(std::uint32_t p, std::uint32_t from, std::uint32_t to_pipeline,
                               std::uint32_t to, double bytes) const {
  const auto here = place(p, from).node, there = place(to_pipeline, to).node;
  const auto w = link_cost_between(c_, here, there, layout_.flows(p, from));
  const auto link = link_of(p, from, there);
  if (!w.has_rates() || shares_intra(c_, here, there))
    return {link, w.alone_s(bytes), w.latency_s, w.share(bytes)};
  const auto a = card_kinds_[std::size_t{p} * layout_.stages + from],
             b = card_kinds_[std::size_t{to_pipeline} * layout_.stages + to];
  const auto at = std::ranges::find_if(known_, [&](const known_route& k) {
    return k.bytes == bytes && k.from == a && k.to == b && k.flows == w.flows;
  });
  if (at != known_.end()) return {link, at->alone_s, w.latency_s, at->share};
  known_.push_back({a, b, w.flows, bytes, w.alone_s(bytes), w.share(bytes)});
  return {link, known_.back().alone_s, w.latency_s, known_.back().share};
}

/// Over the WAN each pipeline has its own pair of nodes, so the link is a new one.
lan_route tensor_routes::tied_route(std::uint32_t p, std::uint32_t from, std::uint32_t to) {
  const auto bytes = static_cast<double>(costs(p, from).tied_bytes);
  if (!layout_.crosses(p, from, to)) return route(p, from, p, to, bytes);
  const auto wan = link_between(c_, layout_.datacenter_of(p, from), layout_.datacenter_of(p, to),
                                job_.pipeline.connections);
  return {links_++, bytes / wan.bytes_s(bytes, layout_.flows(p, from, to)), wan.latency_us * 1e-6};
}

/// Gradient bytes that a stage sums with its peers; a tied embedding's are summed by the first
/// stage, for both ends.
std::uint64_t tensor_routes::summed_bytes(std::uint32_t p, std::uint32_t s) const {
  const auto& k = costs(p, s);
  const bool copy = s + 1 == layout_.stages;
  return k.gradient_bytes - (copy ? std::min(k.gradient_bytes, k.tied_bytes) : 0);
}

/// The peers of its run by route. Every member sums one chunk: it receives the others' parts of it
/// and sends them the sum. The GPUs that share a stage have a part of the gradients each, and send
/// them over links of their own inside the node, but over one card to others. Pipelines that are
/// not laid out are on other nodes, so they count on a route that leaves the node.
std::vector<peer_route> tensor_routes::peers(std::uint32_t p, std::uint32_t s,
                                             const std::vector<std::uint32_t>& runs) const {
  const auto after = std::ranges::upper_bound(runs, p);
  const auto first = *(after - 1), end = after == runs.end() ? layout_.pipelines : *after;
  const double chunk =
      static_cast<double>(summed_bytes(p, s)) / (runs.size() > 1 ? end - first : pipelines_);
  // Each of a program's GPUs that share the stage sums its own part, over the node's one card.
  const double rings = divides_words(job_) ? layout_.parts_of(p)[s].tensor_parallel : 1;
  std::vector<peer_route> all;
  // A route to a node with an equal card is the same, and there are peers x peers of them: by kind
  // of card, its index in `all`.
  std::vector<std::pair<std::uint32_t, std::size_t>> known;
  const bool in_domain = c_.nodes[place(p, s).node].nvlink_domain.has_value();
  const auto index_of = [&](const lan_route& w) {
    const auto at = std::ranges::find(all, w, &peer_route::route);
    const auto index = static_cast<std::size_t>(at - all.begin());
    if (at == all.end()) all.push_back({w, {}, 0});
    return index;
  };
  const auto& of_stage = runs_[s];
  const auto own_node = of_stage.nodes[p];
  const auto route_to = [&](std::uint32_t peer) -> peer_route& {
    const bool leaves = of_stage.nodes[peer] != own_node;
    const auto new_index = [&] {
      return index_of(route(p, s, peer, s, leaves ? rings * chunk : chunk));
    };
    if (!leaves || in_domain) return all[new_index()];
    const auto kind = of_stage.card_kinds[peer];
    const auto same = std::ranges::find(known, kind, &std::pair<std::uint32_t, std::size_t>::first);
    if (same != known.end()) return all[same->second];
    known.emplace_back(kind, new_index());
    auto& to = all[known.back().second];
    to.pipelines.reserve(end - first);
    return to;
  };
  for (auto peer = first; peer < end; ++peer) {
    if (peer == p) continue;
    auto& to = route_to(peer);
    to.pipelines.push_back(peer);
    ++to.count;
  }
  if (pipelines_ > layout_.pipelines) {
    const auto last = layout_.pipelines - 1;
    const bool with_last = place(p, s).node == place(last, s).node;
    route_to(with_last ? 0 : last).count += pipelines_ - layout_.pipelines;
  }
  return all;
}

/// The running sum of chunks from each run to the next, and the whole sum's way back
/// (actors/training/collectives/sum_chain.hpp has the chunks). Chunks follow each other, so the
/// boundary that takes longest counts in full, and each other one with one chunk.
double tensor_routes::between_s(std::uint32_t s, const std::vector<std::uint32_t>& runs) const {
  const auto size_of = [&](std::size_t run) {
    return (run + 1 < runs.size() ? runs[run + 1] : layout_.pipelines) - runs[run];
  };
  std::uint32_t chunks = 1;
  for (std::size_t i = 0; i < runs.size(); ++i) chunks = std::max(chunks, size_of(i));
  const double bytes = static_cast<double>(summed_bytes(runs[0], s)) / chunks;
  double all_s = 0, longest_s = 0;  // the latter beyond one chunk's time
  for (const bool back : {false, true}) {
    for (std::size_t i = 0; i + 1 < runs.size(); ++i) {
      const auto a = runs[i], b = runs[i + 1];
      const auto wan = link_between(c_, layout_.datacenter_of(a, s), layout_.datacenter_of(b, s),
                                    job_.pipeline.connections);
      const double chunk_s =
          bytes / wan.bytes_s(bytes, std::min(layout_.flows(a, s), layout_.flows(b, s)));
      // The sender with the largest number of chunks counts.
      const auto senders = size_of(back ? i + 1 : i);
      const auto each = (chunks + senders - 1) / senders;
      all_s += wan.latency_us * 1e-6 + costs(a, s).handling_s + chunk_s;
      longest_s = std::max(longest_s, (each - 1) * chunk_s);
    }
  }
  return all_s + longest_s;
}

/// The measured rates, if all peers of a stage are GPUs of one node that all-reduce directly. Null:
/// hosts all-reduce, nothing was measured, or there are no peers.
const std::vector<all_reduce_rate>* tensor_routes::sums_of_devices(std::uint32_t s) const {
  if (!job_.train || !sums_on_devices(*job_.train, job_.train->device) || layout_.pipelines == 1)
    return nullptr;
  const auto node = place(0, s).node;
  for (std::uint32_t p = 1; p < layout_.pipelines; ++p)
    if (place(p, s).node != node) return nullptr;
  const auto& sums = measured_sums(job_, c_.gpu_of(node));
  return sums.empty() ? nullptr : &sums;
}

double peers_s(const stage_routes& w) {
  return w.sum_s + w.between_s + 2 * max_of(w.peers, 0, [](const peer_route& to) {
                                   return std::max(to.route.alone_s, to.count * to.route.link_s()) +
                                          to.route.latency_s;
                                 });
}

}  // namespace troupe::planners
