#include "web/dashboard/dashboard_metrics.hpp"

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "messages/wire/task_kind.hpp"
#include "web/dashboard/dashboard_facts.hpp"

namespace troupe::web {

namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using labels = std::vector<std::pair<std::string, std::string>>;

/// Families in the order in which they are begun.
class document {
 public:
  /// The following values belong to it.
  void family(const char* name, MetricType type, const char* help) {
    all_.push_back({std::string{"troupe_"} + name, help, type, {}});
  }
  void value(const labels& of, double v) {
    auto& m = metric(of);
    if (all_.back().type == MetricType::Counter)
      m.counter.value = v;
    else
      m.gauge.value = v;
  }
  void summary(std::uint64_t count, double sum) {
    auto& m = metric({});
    m.summary.sample_count = count;
    m.summary.sample_sum = sum;
  }
  /// Families without values are left out.
  std::string text() {
    std::erase_if(all_, [](const MetricFamily& f) { return f.metric.empty(); });
    return prometheus::TextSerializer{}.Serialize(all_);
  }

 private:
  ClientMetric& metric(const labels& of) {
    ClientMetric m;
    for (const auto& [name, value] : of) m.label.push_back({name, value});
    all_.back().metric.push_back(std::move(m));
    return all_.back().metric.back();
  }

  std::vector<MetricFamily> all_;
};

constexpr auto gauge = MetricType::Gauge, counter = MetricType::Counter;

// Hosts that reconfigure has removed have no series: they would count as failures for ever.
void add_hosts(document& d, const query_reply& r) {
  d.family("up", gauge, "1 if the host is present, else 0");
  d.value({{"host", "controller"}}, 1);
  for (const auto& g : r.gateways) {
    const bool absent =
        std::ranges::find(r.gateways_absent, g.datacenter) != r.gateways_absent.end();
    d.value({{"host", g.datacenter + "/gateway"}}, absent ? 0 : 1);
  }
  for (const auto& n : r.nodes)
    if (!n.removed.value_or(false)) d.value({{"host", n.name}}, n.present ? 1 : 0);
  if (r.view && r.view->fronts)
    for (const auto& f : *r.view->fronts) d.value({{"host", f.name}}, f.present ? 1 : 0);
}

/// Requests and their times are the fronts' own metrics.
void add_decoders(document& d, const query_reply& r) {
  const auto all = decoders_of(r);
  const auto each = [&](auto add) {
    for (const auto& one : all) {
      const labels of{{"decoder", name_of_node(r, one.node)},
                      {"lease", std::to_string(one.state.lease)},
                      {"model", one.state.model}};
      const auto value = [&](const char* state, std::uint32_t n) {
        auto named = of;
        named.emplace_back("state", state);
        d.value(named, n);
      };
      add(one.state, value);
    }
  };
  d.family("kv_pages", gauge, "Pages of decoders' caches, 64 positions each");
  each([](const decoder_state& s, const auto& value) {
    value("used", s.pages - std::min(s.free_pages, s.pages));
    value("free", s.free_pages);
  });
  d.family("sequences", gauge, "Sequences of decoders");
  each([](const decoder_state& s, const auto& value) {
    value("running", s.running);
    value("waiting", s.waiting);
  });
}

// GPUs of absent nodes are neither idle nor held: no job can use them.
void add_gpus(document& d, const query_reply& r) {
  d.family("gpus", gauge, "GPUs of present nodes");
  for (const auto& n : r.nodes) {
    if (n.removed.value_or(false)) continue;
    if (!n.present) continue;
    const auto idle = std::min(n.idle, n.gpus);
    d.value({{"node", n.name}, {"state", "idle"}}, idle);
    d.value({{"node", n.name}, {"state", "held"}}, n.gpus - idle);
  }
}

void add_jobs(document& d, const query_reply& r) {
  constexpr std::array all{job_state::waiting,  job_state::running, job_state::stopping,
                           job_state::finished, job_state::failed,  job_state::cancelled};
  d.family("jobs", gauge, "Jobs: unfinished ones, and the last hundred that have ended");
  for (const auto s : all)
    d.value({{"state", to_string(s)}},
            static_cast<double>(std::ranges::count(r.jobs, s, &job_status::state)));
  // A series per waiting job, not an average: alerts need the longest wait, and the series ends
  // when the job starts.
  d.family("queue_seconds", gauge, "Time that a waiting job has waited");
  for (const auto& j : r.jobs)
    if (j.state == job_state::waiting)
      d.value({{"job", std::to_string(j.job)}, {"name", j.name}},
              std::max(0.0, r.now_s - j.submitted_s));
}

void add_ended(document& d, const cluster_facts& known) {
  d.family("jobs_ended_total", counter, "Jobs that have ended since the dashboard's start, by why");
  for (const auto& [why, n] : known.ended)
    d.value({{"why", std::string{to_string(why)}}}, static_cast<double>(n));
}

void add_scheduling(document& d, const query_reply& r) {
  if (!r.view) return;
  const auto& s = r.view->scheduling;
  d.family("decisions_total", counter, "Decisions since the controller's start");
  for (const auto& [kind, n] : {std::pair{"start", s.started},
                                {"move", s.moved},
                                {"stop", s.stopped},
                                {"refused", s.refused}})
    d.value({{"kind", kind}}, static_cast<double>(n));
  // Count and sum, without quantiles: Prometheus computes a rate and a mean from them.
  d.family("decision_seconds", MetricType::Summary, "Time of the policy's calls");
  d.summary(s.rounds, s.rounds_s);
}

struct training {
  labels of;
  const job_status& job;
  const training_report& report;
};

void add_trainings(document& d, const std::vector<training>& all) {
  const auto newest = [](const training& t) -> const iteration_record* {
    return t.report.iterations.empty() ? nullptr : &t.report.iterations.back();
  };
  d.family("training_loss", gauge, "Loss of the newest iteration");
  for (const auto& t : all)
    if (const auto* i = newest(t)) d.value(t.of, i->loss);
  d.family("training_iteration", gauge, "Completed iterations");
  for (const auto& t : all) d.value(t.of, static_cast<double>(t.job.iteration));
  d.family("training_iterations", gauge, "Iterations of the whole training");
  for (const auto& t : all) d.value(t.of, static_cast<double>(t.job.iterations));
  d.family("training_iteration_seconds", gauge, "Time of the newest iteration");
  for (const auto& t : all)
    if (const auto* i = newest(t)) d.value(t.of, i->end_s - i->begin_s);
  d.family("training_planned_seconds", gauge, "Time of an iteration as planned");
  for (const auto& t : all)
    if (t.report.planned_s > 0) d.value(t.of, t.report.planned_s);
  d.family("training_tokens_per_second", gauge,
           "Tokens per second since the last start or restart");
  for (const auto& t : all)
    if (t.report.tokens_per_s > 0) d.value(t.of, t.report.tokens_per_s);
}

void add_bubbles(document& d, const std::vector<training>& all) {
  d.family("bubble_seconds_total", counter,
           "Idle time of a training's devices that was lent to prefills");
  for (const auto& t : all)
    if (t.report.bubbles && t.report.bubbles->idle_s) d.value(t.of, *t.report.bubbles->idle_s);
  d.family("guest_seconds_total", counter, "Time that prefills used of a training's bubbles");
  for (const auto& t : all)
    if (t.report.bubbles) d.value(t.of, t.report.bubbles->guest_s);
  d.family("training_delay_seconds_total", counter, "Time that a training waited for prefills");
  for (const auto& t : all)
    if (t.report.bubbles) d.value(t.of, t.report.bubbles->delay_s);
}

void add_devices(document& d, const query_reply& r, const std::vector<training>& all) {
  d.family("device_busy_seconds_total", counter,
           "Busy time of a stage's devices by task, since its training's last start or restart");
  for (const auto& t : all) {
    if (!t.report.timeline) continue;
    // The devices of a tensor group work together: each has the stage's time.
    for (const auto& s : t.report.timeline->stages)
      for (const auto device : s.devices)
        for (std::size_t k = 0; k < s.busy_s.size(); ++k) {
          const auto* kind = facts_of_task(k);
          if (!kind || !kind->on_device) continue;
          d.value({{"node", name_of_node(r, s.node)},
                   {"device", std::to_string(device)},
                   {"job", std::to_string(t.job.job)},
                   {"stage", std::to_string(s.stage)},
                   {"pipeline", std::to_string(s.pipeline)},
                   {"what", std::string{kind->name}}},
                  s.busy_s[k]);
        }
  }
}

void add_wan(document& d, const query_reply& r, const std::vector<training>& all) {
  d.family("wan_bytes_total", counter,
           "Bytes of tensors between datacenters, since the sending gateway's start");
  for (const auto& l : wan_directions(r))
    if (l.bytes)
      d.value({{"from", name_of_datacenter(r, l.from)}, {"to", name_of_datacenter(r, l.to)}},
              static_cast<double>(*l.bytes));
  d.family("wan_utilization", gauge, "Fraction of its hops' rate that a training uses");
  for (const auto& t : all)
    if (t.report.wan_bytes > 0) d.value(t.of, t.report.wan_utilization);
}

void add_heals(document& d, const std::vector<training>& all) {
  d.family("training_heals_total", counter,
           "Changes of the view of a training that went on without lost stages");
  for (const auto& t : all)
    if (t.report.heals) d.value(t.of, static_cast<double>(t.report.heals->count));
  d.family("training_heals_seconds_total", counter,
           "Time from the notice of losses until it went on");
  for (const auto& t : all)
    if (t.report.heals) d.value(t.of, t.report.heals->seconds);
  d.family("training_joined_total", counter, "Devices that came back and have their stages again");
  for (const auto& t : all)
    if (t.report.heals) d.value(t.of, static_cast<double>(t.report.heals->joined.value_or(0)));
}

}  // namespace

std::string cluster_metrics(const cluster_facts* known) {
  document d;
  // Only this remains while the controller is absent, so that an alert on it fires, and old values
  // do not look current.
  if (!known) {
    d.family("up", gauge, "1 if the host is present, else 0");
    d.value({{"host", "controller"}}, 0);
    return d.text();
  }
  std::vector<training> trainings;
  for (const auto& j : known->now.jobs)
    if (const auto t = known->trainings.find(j.job); t != known->trainings.end() && holds_gpus(j))
      trainings.push_back({{{"job", std::to_string(j.job)}, {"name", j.name}}, j, t->second});
  add_hosts(d, known->now);
  add_gpus(d, known->now);
  add_decoders(d, known->now);
  add_jobs(d, known->now);
  add_ended(d, *known);
  add_scheduling(d, known->now);
  add_trainings(d, trainings);
  add_devices(d, known->now, trainings);
  add_bubbles(d, trainings);
  add_wan(d, known->now, trainings);
  add_heals(d, trainings);
  return d.text();
}

}  // namespace troupe::web
