#include "planners/model/job_memory.hpp"

#include <algorithm>
#include <vector>

#include "messages/domain/work_kind.hpp"
#include "planners/model/declared_memory.hpp"
#include "planners/model/engine_memory.hpp"
#include "planners/model/model_chain.hpp"

namespace troupe::planners {

namespace {

/// Bytes of the activations of one sample: those that stay for every micro-batch in flight, and
/// those that exist beside them for the micro-batch whose backward runs.
struct kept_activations {
  double in_flight = 0, at_work = 0;
};

/// The formulas are of half precision.
double precision_of(const job_spec& job) {
  return has_program_layers(job.model) || (job.memory && is_single(*job.memory)) ? 2 : 1;
}

std::uint32_t attentions_of(const stage_part& p) {
  return (p.first + p.count + 1) / 2 - (p.first + 1) / 2;
}

/// Activations of all of the stage. A model of operators keeps their outputs, whatever its kernels.
double whole_bytes(const job_spec& job, const stage_part& p) {
  if (!job.model.operators.empty()) return p.activation_bytes;
  if (job.memory) {
    const double t = p.tensor_parallel, attentions = attentions_of(p);
    const auto a = sublayer_of(job, true), b = sublayer_of(job, false);
    return attentions * (a.kept.for_one_of(t) + a.matrices / t) +
           (p.count - attentions) * b.kept.for_one_of(t);
  }
  const kept_by_number each = kept_by_kernels(job), marp;
  return p.activation_bytes + (each.stream - marp.stream) * p.kernels.stream +
         (each.matrix - marp.matrix) * p.kernels.matrices / p.tensor_parallel;
}

/// Layers of a program that are computed again together: one, or several that share a parameter.
struct layer_group {
  double input_bytes = 0, kept_bytes = 0;  // of a sample, as of half precision
};

/// The first layer's input, the data, is small and not described.
std::vector<layer_group> groups_of(const model& m, const stage_part& p) {
  constexpr double width = 0.5;  // they are measured in single precision
  std::vector<layer_group> all;
  for (auto i = p.first; i < p.first + p.count && i < m.operators.size(); ++i) {
    const auto& op = m.operators[i];
    if (all.empty() || !op.glued)
      all.push_back({i > 0 ? width * m.operators[i - 1].output_bytes : 0, 0});
    all.back().kept_bytes += width * op.kept_bytes;
  }
  return all;
}

/// A stage that begins with an MLP has a whole layer behind it from three sublayers on.
bool has_whole_layer(const stage_part& p) {
  return p.count >= 2 + p.first % 2;
}

/// Activations of the largest layer of the stage, or of the part of it that is there.
double bytes_of_one_layer(const job_spec& job, const stage_part& p) {
  const auto& m = job.model;
  if (has_program_layers(m)) {
    double largest = 0;
    for (const auto& g : groups_of(m, p)) largest = std::max(largest, g.kept_bytes);
    return largest;
  }
  if (!m.operators.empty()) {
    double largest = 0;
    for (auto i = p.first; i < p.first + p.count && i < m.operators.size(); ++i)
      largest = std::max(largest, m.operators[i].output_bytes);
    return largest;
  }
  const double t = p.tensor_parallel;
  if (job.memory) {
    const auto a = sublayer_of(job, true), b = sublayer_of(job, false);
    const double attention = a.kept.for_one_of(t) + a.matrices / t,
                 mlp = b.kept.for_one_of(t) + b.gradients.for_one_of(t);
    if (has_whole_layer(p)) return attention + mlp;
    const auto attentions = attentions_of(p);
    return std::max(attentions > 0 ? attention + a.gradients.for_one_of(t) : 0,
                    p.count > attentions ? mlp : 0);
  }
  const kept_by_number each = kept_by_kernels(job), marp;
  const double s = m.sequence, h = m.hidden;
  const double stream = (each.stream - marp.stream) * s * h;
  const double matrix = (each.matrix - marp.matrix) * m.heads * s * s / t;
  const double attention = kept_of_sublayer(m, true).for_one_of(t) + stream + matrix;
  const double mlp = kept_of_sublayer(m, false).for_one_of(t) + stream;
  const auto attentions = attentions_of(p), mlps = p.count - attentions;
  if (has_whole_layer(p)) return attention + mlp;
  return std::max(attentions > 0 ? attention : 0, mlps > 0 ? mlp : 0);
}

/// The inputs of the stage's layers. Where an MLP comes first, its input is its layer's.
double layer_inputs(const job_spec& job, const stage_part& p) {
  if (has_program_layers(job.model)) {
    double all = 0;
    for (const auto& g : groups_of(job.model, p)) all += g.input_bytes;
    return all;
  }
  if (!job.model.operators.empty()) return p.activation_bytes;
  return 2.0 * job.model.sequence * job.model.hidden * (attentions_of(p) + p.first % 2);
}

/// The load decides between keeping all and recomputing a stage; recomputing layers, and the memory
/// keys of a program, are decided by the job.
recomputation recomputation_in(const job_spec& job, const stage_load& load) {
  const auto how = recomputation_of(job);
  if (how == recomputation::layers || job.memory) return how;
  return load.recompute ? recomputation::stages : recomputation::none;
}

kept_activations kept_by(const job_spec& job, const stage_part& p, recomputation how) {
  switch (how) {
    case recomputation::stages:
      return {p.output_bytes, whole_bytes(job, p)};  // an input is as large as an output
    case recomputation::layers:
      return {layer_inputs(job, p), bytes_of_one_layer(job, p)};
    default:
      break;
  }
  const double all = whole_bytes(job, p);
  if (!job.memory || job.memory->checkpointing != "selective") return {all, 0};
  // One layer's matrices are computed again at a time.
  const double matrices = kept_by_kernels(job).matrix * p.kernels.matrices / p.tensor_parallel;
  return {all - matrices, attentions_of(p) > 0 ? matrices / attentions_of(p) : 0};
}

bool names_its_memory(const job_spec& job) {
  return job.memory && job.memory->gb > 0;
}

}  // namespace

recomputation recomputation_of(const job_spec& job) {
  if (recomputes_layers(job.pipeline)) return recomputation::layers;
  if (job.memory)  // the program's declaration
    return job.memory->checkpointing == "full" ? recomputation::layers : recomputation::none;
  return job.pipeline.recompute ? recomputation::stages : recomputation::none;
}

bool divides_words(const job_spec& job) {
  return facts_of(job).brings_layout || job.memory.has_value();
}

namespace {

/// Weights and gradients are in single precision; the optimizer's state was measured.
memory_parts states_of_layers(const stage_part& p) {
  auto parts = states_of({4, 4, 0}, p.parameters);
  parts.optimizer = p.state_bytes;
  return parts;
}

}  // namespace

memory_parts memory_of(const job_spec& job, const stage_part& p, const stage_load& load) {
  if (facts_of(job).on_engine) return engine_memory(job.model, p, load);
  auto parts = has_program_layers(job.model) ? states_of_layers(p)
               : job.memory                  ? program_stage_memory(job, p, load)
                                             : states_of(marp_states, p.parameters);
  const auto how = recomputation_in(job, load);
  const auto kept = kept_by(job, p, how);
  const double rows = precision_of(job) * load.rows * share_of_tokens(job), held = load.held;
  const bool recomputes = how != recomputation::none;
  (recomputes ? parts.inputs : parts.activations) = rows * held * kept.in_flight;
  parts.activations += rows * kept.at_work;
  return parts;
}

double stage_bytes(const job_spec& job, const stage_part& p, const stage_load& load,
                   double headroom) {
  if (names_its_memory(job)) return job.memory->gb * bytes_per_gb;
  return memory_of(job, p, load).total() * (1 + headroom);
}

double bytes_of_pieces(const job_spec& job, const stage_part& p, const stage_load& load) {
  if (facts_of(job).on_engine) return engine_bytes_of_pieces(job.model, p, load);
  if (names_its_memory(job)) return 0;
  auto parts = memory_of(job, p, load);
  parts.context = 0;
  const auto how = recomputation_in(job, load);
  if (how == recomputation::stages) parts.inputs = 0;
  if (how == recomputation::layers) parts.activations = 0;
  return parts.total();
}

double bytes_of_any_stage(const job_spec& job, const stage_part& p, const stage_load& load) {
  if (facts_of(job).on_engine) return engine_bytes_of_any_stage(job.model, p, load);
  if (names_its_memory(job)) return job.memory->gb * bytes_per_gb;
  const double rows = precision_of(job) * load.rows * share_of_tokens(job);
  const double context = job.memory ? cuda_context_bytes : 0;
  const auto how = recomputation_in(job, load);
  if (how == recomputation::stages) return context + rows * load.held * p.output_bytes;
  if (how == recomputation::none) return context;
  auto layer = p;
  if (job.model.operators.empty()) layer.first = 0, layer.count = 2;
  return context + rows * bytes_of_one_layer(job, layer);
}

double min_bytes_per_parameter(const job_spec& job) {
  if (facts_of(job).on_engine) return engine_states.total();
  return job.memory ? unshared_bytes_per_parameter(job) : marp_states.total();
}

}  // namespace troupe::planners
