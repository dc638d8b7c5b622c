#include "web/dashboard/dashboard_json.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "messages/wire/task_kind.hpp"
#include "web/dashboard/dashboard_facts.hpp"
#include "web/dashboard/job_json.hpp"

namespace troupe::web::dashboard_json {

namespace {

using json = nlohmann::ordered_json;

// Names come from users and may be invalid UTF-8, which would make the whole document unreadable.
std::string text_of(const json& d) {
  return d.dump(-1, ' ', false, json::error_handler_t::replace);
}

// 0 stands for "unknown" in reports; JSON has null for it.
json positive(double value) {
  return value > 0 ? json(value) : json();
}

// nlohmann has no conversion of optionals in Debian 12's version.
template <class T>
json known(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

/// The names of the jobs that run as one with `j`, and its own.
std::string names_of(const query_reply& r, const job_status& j) {
  auto names = j.name;
  for (const auto id : j.merged_with.value_or(std::vector<job_id>{}))
    if (const auto other = std::ranges::find(r.jobs, id, &job_status::job); other != r.jobs.end())
      names += " + " + other->name;
  return names;
}

/// GPUs of a node that a job's predecessor has. A successor takes those first, and free ones only
/// beyond them.
std::uint32_t gpus_of_predecessor(const query_reply& r, const job_status& j, node_index n) {
  if (!j.follows) return 0;
  for (const auto& other : r.jobs)
    if (other.lease == j.follows && holds_gpus(other))
      for (const auto& share : other.where)
        if (share.node == n) return share.gpus;
  return 0;
}

// By job rather than by GPU: the controller does not report which of a node's GPUs a job has. Of
// merged jobs, which have the same GPUs, the first stands for all.
json holders_of(const query_reply& r, node_index n) {
  json all = json::array();
  for (const auto& j : r.jobs)
    for (const auto& share : j.where) {
      if (share.node != n || !holds_gpus(j) || !stands_for_others(j)) continue;
      const auto waits_for = std::min(share.gpus, gpus_of_predecessor(r, j, n));
      if (waits_for < share.gpus)
        all.push_back({{"job", j.job}, {"name", names_of(r, j)}, {"gpus", share.gpus - waits_for}});
    }
  return all;
}

json node_document(const query_reply& r, const node_status& n) {
  return {{"name", n.name},
          {"gpu", n.gpu_type},
          {"present", n.present},
          {"gpus", n.gpus},
          {"idle", n.idle},
          {"state", state_of(n)},
          {"holders", holders_of(r, n.node)}};
}

json bubbles_document(const bubble_use& b) {
  return {{"guest_steps", b.guest_steps},
          {"guest_s", b.guest_s},
          {"delayed_steps", b.delayed_steps},
          {"delay_s", b.delay_s},
          {"worst_delay_s", b.worst_delay_s},
          {"delay_p99_s", b.delay_quantile_s(0.99)},
          {"guard_s", b.guard_s},
          {"paused", b.paused},
          {"idle_s", known(b.idle_s)}};
}

json front_document(const front_status& f) {
  const auto& c = f.report.counts;
  return {
      {"name", f.name},
      {"present", f.present},
      {"requests", f.report.requests},
      {"finished", c.finished},
      {"cancelled", c.cancelled},
      {"declined", c.declined},
      {"failed", c.failed},
      {"retries", c.retries},
      {"tokens", c.tokens},
      {"prefills", {{"bubbles", c.by_bubbles}, {"decoders", c.by_decoders}, {"yields", c.yields}}},
      {"ttft_p50_s", positive(f.report.ttft_p50_s)},
      {"ttft_p99_s", positive(f.report.ttft_p99_s)}};
}

json decoder_document(const query_reply& r, const reported_decoder& d) {
  return {{"node", name_of_node(r, d.node)},
          {"datacenter", name_of_datacenter(r, datacenter_of(r, d.node))},
          {"lease", d.state.lease},
          {"model", d.state.model},
          {"context", d.state.context},
          {"pages", d.state.pages},
          {"free_pages", d.state.free_pages},
          {"running", d.state.running},
          {"waiting", d.state.waiting},
          {"ending", d.state.ending}};
}

/// Bytes per second; null: not known.
// From two looks at the same counters: gateways have no rates, and a second of traffic is what
// people want to see.
json rate_of(const wan_direction& l, const query_reply& now, const query_reply& before) {
  const auto earlier = bytes_between(before, l.from, l.to);
  const double passed_s = now.now_s - before.now_s;
  // A gateway that was restarted counts from 0 again.
  if (!l.bytes || !earlier || *l.bytes < *earlier || !(passed_s > 0)) return {};
  return static_cast<double>(*l.bytes - *earlier) / passed_s;
}

/// The page's readers are not known to be the job's owner: they see the program, not its arguments.
json shown_to_all(const query_reply& r, job_status j) {
  if (j.command.size() > 1) j.command.resize(1);
  return job_document(r, j);
}

}  // namespace

std::string cluster(const query_reply& r) {
  const auto view = r.view.value_or(cluster_view{});
  json all = json::array();
  for (std::uint32_t d = 0; d < r.gateways.size(); ++d) {
    const auto& name = r.gateways[d].datacenter;
    json nodes = json::array();
    for (const auto& n : r.nodes)
      if (!n.removed.value_or(false))
        if (datacenter_of(r, n.node) == d) nodes.push_back(node_document(r, n));
    all.push_back(
        {{"name", name},
         // A datacenter whose gateway is absent still has its nodes.
         {"gateway_present", std::ranges::find(r.gateways_absent, name) == r.gateways_absent.end()},
         {"nodes", nodes}});
  }
  const auto& s = view.scheduling;
  return text_of({{"name", view.name},
                  {"policy", r.policy},
                  {"now_s", r.now_s},
                  {"scheduling",
                   {{"rounds", s.rounds},
                    {"rounds_s", s.rounds_s},
                    {"started", s.started},
                    {"moved", s.moved},
                    {"stopped", s.stopped},
                    {"refused", s.refused}}},
                  {"datacenters", all}});
}

std::string jobs(const query_reply& r) {
  json all = json::array();
  for (const auto& j : r.jobs) all.push_back(shown_to_all(r, j));
  return text_of({{"now_s", r.now_s}, {"jobs", all}});
}

std::string job(const query_reply& r, job_id id) {
  const auto found = std::ranges::find(r.jobs, id, &job_status::job);
  return found == r.jobs.end() ? std::string{} : text_of(shown_to_all(r, *found));
}

std::string explain(const explanation& e) {
  return text_of(explanation_document(e));
}

std::string training(const training_reply& r) {
  const auto& t = r.report;
  json iterations = json::array();
  for (const auto& i : t.iterations)
    iterations.push_back({{"iteration", i.iteration},
                          {"loss", i.loss},
                          {"gradient_norm", i.gradient_norm},
                          {"begin_s", i.begin_s},
                          {"end_s", i.end_s},
                          {"busy_s", i.busy_s},
                          {"guest_s", known(i.guest_s)}});
  const auto heals = t.heals ? json{{"count", t.heals->count},
                                    {"stages", t.heals->lost},
                                    {"seconds", t.heals->seconds},
                                    {"repeated", t.heals->repeated},
                                    {"joined", t.heals->joined.value_or(0)}}
                             : json();
  return text_of({{"job", t.job},
                  {"reason", r.why.text.empty() ? json() : json(r.why.text)},
                  {"position", r.position},
                  {"schedule", t.schedule},
                  {"device", t.device},
                  {"stages", t.stages},
                  {"pipelines", t.pipelines},
                  {"microbatches", t.microbatches},
                  {"tensor_parallel", t.tensor_parallel},
                  {"tokens_per_s", positive(t.tokens_per_s)},
                  {"wan_bytes", t.wan_bytes},
                  {"wan_utilization", t.wan_utilization},
                  {"saved", t.saved},
                  {"planned_s", positive(t.planned_s)},
                  {"lower_bound_s", positive(t.lower_bound_s)},
                  {"events", t.events},
                  {"iterations", iterations},
                  {"heals", heals},
                  {"bubbles", t.bubbles ? bubbles_document(*t.bubbles) : json()}});
}

std::string timeline(const training_reply& r, const query_reply& cluster) {
  const auto shown = r.report.timeline.value_or(iteration_timeline{});
  json rows = json::array();
  for (const auto& s : shown.stages) {
    json spans = json::array(), busy = json::object();
    for (const auto& t : s.tasks)
      // Kinds of a newer version are left out rather than drawn as something else.
      if (const auto* kind = facts_of_task(t.what); kind && t.end_s > t.begin_s)
        spans.push_back({{"what", kind->name},
                         {"microbatch", t.microbatch},
                         {"begin_s", t.begin_s},
                         {"end_s", t.end_s}});
    for (std::size_t k = 0; k < s.busy_s.size(); ++k)
      if (const auto* kind = facts_of_task(k)) busy[std::string{kind->name}] = s.busy_s[k];
    rows.push_back({{"pipeline", s.pipeline},
                    {"stage", s.stage},
                    {"node", name_of_node(cluster, s.node)},
                    {"datacenter", name_of_datacenter(cluster, datacenter_of(cluster, s.node))},
                    {"devices", s.devices},
                    {"busy_s", busy},
                    {"spans", spans}});
  }
  return text_of({{"job", r.report.job},
                  {"iteration", shown.iteration},
                  {"length_s", shown.length_s},
                  {"device", r.report.device},
                  {"kinds", task_kinds_document()},
                  {"rows", rows}});
}

std::string links(const query_reply& now, const query_reply* before) {
  json all = json::array();
  for (const auto& l : wan_directions(now))
    all.push_back({{"from", name_of_datacenter(now, l.from)},
                   {"to", name_of_datacenter(now, l.to)},
                   {"rtt_ms", l.in_file ? json(l.in_file->rtt_ms) : json()},
                   {"gbps", l.in_file ? json(l.in_file->node_gbps) : json()},
                   {"emulated", l.in_file && l.in_file->emulate},
                   {"bytes", known(l.bytes)},
                   {"bytes_s", before ? rate_of(l, now, *before) : json()}});
  return text_of({{"links", all}});
}

std::string serving(const query_reply& r) {
  json fronts = json::array(), decoders = json::array();
  if (r.view && r.view->fronts)
    for (const auto& f : *r.view->fronts) fronts.push_back(front_document(f));
  for (const auto& d : decoders_of(r)) decoders.push_back(decoder_document(r, d));
  return text_of({{"fronts", fronts}, {"decoders", decoders}});
}

std::string error(const std::string& sentence) {
  return text_of({{"error", {{"message", sentence}}}});
}

std::string source(const std::string& why_absent, double absent_s) {
  const bool present = why_absent.empty();
  return text_of({{"present", present},
                  {"reason", present ? json() : json(why_absent)},
                  {"since_s", present ? json() : json(absent_s)}});
}

}  // namespace troupe::web::dashboard_json
