#include "web/dashboard/job_json.hpp"

#include <algorithm>

#include "messages/wire/task_kind.hpp"

namespace troupe::web {

namespace {

using json = nlohmann::ordered_json;

// 0: it has not happened.
json time_of(double s) {
  return s > 0 ? json(s) : json();
}

/// 0: unknown.
json bytes_of(double bytes) {
  return bytes > 0 ? json(static_cast<std::uint64_t>(bytes)) : json();
}

template <class T>
json known(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

json text_or_null(const std::string& text) {
  return text.empty() ? json() : json(text);
}

/// Losses of held-out samples.
json evaluation_document(const std::optional<held_out_losses>& e) {
  if (!e) return {};
  return {{"iteration", e->iteration},
          {"loss", e->loss},
          {"best_iteration", e->best_iteration},
          {"best_loss", e->best_loss}};
}

/// Facts of an elastic program, as keys of its job; of others `elastic` alone.
void add_elastic(json& job, const std::optional<elastic_status>& e) {
  job["elastic"] = e.has_value();
  if (!e) return;
  job["saved"] = e->saved;
  job["world_size"] = e->world_size;
  job["stops"] = e->stops;
  job["start_s"] = known(e->start_s);
  job["save_s"] = known(e->save_s);
  job["pause_s"] = known(e->pause_s);
  job["lost_iterations"] = e->lost_iterations;
  job["rates"] = json::array();
  for (const auto& r : e->rates)
    job["rates"].push_back({{"gpu", r.measured.gpu},
                            {"gpus", r.measured.gpus},
                            {"data_parallel", r.measured.data_parallel},
                            {"samples_per_s", r.measured.samples_per_s},
                            {"estimated_samples_per_s", r.estimated_samples_per_s}});
}

}  // namespace

json plan_document(const plan& p) {
  return {{"data_parallel", p.data_parallel},
          {"tensor_parallel", p.tensor_parallel},
          {"pipeline_parallel", p.pipeline_parallel},
          {"gpus", p.gpus()},
          {"bytes_per_gpu", bytes_of(p.bytes_per_gpu)},
          {"samples_per_s", p.samples_per_s},
          {"cost_per_hour", p.cost_per_hour},
          {"traffic_per_iteration", p.traffic_per_iteration.value_or(0)}};
}

// A requeued job may still have its last allocation.
bool is_placed(const job_status& j) {
  return j.state != job_state::waiting && !j.where.empty();
}

json job_document(const query_reply& r, const job_status& j) {
  json where = json::array();
  for (const auto& share : j.where)
    if (is_placed(j) && share.node < r.nodes.size())
      where.push_back({{"node", r.nodes[share.node].name},
                       {"gpu", r.nodes[share.node].gpu_type},
                       {"gpus", share.gpus}});
  const bool waits = j.state == job_state::waiting;
  json d{{"job", j.job},
         {"name", j.name},
         {"state", to_string(j.state)},
         {"submitted_s", j.submitted_s},
         {"started_s", time_of(j.started_s)},
         {"ended_s", time_of(j.ended_s)},
         {"waited_s", waits ? json(std::max(0.0, r.now_s - j.submitted_s)) : json()},
         {"attempts", j.progress.attempts},
         {"out_of_memory", j.history.out_of_memory},
         {"plan", is_placed(j) ? plan_document(j.how) : json()},
         {"groups", is_placed(j) && j.groups ? json(*j.groups) : json::array()},
         {"allocation", where},
         {"iterations_done", j.progress.iterations_done},
         {"predicted_bytes", bytes_of(j.predicted_bytes)},
         {"peak_bytes", bytes_of(j.peak_bytes)},
         {"detail", j.detail},
         {"owner", j.owner},
         {"waiting_reason", text_or_null(j.waiting_reason)},
         {"model", text_or_null(j.model)},
         {"command", j.command},
         {"priority", j.priority},
         {"exit_code", known(j.exit_code)},
         {"failed_rank", known(j.failed_rank)},
         {"failed_node", known(j.failed_node)},
         {"ended_ranks", j.ended_ranks.value_or(std::vector<std::uint32_t>{})},
         // A program that reports no progress has no iteration; a training begins with 0.
         {"iteration", j.iteration == 0 && has_processes(j) ? json() : json(j.iteration)},
         {"iterations", j.iterations},
         {"loss", known(j.loss)},
         {"evaluation", evaluation_document(j.held_out)},
         {"tokens_per_s", known(j.tokens_per_s)},
         {"eta_s", known(j.eta_s)},
         {"merged_with", j.merged_with.value_or(std::vector<job_id>{})},
         {"lease", known(j.lease)},
         {"follows", known(j.follows)}};
  add_elastic(d, j.elastic);
  add_ends(d, r.nodes, j);
  return d;
}

/// The attempts have no numbers: the list ends with the last one that is over.
void add_ends(json& job, const std::vector<node_status>& nodes, const job_status& j) {
  job["why"] = j.why ? json(to_string(*j.why)) : json();
  job["retried"] = j.progress.retried;
  job["retry_in_s"] = known(j.retry_in_s);
  auto& all = job["ends"] = json::array();
  if (!j.ends) return;
  const bool runs = j.state == job_state::running || j.state == job_state::stopping;
  auto attempt =
      j.progress.attempts - (runs && j.progress.attempts > 0 ? 1 : 0) -
      std::min<std::uint32_t>(j.progress.attempts, static_cast<std::uint32_t>(j.ends->size()));
  for (const auto& e : *j.ends) {
    const bool by_signal = e.why == end_word::signal && e.exit_code && *e.exit_code > 128;
    all.push_back({{"attempt", ++attempt},
                   {"why", to_string(e.why)},
                   {"node", e.node && *e.node < nodes.size() ? json(nodes[*e.node].name) : json()},
                   {"rank", known(e.rank)},
                   {"exit_code", known(e.exit_code)},
                   {"signal", by_signal ? json(*e.exit_code - 128) : json()},
                   {"started_s", e.started_s},
                   {"ended_s", e.ended_s},
                   {"gpu_s", e.gpu_s}});
  }
}

json task_kinds_document() {
  constexpr const char* numbers[] = {nullptr, "micro-batch", "prompt"};
  json all = json::array();
  for (const auto& kind : task_kinds) {
    const auto* number = numbers[static_cast<std::size_t>(kind.number)];
    all.push_back({{"what", kind.name},
                   {"on_device", kind.on_device},
                   {"number", number ? json(number) : json()}});
  }
  return all;
}

json explanation_document(const explanation& e) {
  json d{{"job", e.job.job},
         {"name", e.job.name},
         {"state", to_string(e.job.state)},
         {"reason", e.summary},
         {"why", e.job.why ? json(to_string(*e.job.why)) : json()},
         {"failed_rank", known(e.job.failed_rank)},
         {"failed_node", known(e.job.failed_node)},
         {"metric", e.metric},
         {"placement", e.placement},
         {"guesses", e.guesses.value_or(std::vector<std::string>{})},
         {"plans", json::array()},
         {"memory", json::array()}};
  for (const auto& p : e.plans) {
    auto plan = plan_document(p.what);
    plan["chosen"] = p.chosen;
    plan["gpu_types"] = p.gpu_types;
    plan["verdict"] = p.verdict;
    plan["metric"] = p.metric;
    d["plans"].push_back(std::move(plan));
  }
  for (const auto& m : e.memory)
    d["memory"].push_back({{"plan", plan_document(m.what)},
                           {"predicted_bytes", bytes_of(m.predicted_bytes)},
                           {"peak_bytes", bytes_of(m.peak_bytes)},
                           {"out_of_memory", m.out_of_memory}});
  if (e.merge)
    d["merge"] = {{"kind", e.merge->kind},
                  {"with", e.merge->with},
                  {"similarity", known(e.merge->similarity)},
                  {"duration_ratio", known(e.merge->duration_ratio)},
                  {"why_not", text_or_null(e.merge->why_not)}};
  else
    d["merge"] = nullptr;
  d["follows"] = known(e.follows);
  return d;
}

}  // namespace troupe::web
