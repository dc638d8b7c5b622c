#include "actors/training/stage/stage_checks.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "actors/training/stage/evaluation_share.hpp"

namespace troupe::actors {

namespace {

// A stage allocates its inbox for these before any tensor arrives.
constexpr std::uint32_t max_microbatches = 1U << 20;
constexpr std::uint32_t max_hosts = 1U << 20;
constexpr std::size_t steps_per_microbatch = 3;  // forward, recompute, backward

template <class... T>
tl::unexpected<reason> bad(fmt::format_string<T...> text, T&&... values) {
  return refuse(reason::kind::malformed, fmt::format(text, std::forward<T>(values)...));
}

/// Running sums are between peers in different datacenters.
bool are_apart(const stage_setup& s, std::uint32_t pipeline) {
  return s.sites && s.sites->datacenters[pipeline] != s.sites->datacenters[s.name.pipeline];
}

/// A stage of the same pipeline, or a peer.
address node_of_stage(const stage_setup& s, const stage_name& other) {
  return other.pipeline == s.name.pipeline ? s.neighbours[other.stage] : s.peers[other.pipeline];
}

/// A stage's word that it is ready goes to its lead, the stage of pipeline 0, and from lead to lead
/// to the first stage; the word to update goes back.
bool agrees_with(const stage_name& lead, const stage_name& other) {
  if (lead.pipeline != 0) return false;
  return other.pipeline == 0 ? other.stage == lead.stage + 1 : other.stage == lead.stage;
}

/// The two lists of addresses meet in the stage itself: else its node and its peers would disagree
/// on where it is.
bool has_own_place(const stage_setup& s) {
  return s.neighbours.size() == s.stages && s.peers.size() == s.pipelines &&
         s.neighbours[s.name.stage] == s.peers[s.name.pipeline];
}

}  // namespace

bool is_trainer(const cluster& c, const work_order& part, address from) {
  return part.train && part.train->trainer < c.nodes.size() &&
         from == node_address(part.train->trainer);
}

bool is_lease_node(const cluster& c, const work_order& part, address from) {
  if (!part.train || !is_node(c, from)) return false;
  const auto& parts = part.train->parts;
  return std::any_of(parts.begin(), parts.end(),
                     [n = node_of(from)](const lease_part& p) { return p.node == n; });
}

expected<void> check_setup(const stage_setup& s, const work_order& part) {
  if (s.stages == 0 || s.stages > max_hosts || s.pipelines == 0 || s.pipelines > max_hosts)
    return bad("a training of {} stages in {} pipelines", s.stages, s.pipelines);
  if (s.name.stage >= s.stages || s.name.pipeline >= s.pipelines)
    return bad("stage {} of pipeline {}: there are {} stages in {} pipelines", s.name.stage,
               s.name.pipeline, s.stages, s.pipelines);
  if (s.sites && s.sites->datacenters.size() != s.pipelines)
    return bad("the setup has {} datacenters of {} peers", s.sites->datacenters.size(),
               s.pipelines);
  if (s.share && (s.share->all < s.microbatches || s.share->first > s.share->all - s.microbatches))
    return bad("micro-batches {} to {} of {}", s.share->first, s.share->first + s.microbatches,
               s.share->all);
  if (evaluations_of(s).microbatches > max_microbatches)
    return bad("{} micro-batches of held-out samples", evaluations_of(s).microbatches);
  if (!has_own_place(s)) return bad("the setup lacks the address of a neighbor or peer");
  if (s.microbatches == 0 || s.microbatches > max_microbatches || s.rows == 0)
    return bad("{} micro-batches of {} sequences", s.microbatches, s.rows);
  if (!(s.emulate_speed > 0 && s.emulate_speed <= 1))
    return bad("an invalid emulate_speed of {}", s.emulate_speed);
  for (const auto d : s.devices)
    if (std::find(part.devices.begin(), part.devices.end(), d) == part.devices.end())
      return bad("GPU {} is not one of this lease's", d);
  if (part.train && s.how.program != part.train->program)
    return bad("the stage's program is not that of its job");
  return check_order(s.order, s.microbatches);
}

// A node allocates by these numbers, so that they are limited before anything is done with them.
// The order itself may still be wrong, which then stops only its own training.
expected<void> check_order(const std::vector<stage_step>& order, std::uint32_t microbatches) {
  if (order.size() > steps_per_microbatch * microbatches)
    return bad("{} steps for {} micro-batches", order.size(), microbatches);
  for (const auto& s : order)
    if (s.microbatch >= microbatches)
      return bad("a step for micro-batch {} of {}", s.microbatch, microbatches);
  return {};
}

bool follow_view(stage_setup& at, const view_begin& b) {
  if (!at.view || b.view < *at.view) return false;
  auto next = at;
  next.neighbours = b.neighbours;
  next.peers = b.peers;
  next.view = b.view;
  const auto is_pipeline = [&](std::uint32_t p) { return p < at.pipelines; };
  if (!has_own_place(next) || !std::ranges::is_sorted(b.pipelines) ||
      !std::ranges::all_of(b.pipelines, is_pipeline))
    return false;
  at = std::move(next);
  return true;
}

// Activations go down the pipeline, gradients up, sums between peers; a tied embedding joins the
// first stage and the last. Anything else is a tensor of another training, or forged.
bool comes_from_its_stage(const stage_setup& to, const tensor& t, address from) {
  const auto stage = t.from.stage, me = to.name.stage;
  if (stage >= to.stages || t.from.pipeline >= to.pipelines) return false;
  const bool of_this_pipeline = t.from.pipeline == to.name.pipeline;
  switch (t.what) {
    case tensor::kind::activation:
      return of_this_pipeline && stage + 1 == me && from == to.neighbours[stage];
    case tensor::kind::gradient:
      return of_this_pipeline && stage == me + 1 && from == to.neighbours[stage];
    case tensor::kind::ready:
      return agrees_with(to.name, t.from) && from == node_of_stage(to, t.from);
    case tensor::kind::commit:
      return agrees_with(t.from, to.name) && from == node_of_stage(to, t.from);
    case tensor::kind::partial:
    case tensor::kind::sum:
    case tensor::kind::state:
      return stage == me && !of_this_pipeline && from == to.peers[t.from.pipeline];
    case tensor::kind::running:
    case tensor::kind::running_sum:
      return stage == me && are_apart(to, t.from.pipeline) && from == to.peers[t.from.pipeline];
    case tensor::kind::tied_partial:
      return of_this_pipeline && me == 0 && stage + 1 == to.stages && from == to.neighbours[stage];
    case tensor::kind::tied_sum:
      return me + 1 == to.stages && from == node_of_stage(to, t.from) &&
             (of_this_pipeline ? stage == 0 : stage == me && to.view.has_value());
  }
  return false;
}

// The mirror image of comes_from_its_stage: the stage that asks is the one that would receive.
bool is_asked_by_its_stage(const stage_setup& me, const tensor_request& r, address from) {
  const auto stage = r.from.stage, mine = me.name.stage;
  if (stage >= me.stages || r.from.pipeline >= me.pipelines) return false;
  const auto all = std::uint64_t{me.microbatches} + evaluations_of(me).microbatches;
  const bool one = is_chunk(r.what) || r.what == tensor::kind::state;
  if (r.microbatches.size() > (one ? 1 : all)) return false;
  const bool of_this_pipeline = r.from.pipeline == me.name.pipeline;
  const bool from_neighbour = of_this_pipeline && from == me.neighbours[stage];
  const bool of_both_ends = from_neighbour && stage != mine;
  switch (r.what) {
    case tensor::kind::activation:
      return from_neighbour && stage == mine + 1;
    case tensor::kind::gradient:
      return from_neighbour && stage + 1 == mine;
    case tensor::kind::ready:
      return agrees_with(r.from, me.name) && from == node_of_stage(me, r.from);
    case tensor::kind::commit:
      return agrees_with(me.name, r.from) && from == node_of_stage(me, r.from);
    case tensor::kind::partial:
    case tensor::kind::sum:
    case tensor::kind::state:
      return stage == mine && !of_this_pipeline && from == me.peers[r.from.pipeline];
    case tensor::kind::running:
    case tensor::kind::running_sum:
      return stage == mine && are_apart(me, r.from.pipeline) && from == me.peers[r.from.pipeline];
    case tensor::kind::tied_partial:
      return of_both_ends && stage == 0 && mine + 1 == me.stages;
    case tensor::kind::tied_sum:
      if (!of_this_pipeline)
        return me.view && stage == mine && mine + 1 == me.stages &&
               from == me.peers[r.from.pipeline];
      return of_both_ends && mine == 0 && stage + 1 == me.stages;
  }
  return false;
}

}  // namespace troupe::actors
