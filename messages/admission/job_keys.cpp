#include "messages/admission/job_keys.hpp"

#include <cmath>

#include <fmt/format.h>

#include "messages/admission/limits.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/domain/job_union.hpp"
#include "messages/domain/schedules.hpp"

namespace troupe::admission {

namespace {

// Each row is the whole of a key: its name in files, the field, the valid values, and which jobs
// have it. Readers, the controller's check and `troupe check` use the same rows, so that a file
// that is read is also admitted. Rows without a field have a reader and a check of their own.
constexpr range positive{0, max_seconds, true};
constexpr range share{0, 1};
constexpr double max_count = 1'000'000'000;
constexpr double max_seed = 1e12;

constexpr key_use required{.required = true};
constexpr key_use served{.served = true};
constexpr key_use required_if(bool condition) {
  return {.required = condition};
}

/// At least one, at most `high`.
constexpr range up_to(double high) {
  return {1, high};
}
constexpr range above_0(double high) {
  return {0, high, true};
}

/// "1000" for 1000, "0.5" for 0.5, "100,000,000" for 1e8.
// Whole numbers in full: a bound rounded for display could be refused itself.
std::string plain(double x) {
  if (x != std::floor(x) || std::abs(x) > 1e15) return fmt::format("{:g}", x);
  const auto digits = fmt::format("{:.0f}", std::abs(x));
  std::string out = x < 0 ? "-" : "";
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && digits.size() > 4 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

}  // namespace

std::string expected_number(range r, std::string_view what) {
  const bool open = r.high >= 1e15;
  if (r.above_low && r.low == 0 && open) return fmt::format("{} above 0", what);
  if (open) return fmt::format("{} of at least {}", what, plain(r.low));
  return fmt::format("{} {} {} to {}", what, r.above_low ? "above" : "from", plain(r.low),
                     plain(r.high));
}

// A job without work (slots, serve) has no model or iterations to require. Built at each call, as
// what is required depends on the job.
key_table<job_spec> job_keys(bool has_work) {
  using t = job_spec;
  return {
      {"name", key_use{true, true}},
      {"serve", served},
      {"model", required_if(has_work)},
      {"command"},
      {"elastic"},
      {"global_batch", &t::global_batch, up_to(max_batch), required_if(has_work)},
      {"iterations", &t::iterations, up_to(max_iterations), required_if(has_work)},
      {"microbatches", &t::microbatches, up_to(max_batch)},
      {"slo_s", in(&t::limits, &job_limits::slo_s), positive},
      {"deadline_s", in(&t::limits, &job_limits::deadline_s), positive},
      {"time_limit_s", in(&t::limits, &job_limits::time_limit_s), positive},
      {"budget", in(&t::limits, &job_limits::budget), positive},
      {"grace_s", in(&t::program, &program_work::grace_s), range{0, max_grace_s}},
      {"rank_wait_s", in(&t::program, &program_work::rank_wait_s), positive},
      {"across_datacenters", in(&t::request, &gpu_request::across_datacenters)},
      {"unequal", in(&t::request, &gpu_request::unequal)},
      {"environment"},
      {"working_directory", in(&t::program, &program_work::working_directory)},
      {"objective", &t::objective, word_list{"efficient", "fastest", "cheapest"}},
      {"kernels", &t::kernels, word_list{kernel_kinds.begin(), kernel_kinds.end()}},
      {"train"},
      {"slots"},
      {"pipeline"},
      {"priority", &t::priority, range{-max_priority, max_priority}, served},
      {"gpus", in(&t::request, &gpu_request::gpus), up_to(max_gpus), served},
      {"max_gpus", in(&t::limits, &job_limits::max_gpus), up_to(max_gpus), served},
      {"gpu_type", in(&t::request, &gpu_request::type), served},
      {"retries"},
      {"max_restarts", in(&t::limits, &job_limits::max_restarts), range{0, max_restarts}, served},
      {"dataset_card", in(&t::merging, &merge_wish::dataset_card), served},
      {"merge", in(&t::merging, &merge_wish::allowed), served},
      {"merge_kind", in(&t::merging, &merge_wish::kind),
       word_list{merge_kind_names.begin(), merge_kind_names.end()}},
      {"merge_across_owners", in(&t::merging, &merge_wish::across_owners)},
  };
}

const key_table<memory_options>& memory_keys() {
  using t = memory_options;
  static const key_table<t> rows{
      {"memory_gb", &t::gb, above_0(1e6)},
      {"optimizer", &t::optimizer, word_list{optimizers.begin(), optimizers.end()}},
      {"precision", &t::precision, word_list{precisions.begin(), precisions.end()}},
      {"activation_checkpointing", &t::checkpointing,
       word_list{checkpointings.begin(), checkpointings.end()}},
      {"micro_batch", &t::micro_batch, up_to(max_batch)},
      {"zero", &t::zero, range{0, 3}},
      {"chunked_loss", &t::chunked_loss},
      {"fsdp"},
      {"lora"},
  };
  return rows;
}

const key_table<memory_options>& lora_keys() {
  using t = memory_options;
  static const key_table<t> rows{
      {"rank", &t::lora_rank, up_to(max_lora_rank), required},
      {"targets", &t::lora_targets, word_list{lora_target_names.begin(), lora_target_names.end()}},
  };
  return rows;
}

// grace_s is the job's field, which programs that are not elastic have, too.
const key_table<elastic>& elastic_keys() {
  using t = elastic;
  static const key_table<t> rows{
      {"gpus"},
      {"types"},
      {"layouts"},
      {"grace_s"},
      {"checkpoint_every_s", &t::checkpoint_every_s, range{0, max_seconds}},
      {"retries", &t::retries, range{0, max_restarts}},
      {"start_s", &t::start_s, range{0, max_seconds}},
      {"save_s", &t::save_s, range{0, max_seconds}},
      {"rates"},
  };
  return rows;
}

const key_table<program_rate>& rate_keys() {
  using t = program_rate;
  static const key_table<t> rows{
      {"gpu", &t::gpu, required},
      {"gpus", &t::gpus, up_to(max_gpus), required},
      {"data_parallel", &t::data_parallel, up_to(max_gpus)},
      {"samples_per_s", &t::samples_per_s, above_0(max_samples_per_s), required},
  };
  return rows;
}

const key_table<training>& train_keys() {
  using t = training;
  static const key_table<t> rows{
      {"device", &t::device, device_names(&device_facts::can_train)},
      {"data", &t::data},
      {"vocabulary", &t::vocabulary},
      {"seed", &t::seed, range{0, max_seed}},
      {"learning_rate", &t::learning_rate, above_0(100)},
      {"weight_decay", &t::weight_decay, share},
      {"schedule", &t::schedule, word_list{schedule_names.begin(), schedule_names.end()}},
      {"checkpoint", &t::checkpoint},
      {"checkpoint_every", &t::checkpoint_every, up_to(max_count)},
      {"keep_checkpoints", &t::keep_checkpoints, up_to(max_count)},
      {"keep_every", &t::keep_every, up_to(max_count)},
      {"replan_every", &t::replan_every, range{0, max_count}},
      {"replan_drift", &t::replan_drift, above_0(100)},
      {"on_loss", &t::on_loss, word_list{"heal", "restart"}},
      {"profile"},
      {"target_loss", &t::target_loss, above_0(1e9)},
  };
  return rows;
}

// Keys of `train:`, beside those of train_keys().
const key_table<layer_file>& program_keys() {
  using t = layer_file;
  static const key_table<t> rows{
      {"program", &t::file, required},
      {"arguments"},
      {"python", &t::python},
      {"threads", &t::threads, up_to(max_threads)},
      {"slot_mb", &t::slot_mb, up_to(max_slot_mb)},
      {"deterministic", &t::deterministic},
      {"gradients", &t::gradients, word_list{"host", "torch"}},
  };
  return rows;
}

const key_table<slot_costs>& slot_keys() {
  using t = slot_costs;
  static const key_table<t> rows{
      {"forward", &t::forward, above_0(1e9)},
      {"recompute", &t::recompute, range{0, 1e9}},
      {"backward", &t::backward, above_0(1e9)},
      {"lan", &t::lan, range{0, 1e9}},
      {"wan", &t::wan, range{0, 1e9}},
      {"prefill_per_1k", &t::prefill_per_1k, above_0(1e9)},
  };
  return rows;
}

// A study has no model from which a planner could derive stages and micro-batches.
key_table<pipeline_wish> pipeline_keys(bool study) {
  using t = pipeline_wish;
  return {
      {"stages", &t::stages, up_to(max_stages), required_if(study)},
      {"data_parallel", &t::data_parallel, up_to(max_pipelines)},
      {"microbatches", &t::microbatches, up_to(max_pipeline_microbatches), required_if(study)},
      {"stages_per_datacenter", &t::stages_per_datacenter, up_to(max_stages)},
      {"max_in_flight", &t::max_in_flight, up_to(max_pipeline_microbatches)},
      {"connections", &t::connections, up_to(max_connections)},
      {"tensor_parallel", &t::tensor_parallel, range{0, max_tensor_parallel}},
      {"recompute"},
      {"rows", &t::rows, up_to(max_batch)},
      {"virtual_stages", &t::virtual_stages, up_to(1000)},
      {"context_parallel", &t::context_parallel, up_to(max_tensor_parallel)},
      {"overlap", &t::overlap},
      {"cut"},
      {"bubbles"},
      {"groups"},
  };
}

const key_table<chosen_group>& group_keys() {
  using t = chosen_group;
  static const key_table<t> rows{
      {"pipelines", &t::pipelines, up_to(max_pipelines), required},
      {"microbatches", &t::microbatches, up_to(max_pipeline_microbatches), required},
      {"stages"},
  };
  return rows;
}

const key_table<chosen_stage>& group_stage_keys() {
  using t = chosen_stage;
  static const key_table<t> rows{
      {"gpu", &t::gpu, required},
      {"pieces", &t::pieces, range{0, max_operators}, required},
      {"tensor_parallel", &t::tensor_parallel, up_to(max_tensor_parallel)},
      {"datacenter", &t::datacenter},
      {"held", &t::held, up_to(max_pipeline_microbatches)},
  };
  return rows;
}

const key_table<serving>& serve_keys() {
  using t = serving;
  static const key_table<t> rows{
      {"model", required},
      {"name"},
      {"random_weights"},
      {"kv_gb", &t::kv_gb, above_0(max_kv_gb)},
      {"context", &t::context, up_to(max_sequence)},
      {"max_running", &t::max_running, up_to(max_running_sequences)},
      {"max_sequences", &t::max_sequences, up_to(max_sequences)},
      {"prefill"},
      {"fallback"},
      {"ttft_s", &t::ttft_s, above_0(max_ttft_s)},
      {"threads", &t::threads, up_to(max_decoder_threads)},
      {"adapters"},
  };
  return rows;
}

const key_table<bubble_lending>& bubble_keys() {
  using t = bubble_lending;
  static const key_table<t> rows{
      {"model", required},
      {"name"},
      {"random_weights"},
      {"memory_gb", &t::memory_gb, above_0(max_kv_gb)},
      {"depth", &t::depth, up_to(max_guests)},
      {"rule", &t::rule, word_list{"whole", "look-ahead", "chunked", "resumable"}},
      {"look_ahead", &t::look_ahead, up_to(max_look_ahead)},
      {"chunk", &t::chunk, up_to(max_chunk)},
      {"op_ms", &t::op_ms, above_0(1e6)},
      {"guard_ms", &t::guard_ms, range{0, 1e6}},
      {"delay_budget", &t::delay_budget, share},
  };
  return rows;
}

key_table<model> model_keys(bool operators) {
  using t = model;
  const bool sized = !operators;
  return {
      {"name", required},
      {"family", &t::family,
       word_list{"gpt", "llama", "bert", "vit", "wide-resnet", "moe", "layers"}, required},
      {"hidden", &t::hidden, up_to(max_hidden), required_if(sized)},
      {"layers", &t::layers, up_to(max_layers), required_if(sized)},
      {"heads", &t::heads, up_to(max_heads), required_if(sized)},
      {"kv_heads", &t::kv_heads, up_to(max_heads)},
      {"head_width", &t::head_width, up_to(65'536)},
      {"intermediate", &t::intermediate, up_to(max_intermediate)},
      {"sequence", &t::sequence, up_to(max_sequence), required_if(sized)},
      {"vocabulary", &t::vocabulary, up_to(max_vocabulary), required_if(sized)},
      {"tied_head", &t::tied_head},
      {"qkv_bias", &t::qkv_bias},
      {"output_bias", &t::output_bias},
      {"mlp_bias", &t::mlp_bias},
      {"tied_parameters", &t::tied_parameters, range{0, 1e13}},
      {"needs_norm", &t::needs_norm},
      {"operators", required_if(operators)},
  };
}

std::vector<std::string> job_key_names() {
  std::vector<std::string> names;
  for (const auto& k : job_keys())
    if (k.name != "name") names.emplace_back(k.name);
  for (const auto& k : memory_keys()) names.emplace_back(k.name);
  return names;
}

}  // namespace troupe::admission
