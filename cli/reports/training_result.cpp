#include "cli/reports/training_result.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>

#include "cli/output/human.hpp"
#include "cli/reports/training_figures.hpp"
#include "gpu/examples/tuning_rows.hpp"
#include "messages/base/folds.hpp"
#include "messages/base/statistics.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/domain/job_union.hpp"
#include "messages/domain/work_kind.hpp"

namespace troupe::cli {

namespace {

json costs_document(const stage_costs& k) {
  json d{{"forward_s", k.forward_s},           {"recompute_s", k.recompute_s},
         {"backward_s", k.backward_s},         {"update_s", k.update_s},
         {"gradients_s", k.gradients_s},       {"wan_s", k.wan_s},
         {"handling_s", k.handling_s},         {"activation_bytes", k.activation_bytes},
         {"gradient_bytes", k.gradient_bytes}, {"tied_bytes", k.tied_bytes}};
  if (k.norms_s) d["norms_s"] = *k.norms_s;
  return d;
}

/// The means of each value that the program's loss gives, by iteration; null: it gave none.
json values_document(const training_report& r) {
  json all = json::object();
  for (std::size_t i = 0; i < r.iterations.size(); ++i) {
    if (!r.iterations[i].program) continue;
    for (const auto& v : r.iterations[i].program->values) {
      auto& means = all[v.name];
      while (means.size() < i) means.push_back(nullptr);
      means.push_back(v.sum / v.weight);
    }
  }
  for (auto& means : all)
    while (means.size() < r.iterations.size()) means.push_back(nullptr);
  return all;
}

/// A model folder's training: its base, its adapter, and the losses of held-out samples.
void add_tuning(json& d, const training_result& t) {
  const auto read = gpu::tuning_of(*t.job.train->program);
  if (!read || !*read) return;
  const auto& u = **read;
  d["base"] = {{"folder", u.base}, {"hash", fmt::format("{:016x}", u.hash)}};
  d["adapter"] = json();
  if (u.adapter_rank > 0)
    d["adapter"] = {{"rank", u.adapter_rank},
                    {"alpha", u.adapter_alpha},
                    {"targets", u.adapter_targets},
                    {"rslora", u.adapter_rslora}};
  json all = json::array(), best;
  for (const auto& i : t.report.iterations) {
    if (!i.program) continue;
    for (const auto& v : i.program->values) {
      if (v.name != "held_out_loss" || !(v.weight > 0)) continue;
      all.push_back({{"iteration", i.iteration}, {"loss", v.sum / v.weight}});
      if (best.is_null() || all.back().at("loss") < best.at("loss")) best = all.back();
    }
  }
  d["evaluations"] = std::move(all);
  d["best"] = std::move(best);
}

void add_program(json& d, const training_result& t) {
  const auto& p = *t.report.program;
  d["engine"] = p.engine;
  d["worker_ready_s"] = p.worker_ready_s;
  d["values"] = values_document(t.report);
  d["skipped_updates"] = p.skipped_updates;
  d["peak_bytes"] = p.peak_bytes;
  d["predicted_bytes"] = t.predicted_bytes > 0 ? json(std::llround(t.predicted_bytes)) : json();
  if (t.job.train && t.job.train->program) add_tuning(d, t);
}

/// Samples of all pipelines a second; 0: no iteration has been seen.
double samples_per_s(const training_result& t) {
  const double mean = mean_iteration_s(t.report);
  return mean > 0 ? static_cast<double>(t.job.global_batch) / mean : 0;
}

/// "16,867 tokens/s"; of a model whose samples have no tokens, "152 samples/s".
std::string rate_text(const training_result& t) {
  if (t.report.tokens_per_s > 0) return grouped(std::llround(t.report.tokens_per_s)) + " tokens/s";
  const double rate = samples_per_s(t);
  return (rate < 99.5 ? fmt::format("{:.3g}", rate) : grouped(std::llround(rate))) + " samples/s";
}

std::string program_text(const training_result& t) {
  const auto& p = *t.report.program;
  auto text = fmt::format("{}, workers ready after {}; peak memory by stage {}",
                          printable(p.engine), duration_text(p.worker_ready_s),
                          fmt::join(mapped(p.peak_bytes,
                                           [](auto bytes) {
                                             return bytes > 0
                                                        ? size_text(static_cast<double>(bytes))
                                                        : std::string{"unknown"};
                                           }),
                                    ", "));
  // On a CPU the operating system counts the whole process, whose libraries are the larger part of
  // a small model.
  const bool of_process = facts_of_device(t.report.device).is_host_core;
  if (of_process) text += ", PyTorch's own included";
  if (t.predicted_bytes > 0)
    text += fmt::format("; predicted {} at most{}", size_text(t.predicted_bytes),
                        of_process ? " for the model alone" : "");
  text += "\n";
  if (p.skipped_updates > 0)
    text += fmt::format("{} skipped, as the norm was not finite\n",
                        counted(p.skipped_updates, "update"));
  return text;
}

}  // namespace

json document_of(const training_result& t) {
  const auto& r = t.report;
  json losses = json::array(), norms = json::array(), stages = json::array();
  for (const auto& i : r.iterations) {
    losses.push_back(i.loss);
    norms.push_back(i.gradient_norm);
  }
  for (const auto& k : r.measured) stages.push_back(costs_document(k));
  const auto all = iteration_lengths_s(r);
  const double mean = mean_iteration_s(r), used = utilization(r);
  json d{{"world", t.world},
         {"job", t.job.name},
         {"schedule", r.schedule},
         {"device", r.device},
         {"stages_count", r.stages},
         {"data_parallel", r.pipelines},
         {"tensor_parallel", r.tensor_parallel},
         {"microbatches", r.microbatches},
         {"iterations", r.iterations.size()},
         {"iteration_s",
          {{"mean", mean},
           {"p50", statistics::quantile(all, 0.5)},
           {"p99", statistics::quantile(all, 0.99)}}},
         {"planned_iteration_s", r.planned_s}};
  // A slot lasts a second, so that the same figure can be compared with the paper's diagrams.
  const bool slots = !facts_of(t.job).has_model;
  if (slots) d["slots"] = mean;
  if (r.lower_bound_s > 0) d["lower_bound"] = r.lower_bound_s;
  // A simulated device computes nothing, so it has no losses.
  if (!slots && !is_simulated(r.device)) {
    d["losses"] = losses;
    d["gradient_norms"] = norms;
  } else {
    d["losses"] = json::array();
  }
  d["tokens_per_s"] = slots ? 0 : r.tokens_per_s;
  d["samples_per_s"] = slots ? 0 : samples_per_s(t);
  d["gpu_utilization"] = used;
  d["bubble_fraction"] = 1 - used;
  d["wan_bytes"] = r.wan_bytes;
  d["wan_utilization"] = r.wan_utilization;
  d["peak_activation_microbatches"] = r.max_in_flight;
  d["stages"] = stages;
  d["events"] = r.events;
  d["fingerprint"] = t.fingerprint ? json(fmt::format("{:016x}", t.fingerprint)) : json();
  d["wall_s"] = t.wall_s;
  if (r.heals)
    d["heals"] = {{"count", r.heals->count},
                  {"stages", r.heals->lost},
                  {"seconds", r.heals->seconds},
                  {"repeated", r.heals->repeated},
                  {"joined", r.heals->joined.value_or(0)}};
  if (r.program) add_program(d, t);
  if (t.prefills) d["prefill"] = document_of(*t.prefills, t.job, r);
  if (t.members.empty()) return d;
  d["merged"] = to_string(merge_kind::adapters);
  d["members"] = json::array();
  for (const auto& m : t.members)
    d["members"].push_back({{"job", m.name},
                            {"losses", json::array()},
                            {"evaluations", json::array()},
                            {"iterations", r.iterations.size()},
                            {"state", to_string(job_state::finished)},
                            {"checkpoint", nullptr}});
  return d;
}

std::string text_of(const training_result& t) {
  const auto& r = t.report;
  const bool slots = !facts_of(t.job).has_model;
  const auto time = [&](double x) {
    return slots ? fmt::format("{:.6g} slot{}", x, x == 1 ? "" : "s") : duration_text(x);
  };
  std::string text = fmt::format(
      "{}: {} x {}{}, {}, schedule {}, device {}{}\n", t.job.name, counted(r.stages, "stage"),
      counted(r.pipelines, "pipeline"),
      r.tensor_parallel > 1 ? fmt::format(" x {}", counted(r.tensor_parallel, "GPU")) : "",
      r.microbatches == 1 ? "1 micro-batch" : grouped(r.microbatches) + " micro-batches",
      r.schedule, r.device, is_simulated(r.device) ? " (simulated)" : "");
  if (!t.members.empty())
    text += fmt::format("merged: {}\n",
                        fmt::join(mapped(t.members, [](const auto& m) { return m.name; }), ", "));
  const auto all = iteration_lengths_s(r);
  const auto n = r.iterations.size();
  text +=
      // Quantiles of a single iteration would repeat it.
      n == 1 ? fmt::format("1 iteration of {}\n", time(mean_iteration_s(r)))
             : fmt::format("{}, each {} (median {}, 99th percentile {})\n", counted(n, "iteration"),
                           time(mean_iteration_s(r)), time(statistics::quantile(all, 0.5)),
                           time(statistics::quantile(all, 0.99)));
  if (r.lower_bound_s > 0)
    text +=
        fmt::format("{}lower bound for any schedule: {}\n",
                    is_simulated(r.device) ? "" : "from measured times, ", time(r.lower_bound_s));
  text += fmt::format("devices busy {:.1f} % of the time", 100 * utilization(r));
  if (slots)
    text += "\n";  // bytes and rates of slot jobs are artificial
  else
    text += fmt::format("; {} sent over the WAN, {:.1f} % of its capacity\n",
                        size_text(static_cast<double>(r.wan_bytes)), 100 * r.wan_utilization);
  if (!slots) text += rate_text(t) + "\n";
  if (!is_simulated(r.device) && n > 0)
    text += fmt::format("loss {:.4f} at first, {:.4f} at the end\n", r.iterations.front().loss,
                        r.iterations.back().loss);
  if (r.heals)
    text += fmt::format("healed {} in {:.3g} s: {} taken over, {} back\n",
                        counted(r.heals->count, "time"), r.heals->seconds,
                        counted(r.heals->lost, "stage"),
                        counted(r.heals->joined.value_or(0), "device"));
  if (r.program) text += program_text(t);
  for (const auto& sentence : r.events) text += printable(sentence) + "\n";
  if (t.prefills) text += text_of(*t.prefills, t.job, r);
  return text;
}

// Measured costs of a run make the next plan of the same training, so a document of another
// version, or of another verb, must not be read as zeros.
expected<std::vector<stage_costs>> load_costs(const std::string& file) {
  const auto failure = [&](const std::string& what) {
    return refuse(reason::kind::invalid,
                  fmt::format("{}: {}; expected the output of `troupe train --json`", file, what));
  };
  std::ifstream in{file};
  if (!in) return failure("cannot be read");
  const auto d = json::parse(in, nullptr, false);
  if (!d.is_object() || !d.contains("stages") || !d["stages"].is_array())
    return failure("has no list 'stages'");
  std::vector<stage_costs> result;
  for (const auto& s : d["stages"]) {
    const auto number = [&](const char* key) {
      // -1 stands for "missing": costs are never negative.
      return s.is_object() && s.contains(key) && s[key].is_number() ? s[key].get<double>() : -1;
    };
    stage_costs k;
    k.forward_s = number("forward_s");
    k.recompute_s = number("recompute_s");
    k.backward_s = number("backward_s");
    k.update_s = number("update_s");
    k.gradients_s = number("gradients_s");
    k.handling_s = number("handling_s");
    const double activation = number("activation_bytes"), gradient = number("gradient_bytes"),
                 tied = number("tied_bytes");
    if (std::min({k.forward_s, k.recompute_s, k.backward_s, k.update_s, k.gradients_s, k.handling_s,
                  activation, gradient, tied}) < 0)
      return failure("a stage lacks one of its costs");
    if (const double norms = number("norms_s"); norms >= 0) k.norms_s = norms;
    k.activation_bytes = static_cast<std::uint64_t>(activation);
    k.gradient_bytes = static_cast<std::uint64_t>(gradient);
    k.tied_bytes = static_cast<std::uint64_t>(tied);
    result.push_back(k);
  }
  return result;
}

}  // namespace troupe::cli
