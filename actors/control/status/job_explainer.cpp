#include "actors/control/status/job_explainer.hpp"
#include "actors/control/ledger/public_detail.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "actors/control/ledger/elastic_attempts.hpp"
#include "actors/control/ledger/progress_report.hpp"
#include "actors/control/ledger/unions.hpp"
#include "actors/control/status/ended_attempts.hpp"
#include "actors/control/status/merge_explainer.hpp"
#include "actors/protocol/permissions.hpp"
#include "messages/base/find_in.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/cluster/queue_order.hpp"
#include "planners/cost/batch_split.hpp"
#include "planners/devices/guesses.hpp"
#include "planners/plans/bounds.hpp"
#include "planners/plans/plan_text.hpp"
#include "planners/plans/plan_worth.hpp"
#include "planners/plans/shortage.hpp"
#include "planners/policy/placement.hpp"

namespace troupe::actors {

namespace {

constexpr std::size_t shown_nodes = 20;

std::string name_of(const cluster& c, node_index n) {
  return fmt::format("{} ({})", c.nodes[n].name, c.gpu_of(n).name);
}

/// The part of a plan's memory that is not the training's own; for the end of a sentence.
std::string guests_part(const job_spec& job) {
  const double bytes = planners::guest_bytes(job);
  return bytes > 0 ? fmt::format(", {:g} of them for prefills in its bubbles", bytes / bytes_per_gb)
                   : "";
}

/// Why a node cannot be used; nothing if it can.
std::string obstacle(const cluster& c, const job_spec& job, const plan& how, node_index n,
                     const placement_note& then) {
  const auto& gpu = c.gpu_of(n);
  if (!then.present[n]) return "had not reported, or was considered lost";
  if (!planners::allows(job, gpu))
    return fmt::format("is not of type {} (gpu_type)", job.limits.required_gpu_type);
  if (!(gpu.memory_bytes() > how.bytes_per_gpu))
    return fmt::format("has {:g} GB per GPU, but the plan needs {:.2f}{}", gpu.memory_gb,
                       how.bytes_per_gpu / bytes_per_gb, guests_part(job));
  if (n < then.drained.size() && then.drained[n]) return "was drained";
  if (then.idle[n] == 0) return fmt::format("was full: 0 of {} GPUs idle", c.nodes[n].gpus);
  return {};
}

/// HAS prefers the node with the fewest sufficient idle GPUs, then the least memory, then the first
/// name.
std::string tie_break(const cluster& c, node_index chosen, node_index other,
                      const placement_note& then) {
  if (then.idle[other] > then.idle[chosen])
    return fmt::format(
        "had {} idle GPUs, {} had {}: best fit takes the node with the fewest sufficient GPUs",
        then.idle[other], c.nodes[chosen].name, then.idle[chosen]);
  if (c.gpu_of(other).memory_bytes() > c.gpu_of(chosen).memory_bytes())
    return fmt::format(
        "had as many idle GPUs, but of {:g} GB: the smallest sufficient memory is preferred",
        c.gpu_of(other).memory_gb);
  return "was equally good: the first name was taken";
}

/// Sentences: why these nodes, and why not each other node. `has_rule`: they were placed by HAS,
/// whose rule can be explained; else only why a node cannot be used is known. `follows`: the lease
/// that has passed GPUs on to the job's.
std::vector<std::string> explain_nodes(const cluster& c, const job_spec& job, const plan& how,
                                       const allocation& where, const placement_note& then,
                                       bool has_rule, std::optional<lease_id> follows) {
  std::vector<std::string> out;
  std::vector<bool> chosen(c.nodes.size());
  for (const auto& share : where) {
    chosen[share.node] = true;
    out.push_back(follows ? fmt::format("{}: {} GPUs, passed on by lease {} or idle",
                                        name_of(c, share.node), share.gpus, *follows)
                          : fmt::format("{}: {} of {} idle GPUs used{}", name_of(c, share.node),
                                        share.gpus, then.idle[share.node],
                                        then.moved ? " (or its own)" : ""));
  }
  std::size_t others = 0;
  for (node_index n = 0; n < c.nodes.size(); ++n) {
    if (chosen[n] || c.nodes[n].removed || ++others > shown_nodes) continue;
    auto why = obstacle(c, job, how, n, then);
    if (why.empty() && where.size() == 1 && then.idle[n] < how.gpus())
      why = fmt::format("had {} idle, but the plan needs {} in one node", then.idle[n], how.gpus());
    if (why.empty() && has_rule && where.size() == 1)
      why = tie_break(c, where.front().node, n, then);
    if (why.empty() && has_rule)
      why = fmt::format("had {} idle: nodes with more are taken first if no node has enough",
                        then.idle[n]);
    if (why.empty()) why = fmt::format("had {} suitable idle GPUs as well", then.idle[n]);
    out.push_back(fmt::format("{}: {}", name_of(c, n), why));
  }
  if (others > shown_nodes) out.push_back(fmt::format("and {} more nodes", others - shown_nodes));
  return out;
}

}  // namespace

// -- replies
// -------------------------------------------------------------------------------------------

query_reply job_explainer::nodes() const {
  const auto& c = s_.cluster;
  query_reply reply;
  reply.policy = s_.policy.name();
  for (node_index n = 0; n < c.nodes.size(); ++n) {
    const auto& node = c.nodes[n];
    reply.nodes.push_back({n, node.name, c.gpu_of(n).name, (*s_.state.nodes_present)[n], node.gpus,
                           s_.state.idle->idle(n)});
    if (s_.state.book.is_drained(n)) {
      reply.nodes.back().drained = true;
      reply.nodes.back().idle = s_.state.book.free(n);
    }
    if (node.removed) reply.nodes.back().removed = true;
  }
  for (std::uint32_t d = 0; d < c.datacenters.size(); ++d) {
    const auto& name = c.datacenters[d].name;
    if (!(*s_.state.gateways_present)[d] && !c.datacenters[d].removed)
      reply.gateways_absent.push_back(name);
    const auto* traffic = find_in(s_.traffic, d);
    reply.gateways.push_back({name, traffic ? *traffic : gateway_traffic{}});
  }
  return reply;
}

cluster_view job_explainer::view(const scheduling_counts& counts) const {
  cluster_view v{s_.cluster.name, {}, s_.cluster.wan, counts};
  for (const auto& n : s_.cluster.nodes) v.datacenters.push_back(n.datacenter);
  return v;
}

job_status job_explainer::status_of(const job_record& j) {
  auto s = status_from(*j.spec);
  s.job = j.id;
  s.state = j.state;
  s.submitted_s = j.submitted_s;
  s.started_s = j.started_s;
  s.ended_s = j.ended_s;
  s.progress = j.progress;
  s.history = j.history;
  s.how = j.how;
  if (auto groups = planners::group_sentences(s_.cluster, j.how); !groups.empty())
    s.groups = std::move(groups);
  // A waiting job holds no GPUs, whatever it held before.
  if (j.state == job_state::waiting)
    s.waiting_reason = waiting_reason(j);
  else
    s.where = j.where;
  const auto work = facts_of(*j.spec);
  s.predicted_bytes = work.has_known_memory ? j.predicted_bytes : 0;
  if (!work.has_known_memory) s.how.bytes_per_gpu = 0;
  s.peak_bytes = j.peak_bytes;
  add_ends(s, j, s_.state.book, s_.now_s);
  s.detail = detail_of(j, j.detail);
  s.owner = j.owner;
  // Arguments may contain secrets.
  if (s.command.size() > 1 && !may_act_on(s_.viewer, j.owner)) s.command.resize(1);
  s.exit_code = j.exit_code;
  if (j.failed_rank && !j.tries.empty() && *j.failed_rank < j.tries.back().nodes.size()) {
    if (const auto& end = j.tries.back().end) s.failed_rank = end->rank;
    s.failed_node = s_.cluster.nodes[j.tries.back().nodes[*j.failed_rank]].name;
  }
  if (auto ended = ended_ranks(j); !ended.empty()) {
    s.detail = ended_text(j);
    s.ended_ranks = std::move(ended);
  }
  if (j.lease != 0) s.lease = j.lease;
  const auto& book = s_.state.book;
  if (auto others = merged_with(book, j); !others.empty()) s.merged_with = std::move(others);
  const auto* of_union = j.in ? book.job(*j.in) : nullptr;
  const auto& runs = of_union ? *of_union : j;
  const auto* l = book.lease_of(runs);
  if (l && l->granted.after && book.lease(*l->granted.after)) s.follows = l->granted.after;
  add_progress(s, runs, l, find_in(s_.progress, runs.id), s_.now_s);
  if (of_union) to_member_progress(s, j, *of_union);
  if (work.elastic) s.elastic = elastic_status_of(s_.cluster, book, j, find_in(s_.progress, j.id));
  return s;
}

/// As the viewer may read it.
std::string job_explainer::detail_of(const job_record& j, const std::string& detail) const {
  const bool may_read = may_act_on(s_.viewer, j.owner) || !has_own_text(j);
  return may_read ? detail : public_detail(detail);
}

/// The parts of a running program that have ended, all with status 0.
std::vector<std::uint32_t> job_explainer::ended_ranks(const job_record& j) const {
  std::vector<std::uint32_t> ranks;
  const auto* l = s_.state.book.lease_of(j);
  if (!l || j.state != job_state::running || !facts_of(*j.spec).has_processes) return ranks;
  for (std::uint32_t part = 0; part < l->ended.size(); ++part)
    if (l->ended[part]) ranks.push_back(part);
  return ranks;
}

/// "node east-2 has ended with status 0"; empty: none has.
std::string job_explainer::ended_text(const job_record& j) const {
  const auto ended = ended_ranks(j);
  if (ended.empty()) return {};
  std::string names;
  for (const auto part : ended)
    names += (names.empty() ? "" : ", ") + s_.cluster.nodes[j.where[part].node].name;
  return fmt::format("node{} {} {} ended with status 0", ended.size() == 1 ? "" : "s", names,
                     ended.size() == 1 ? "has" : "have");
}

/// Null: they are being computed.
const plans_reply* job_explainer::plans_of(const job_record& j) const {
  const auto* made = find_in(s_.plans, j.id);
  return made && made->memory_factor == j.history.factor ? made : nullptr;
}

/// One word for lists, where asking the policy for each of 10,000 jobs would take seconds.
std::string job_explainer::waiting_reason(const job_record& j) {
  if (j.suspended) return "suspended";
  if (retry_in_s(j, s_.now_s)) return "backoff";
  const auto* made = plans_of(j);
  if (!made) return "planning";
  if (s_.starting) return "nodes to report";
  if (!made->plans || made->plans->empty()) return "no feasible plan";
  const auto work = facts_of(*j.spec);
  if (!work.has_end) return "resources";  // it would go before all others
  const bool by_number = s_.policy.traits().starts_requested_number && !work.pipelines;
  const auto wanted = by_number ? std::min(j.spec->request.gpus,
                                           j.spec->limits.max_gpus.value_or(j.spec->request.gpus))
                                : 0;
  const auto can_serve = [&](const planners::idle_index& idle) {
    return std::ranges::any_of(*made->plans, [&](const plan& p) {
      return p.gpus() >= wanted && p.bytes_per_gpu > j.history.bytes_floor &&
             planners::has_room(s_.cluster, idle, *j.spec, p);
    });
  };
  const auto word = [&] {
    if (!can_serve(*s_.state.idle)) return "resources";
    if (!s_.kept || s_.kept->job == j.id) return "priority";
    auto rest = *s_.state.idle;
    planners::take(rest, s_.kept->where);
    return can_serve(rest) ? "priority" : "reservation";
  };
  // Jobs with the same plans may have the same GPUs.
  const auto [known, is_new] =
      word_for_.try_emplace({made->plans.get(), j.history.bytes_floor}, "");
  if (is_new) known->second = word();
  if (known->second != std::string_view{"priority"} || !is_only_waiting_job()) return known->second;
  return s_.policy.traits().round_s > 0 ? "next round" : "resources";
}

/// Nobody comes before the only one that waits.
bool job_explainer::is_only_waiting_job() {
  if (!waiting_) {
    waiting_ = 0;
    for (const auto& [id, j] : s_.state.book.jobs()) {
      *waiting_ += j.state == job_state::waiting && !j.suspended && !j.members;
      if (*waiting_ > 1) break;
    }
  }
  return *waiting_ < 2;
}

std::string job_explainer::absent_nodes() const {
  constexpr std::size_t shown = 10;
  std::string names;
  std::size_t absent = 0;
  for (node_index n = 0; n < s_.state.nodes_present->size(); ++n)
    if (!(*s_.state.nodes_present)[n] && !s_.cluster.nodes[n].removed && ++absent <= shown)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", s_.cluster.nodes[n].name);
  if (absent > shown) names += fmt::format(" and {} more", absent - shown);
  return names;
}

/// By the state of this moment; what was idle at the placement is in the notes.
explanation job_explainer::explain(job_id id, const policy_view& by_policy) {
  explanation reply;
  const auto* j = s_.state.book.job(id);
  if (!j || j->members) {
    reply.summary = fmt::format("no job {}", id);
    return reply;
  }
  reply.job = status_of(*j);
  reply.metric = planners::worth_name(*j->spec);
  reply.placement = placement_of(*j);
  reply.summary = summary_of(*j, by_policy);
  reply.plans = plans_considered(*j, by_policy);
  reply.memory = j->memory;
  if (auto guesses = guesses_of(*j); !guesses.empty()) reply.guesses = std::move(guesses);
  reply.merge = merge_view_of(s_.state.book, *j, s_.policy, s_.plans);
  if (const auto* l = s_.state.book.lease_of(*j)) reply.follows = l->granted.after;
  if (!facts_of(*j->spec).has_known_memory)
    for (auto& m : reply.memory) m.predicted_bytes = 0;
  return reply;
}

/// Its first measured iterations replace the guesses. While it waits, its plans are ranked by what
/// is expected on all types of theirs.
std::vector<std::string> job_explainer::guesses_of(const job_record& j) const {
  if (is_final(j.state)) return {};
  const auto* measured = find_in(s_.progress, j.id);
  if (measured && measured->iteration_s > 0) return {};
  const auto* made = find_in(s_.plans, j.id);
  if (j.state != job_state::waiting || !made || !made->plans)
    return planners::guesses_of(s_.cluster, *j.spec, j.where);
  auto spec = *j.spec;
  if (spec.program.elastic && j.elastic)
    for (const auto& rate : j.elastic->costs.rates) spec.program.elastic->rates.push_back(rate);
  return planners::guesses_of(s_.cluster, spec, *made->plans, {});
}

std::vector<std::string> job_explainer::placement_of(const job_record& j) const {
  std::vector<std::string> out;
  if (const auto* made = find_in(s_.plans, j.id); made && !made->warning.empty())
    out.push_back(made->warning);
  const auto* note = find_in(s_.notes, j.id);
  const bool placed = !j.where.empty() && !is_final(j.state) && j.state != job_state::waiting;
  if (!note || !placed) return out;
  if (!note->why.empty()) out.push_back(note->why);
  const auto work = facts_of(*j.spec);
  const bool has_rule = s_.policy.traits().best_fit && !work.pipelines && work.has_end;
  const auto* l = s_.state.book.lease_of(j);
  auto why = explain_nodes(s_.cluster, *j.spec, j.how, j.where, *note, has_rule,
                           l ? l->granted.after : std::nullopt);
  out.insert(out.end(), std::make_move_iterator(why.begin()), std::make_move_iterator(why.end()));
  return out;
}

std::string job_explainer::summary_of_waiting(const job_record& j,
                                              const policy_view& by_policy) const {
  if (j.suspended && !facts_of(*j.spec).has_end)
    return fmt::format("suspended; `troupe resume {}` resumes it", j.id);
  const auto last = last_iteration(*j.spec, find_in(s_.progress, j.id));
  if (j.suspended)
    return fmt::format("suspended after iteration {}{}; `troupe resume {}` resumes it",
                       j.progress.iterations_done, last ? fmt::format(" of {}", *last) : "", j.id);
  if (retry_in_s(j, s_.now_s)) return backoff_text(s_.cluster, j);
  const auto* made = plans_of(j);
  if (!made) return "planning is in progress";
  if (s_.starting)
    return fmt::format("the controller has just started and waits for reports from nodes {}",
                       absent_nodes());
  // A policy that could not plan it: no other reason is one.
  const bool failed =
      made->plans && made->plans->empty() && made->why.code == reason::kind::unknown;
  return failed ? "it has no plans: " + made->why.text : by_policy.why_waiting;
}

std::string job_explainer::summary_of(const job_record& j, const policy_view& by_policy) const {
  const auto& c = s_.cluster;
  std::string where;
  for (const auto& share : j.where)
    where += fmt::format("{}{} of {} ({})", where.empty() ? "" : ", ", share.gpus,
                         c.nodes[share.node].name, c.gpu_of(share.node).name);
  const auto how = planners::split_text(j.how);
  const auto ended = ended_text(j);
  const auto merged = merged_with_text(s_.state.book, j);
  const auto also =
      (merged.empty() ? merged : ", " + merged) + (ended.empty() ? ended : "; " + ended);
  switch (j.state) {
    case job_state::waiting:
      return summary_of_waiting(j, by_policy);
    case job_state::running:
      if (facts_of(*j.spec).serves)
        return fmt::format("serving '{}' on GPUs {}, predicted {:.2f} GB",
                           j.spec->serve->model.name, where, j.predicted_bytes / bytes_per_gb);
      if (!facts_of(*j.spec).has_known_memory)
        return fmt::format("running on GPUs {} with {}{}", where, how, also);
      return fmt::format("running on GPUs {} with {}, predicted {:.2f} GB per GPU{}", where, how,
                         j.predicted_bytes / bytes_per_gb, also);
    case job_state::stopping:
      if (const auto* l = s_.state.book.lease_of(j); l && !l->detail.empty())
        return fmt::format("stopping on GPUs {}: {}", where, detail_of(j, l->detail));
      return fmt::format("stopping on GPUs {}", where);
    case job_state::finished:
      return fmt::format("finished after {:.0f} s ({} attempt{}), last on GPUs {} with {}",
                         j.ended_s - j.submitted_s, j.progress.attempts,
                         j.progress.attempts == 1 ? "" : "s", where, how);
    default:
      return fmt::format("{}: {}", to_string(j.state), detail_of(j, j.detail));
  }
}

/// The GPUs that were idle when the job was placed.
static planners::idle_index idle_of(const cluster& c, const placement_note& note) {
  planners::idle_index idle{c};
  for (node_index n = 0; n < c.nodes.size(); ++n)
    idle.set_idle(n, n < note.idle.size() ? note.idle[n] : 0);
  return idle;
}

/// The plan that the job has GPUs by: the same one, or else the first of its layout for the type of
/// its GPUs. Nothing: it has none, or another plan.
static std::optional<std::size_t> chosen_plan(const cluster& c, const job_record& j,
                                              const std::vector<plan>& plans) {
  if (j.state == job_state::waiting || j.where.empty()) return {};
  const auto type = c.nodes[j.where.front().node].gpu;
  const auto same_layout = [&](const plan& p) {
    return p.data_parallel == j.how.data_parallel && p.tensor_parallel == j.how.tensor_parallel &&
           p.pipeline_parallel == j.how.pipeline_parallel &&
           (p.gpu_types.empty() || std::ranges::find(p.gpu_types, type) != p.gpu_types.end());
  };
  auto at = std::ranges::find(plans, j.how);
  if (at == plans.end()) at = std::ranges::find_if(plans, same_layout);
  if (at == plans.end()) return {};
  return static_cast<std::size_t>(at - plans.begin());
}

std::vector<considered_plan> job_explainer::plans_considered(const job_record& j,
                                                             const policy_view& by_policy) const {
  std::vector<considered_plan> result;
  const auto* made = find_in(s_.plans, j.id);
  if (!made || !made->plans) return result;
  const auto& spec = *j.spec;
  const auto& plans = *made->plans;
  const auto chosen = chosen_plan(s_.cluster, j, plans);
  const auto unit = planners::worth_name(spec);
  const bool known_memory = facts_of(spec).has_known_memory;
  // A policy that says why it chose a plan has a rule of its own; others take the first that fits.
  // For an ended job, or after a controller's restart, the GPUs that were idle then are unknown.
  const auto* note = find_in(s_.notes, j.id);
  const bool known = note && !is_final(j.state);
  const bool own_rule = known && !note->why.empty();
  const bool placed = j.state != job_state::waiting && !j.where.empty();
  const double chosen_worth = planners::plan_worth(spec, chosen ? plans[*chosen] : j.how);
  const auto then = known ? std::optional{idle_of(s_.cluster, *note)} : std::nullopt;
  const auto had_room = [&](const plan& p) {
    return then && planners::has_room(s_.cluster, *then, spec, p);
  };
  const bool best = std::ranges::none_of(plans, [&](const plan& p) {
    return p.bytes_per_gpu > j.history.bytes_floor &&
           planners::plan_worth(spec, p) > chosen_worth && had_room(p);
  });
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const auto& p = plans[i];
    considered_plan considered{p, i == chosen, {}, planners::plan_worth(spec, p)};
    for (const auto g : p.gpu_types) considered.gpu_types.push_back(s_.cluster.gpus[g].name);
    const auto memory =
        known_memory ? fmt::format(" with more than {:.2f} GB", p.bytes_per_gpu / bytes_per_gb)
                     : std::string{};
    const auto gpus = fmt::format("{} GPU{}{}", p.gpus(), p.gpus() == 1 ? "" : "s", memory);
    if (!known_memory) considered.what.bytes_per_gpu = 0;
    if (considered.chosen) {
      considered.verdict =
          !known     ? "chosen"
          : own_rule ? "chosen: " + note->why
          : best ? fmt::format("chosen: best by {} among the plans that fit the idle GPUs", unit)
                 : fmt::format("chosen by {}", s_.policy.name());
    } else if (placed && p.bytes_per_gpu <= j.history.bytes_floor) {
      considered.verdict = fmt::format("ran out of memory at {:.2f} GB per GPU earlier",
                                       j.history.bytes_floor / bytes_per_gb);
    } else if (placed && (!known || own_rule || considered.metric <= chosen_worth || had_room(p))) {
      considered.verdict = fmt::format("{:.4g} {}; the chosen plan has {:.4g}", considered.metric,
                                       unit, chosen_worth);
    } else if (placed) {
      considered.verdict =
          fmt::format("ranks higher, but {} were not idle, or too scattered", gpus);
    } else if (is_final(j.state)) {
      considered.verdict = fmt::format("needs {}{}", gpus, guests_part(spec));
    } else {
      const auto& may_have = by_policy.idle ? *by_policy.idle : *s_.state.idle;
      const auto idle = planners::idle_for(s_.cluster, may_have, spec, p);
      planners::job_view view;
      view.spec = j.spec;
      view.plans = made->plans;
      view.history.bytes_floor = j.history.bytes_floor;
      considered.verdict = fmt::format("needs {}{}{}; {} {} idle", gpus, guests_part(spec),
                                       planners::scatter_text(s_.cluster, may_have, view, p), idle,
                                       idle == 1 ? "is" : "are");
    }
    if (const auto marp = planners::bytes_by_marp(s_.cluster, spec, p))
      considered.verdict +=
          fmt::format("; MARP's formula predicts {:.2f} GB per GPU", *marp / bytes_per_gb);
    result.push_back(std::move(considered));
  }
  std::ranges::stable_sort(result, std::greater{}, &considered_plan::metric);
  return result;
}

}  // namespace troupe::actors
