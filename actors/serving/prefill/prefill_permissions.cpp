#include "actors/serving/prefill/prefill_permissions.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "messages/base/refuse.hpp"
#include "planners/bubbletea/prefill_work.hpp"

namespace troupe::actors {

namespace {

constexpr double max_time_s = 1e9;

bool is_time_span(double s) {
  return s >= 0 && s < max_time_s;
}

/// One step after the other; begins may be before the barrier, which is 0.
bool is_timetable(const std::vector<busy_time>& busy, std::uint32_t shown) {
  constexpr std::size_t max_steps = 100'000;
  return !busy.empty() && busy.size() <= max_steps && busy.size() % shown == 0 &&
         std::ranges::all_of(busy,
                             [](const busy_time& b) {
                               return std::abs(b.begin_s) < max_time_s && b.end_s >= b.begin_s &&
                                      b.end_s < max_time_s;
                             }) &&
         std::ranges::is_sorted(busy, {}, &busy_time::begin_s);
}

}  // namespace

bool prefill_permissions::state(const serving_leases& s) {
  if (!s.is_newer_than(leases_)) return false;
  leases_ = s;
  return true;
}

bool prefill_permissions::is_local(address a) const {
  return is_node(*cluster_, a) && cluster_->nodes[node_of(a)].datacenter == datacenter_;
}

const lending_lease* prefill_permissions::lease_of(const bubble_offer& o) const {
  const auto at = std::ranges::find(leases_.lendings, o.lease, &lending_lease::lease);
  return at == leases_.lendings.end() || at->nodes.empty() ? nullptr : &*at;
}

bool prefill_permissions::is_lent(const bubble_offer& o) const {
  const auto* lends = lease_of(o);
  return lends && may_offer(node_address(lends->nodes.front()), o).has_value();
}

// The trainer of a lease runs on the lease's first node.
expected<void> prefill_permissions::may_offer(address from, const bubble_offer& o) const {
  const auto failure = [&](const std::string& why) {
    return refuse(reason::kind::refused, "{} offers bubbles of lease {}, {}",
                  host_name(*cluster_, from), o.lease, why);
  };
  const auto* lends = lease_of(o);
  if (!lends) return failure("which lends none by the controller");
  const auto is = [&](node_index n, address a) { return node_address(n) == a; };
  if (!is(lends->nodes.front(), from)) return failure("whose trainer is on another node");
  if (!o.groups.empty() && o.how.model.name != lends->model)
    return failure(
        fmt::format("which lends to '{}', not to '{:.64}'", lends->model, o.how.model.name));
  for (const auto& group : o.groups)
    for (const auto& g : group.guests)
      if (std::ranges::none_of(lends->nodes, [&](node_index n) { return is(n, g.node); }))
        return failure(
            fmt::format("with a guest on {}, where it has no part", host_name(*cluster_, g.node)));
  return {};
}

expected<void> prefill_permissions::may_request(address from, const prefill_request& r) const {
  for (const auto& d : leases_.decoders)
    if (d.lease == r.name.lease && node_address(d.node) == from &&
        d.model < leases_.models.size() && leases_.models[d.model].name == r.model)
      return {};
  return refuse(reason::kind::refused,
                "{} asks for a prefill for lease {}, which is no decoder's of '{:.64}' "
                "there by the controller",
                host_name(*cluster_, from), r.name.lease, r.model);
}

bool prefill_permissions::is_valid(address from, const prefill_request& r,
                                   std::size_t body_bytes) const {
  constexpr std::uint32_t max_tokens = 1 << 20;
  return from == r.name.decoder && is_local(from) && r.tokens > 0 && r.tokens <= max_tokens &&
         std::isfinite(r.within_s) &&
         (body_bytes == 0 || body_bytes == sizeof(std::uint32_t) * r.tokens);
}

bool prefill_permissions::is_valid(const bubble_offer& o) const {
  constexpr std::size_t max_guests = 100'000;
  if (!(o.iteration_s > 0) || !is_time_span(o.iteration_s) || !planners::packing_of(o.how))
    return false;
  if (!is_time_span(o.how.guard_ms) || !is_time_span(o.how.op_ms)) return false;
  if (o.shown == 0 || (o.window > 0 && (o.window < o.shown || !(o.window_s > 0))) ||
      !is_time_span(o.window_s))
    return false;
  std::set<stage_name> timed, lent;
  for (const auto& s : o.stages) {
    if (!is_timetable(s.busy, o.shown)) return false;
    timed.insert(s.stage);
  }
  for (const auto& group : o.groups) {
    if (group.guests.empty() || !is_time_span(group.hop_token_s) ||
        !is_time_span(group.hop_latency_s))
      return false;
    for (const auto& g : group.guests)
      if (g.stage.lease != o.lease || !is_local(g.node) || g.layers == 0 ||
          !is_time_span(g.token_s) || !is_time_span(g.pair_s) || !is_time_span(g.half_tokens) ||
          !timed.contains(g.stage) || !lent.insert(g.stage).second || lent.size() > max_guests)
        return false;
  }
  return true;
}

}  // namespace troupe::actors
