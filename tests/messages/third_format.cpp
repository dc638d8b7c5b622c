#include "third_format.hpp"

namespace troupe::testing {
namespace {

model a_model() {
  model m;
  m.name = "gpt2";
  m.hidden = 768, m.layers = 12, m.heads = 12, m.sequence = 1024, m.vocabulary = 50257;
  return m;
}

served_model_files served() {
  return {"qwen", "/models/qwen", 7, a_model(), 0x0123456789abcdef};
}

/// Keys that every kind of work may have.
job_spec a_job(const std::string& name) {
  job_spec s;
  s.name = name;
  s.model = a_model();
  s.global_batch = 8;
  s.iterations = 1000;
  s.priority = -2;
  s.limits.max_restarts = 3;
  s.limits.required_gpu_type = s.request.type = "A100-40GB";
  return s;
}

job_spec simulated() {
  auto s = a_job("simulated");
  s.microbatches = 4;
  s.limits.slo_s = 3600.5;
  s.limits.deadline_s = 7200.0;
  s.limits.budget = 12.25;
  s.request.gpus = 4;
  s.limits.max_gpus = 8;
  s.merging.dataset_card = {"news", "english"};
  s.merging.allowed = false;
  s.objective = "cheapest";
  s.kernels = "flash";
  s.memory = memory_options{0, "adamw", "bf16", 2, "selective", 16, "attention", 1, true};
  s.limits.time_limit_s = 86400.0;
  s.merging.kind = merge_kind::adapters;
  s.merging.across_owners = true;
  return s;
}

job_spec pipelines() {
  auto s = a_job("pipelines");
  auto& w = s.pipeline;
  w.stages = 4, w.data_parallel = 2, w.microbatches = 8, w.stages_per_datacenter = 2;
  w.max_in_flight = 3, w.connections = 8, w.tensor_parallel = 2, w.recompute = false;
  w.virtual_stages = 2, w.context_parallel = 2, w.overlap = true;
  return s;
}

job_spec program() {
  auto s = a_job("program");
  s.program.command = {"python3", "train.py", "--seed", "1"};
  s.program.environment = {{"SEED", "1"}, {"MODE", "fast"}};
  s.program.working_directory = "/home/user";
  s.request.gpus = 6;
  s.request.exact = true;
  s.assumed.model = true;
  s.program.grace_s = 45.0;
  s.program.rank_wait_s = 90.0;
  s.request.across_datacenters = true;
  s.request.unequal = true;
  s.program.retries = retry_rule{2, 5, 60, {end_word::exit, end_word::signal}, {2, 3}};
  s.assumed.iterations = false;
  s.assumed.batch = true;
  return s;
}

job_spec elastic_program() {
  auto s = a_job("elastic");
  s.program.command = {"python3", "-m", "troupe.run", "train.py"};
  s.program.elastic = elastic{false, 2, 8,    true, {"A100-40GB", "T4"}, true,
                              300,   4, 12.5, 3.5,  {{"T4", 4, 2, 31.5}}};
  return s;
}

job_spec layers() {
  auto s = a_job("layers");
  s.train.emplace();
  auto& t = *s.train;
  t.data = "/data/text";
  t.vocabulary = "/data/gpt2";
  t.seed = 9, t.learning_rate = 1e-3, t.weight_decay = 0.01;
  t.schedule = "megatron", t.checkpoint = "/checkpoints", t.checkpoint_every = 20;
  t.device = "cpu";
  stage_costs costs;
  costs.forward_s = 0.5, costs.backward_s = 1, costs.activation_bytes = 4096, costs.norms_s = 0.25;
  t.costs = {costs};
  t.timeline = "/tmp/timeline", t.replan_every = 10, t.replan_drift = 0.5, t.keep_checkpoints = 2;
  t.program = layer_file{
      "/programs/gpt.py", "00ff", "{\"width\": 64}", "python3.11", 2, 512, true, "torch"};
  s.pipeline.stages = 2;
  s.pipeline.rows = 2;
  s.pipeline.cut = {6, 6};
  s.pipeline.recompute_layers = true;
  bubble_lending bubbles;
  bubbles.model = served();
  bubbles.memory_gb = 2, bubbles.depth = 1, bubbles.op_ms = 1.5;
  s.pipeline.bubbles = bubbles;
  return s;
}

job_spec study() {
  auto s = a_job("study");
  s.model = {};
  s.slots = slot_costs{1, 1, 2, 0.5, 3, 0.75};
  s.pipeline.stages = 4;
  s.pipeline.microbatches = 16;
  return s;
}

job_spec decoder() {
  auto s = a_job("decoder");
  s.serve = serving{served(), 2.5, 2048, 32, 128, false, false, 1.5, 4};
  return s;
}

plan a_plan() {
  return {2, 4, 1, 36.75e9, 1.5, 8.0, {0, 2}, false, 8, 2, {{0, 12, 4, {}, 36.75e9}}};
}

job_accepted accepted(job_id id, job_spec spec) {
  return {id, 0x0123456789abcdef + id, 12.0 + static_cast<double>(id), std::move(spec), "anna", {}};
}

lease_granted granted() {
  return {5,     1, 12.5, a_plan(), 36.75e9, 0.25, 30, true, {{1, 7, {0, 1}}, {4, 9, {2, 3}}},
          29500, 4};
}

job_kept kept() {
  job_kept k;
  k.job = 4;
  k.request = 99;
  k.spec = elastic_program();
  k.state = job_state::running;
  k.submitted_s = 1, k.started_s = 2, k.ended_s = 3;
  k.progress.attempts = 4, k.history = {2, 1.5, 20e9, 4, 40e9, true};
  k.progress.iterations_done = 70, k.lease = 5, k.how = a_plan(), k.where = {{1, 2}, {4, 2}};
  k.predicted_bytes = 30e9, k.peak_bytes = 31e9;
  k.memory = {{a_plan(), 30e9, 40e9, true}};
  k.detail = "node b restarted";
  k.closed = lease_outcome::lost;
  k.owner = "anna";
  k.progress.losses = 1;
  k.lost_parts = {{1, 7, {0, 1}}};
  k.lost_succeeded = {0};
  k.exit_code = 137;
  k.tries = {{3, {1}, attempt_end{end_word::lost_node, 2, 3, 4, 1, 2, 137}}, {5, {1, 4}, {}}};
  k.suspended = true;
  k.suspensions = {11, 12};
  k.failed_rank = 1;
  k.progress.ran_s = 500;
  k.members = job_union{merge_kind::adapters, {2, 3}, {{100, 4}, {50, 8}}};
  k.in = 6;
  k.elastic =
      elastic_record{{{10, 11}, {2, 3}, {{"T4", 4, 2, 31.5}}}, 4, 2, 1, "T4", 2, 30, 90, 15};
  k.word = end_word::lost_node;
  k.progress.retried = 1;
  k.not_before_s = 700;
  return k;
}

lease_kept lease() {
  lease_kept l;
  l.granted = granted();
  l.revoked = true;
  l.outcome = lease_outcome::preempted;
  l.detail = "its policy stops it";
  l.ended = {1};
  l.iterations = 40, l.peak_bytes = 31e9;
  l.succeeded = {1};
  l.exit_code = 0;
  l.failed_part = 0;
  l.program = program_end{40, true, 12.5, 0.25, 41};
  l.ended_with_zero = std::vector<std::uint32_t>{1};
  l.grace_s = 30, l.revoked_s = 600, l.saved = 35;
  l.word = end_word::preempted;
  l.rank = 2;
  return l;
}

training_report report() {
  training_report r;
  r.lease = 5, r.job = 1, r.sequence = 6;
  r.schedule = "megatron", r.device = "cpu";
  r.stages = 2, r.pipelines = 2, r.microbatches = 4;
  r.tokens_per_s = 1234.5, r.max_in_flight = {2, 1}, r.saved = 40, r.planned_s = 0.5;
  r.events = {"resumed from iteration 40"};
  return r;
}

}  // namespace

std::vector<job_spec> jobs_of_third_format() {
  return {simulated(), pipelines(), program(), elastic_program(), layers(), study(), decoder()};
}

std::vector<std::pair<std::string, journal_entry>> entries_of_third_format() {
  std::vector<std::pair<std::string, journal_entry>> all;
  all.emplace_back("epoch_begun", epoch_begun{2, 1.5, 77, 5, clock_reading{1.5, 100.25, 3}});
  job_id id = 0;
  for (auto& spec : jobs_of_third_format()) {
    const auto name = "job_accepted " + spec.name;
    all.emplace_back(name, accepted(++id, std::move(spec)));
  }
  auto of_union = accepted(++id, simulated());
  of_union.members = job_union{merge_kind::shared, {1, 2}, {{100, 4}, {50, 8}}};
  all.emplace_back("job_accepted union", of_union);
  all.emplace_back("lease_granted", granted());
  all.emplace_back("lease_revoked", lease_revoked{5, 20, lease_outcome::preempted, "moved", 30, 1,
                                                  17, end_word::preempted});
  all.emplace_back("part_ended",
                   part_ended{5, 1, 14, lease_outcome::failed, 40, 31e9, "no python3", 127,
                              program_end{40, false, 12.5, 0.25, 41}, end_word::exit, 2});
  all.emplace_back("job_ended", job_ended{1, 21, job_state::failed, "no python3", end_word::exit});
  all.emplace_back("training_progress", training_progress{report()});
  all.emplace_back("jobs_forgotten", jobs_forgotten{{1, 2}});
  all.emplace_back("snapshot_begun",
                   snapshot_begun{{1, 2}, 77, 9, 6, clock_reading{1.5, 100.25, 3}, 22.5});
  all.emplace_back("job_kept", kept());
  all.emplace_back("lease_kept", lease());
  all.emplace_back("job_suspended", job_suspended{1, 22, true, "anna", 18});
  all.emplace_back("cluster_changed", cluster_changed{{}, 23, 30, 0xfedcba9876543210});
  all.emplace_back("node_drained", node_drained{1, 24, true, true, "anna"});
  all.emplace_back("member_ended", member_ended{2, 25, lease_outcome::cancelled, 10, "cancelled",
                                                end_word::cancelled});
  all.emplace_back("program_saved", program_saved{5, 35});
  return all;
}

}  // namespace troupe::testing
