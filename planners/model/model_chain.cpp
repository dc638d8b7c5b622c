
#include "planners/model/model_chain.hpp"
#include "messages/base/invariant.hpp"

#include <fmt/format.h>

namespace troupe::planners {
namespace {

constexpr double half = 2;                    // bytes of a number in half precision
constexpr double patch_inputs = 3 * 16 * 16;  // ViT: inputs of one patch of 16 x 16 pixels

// The four kinds of operators of a transformer.
struct parts {
  model_operator embedding, attention, mlp, head;
};

// Parameter counts follow the reference implementations: GPT-2 (learned positions, biases), Llama
// (RMS norm, gated MLP, grouped-query attention, biases where its configuration has them),
// BertForPreTraining, ViTForImageClassification.
parts parts_of(const model& m) {
  const double h = m.hidden, s = m.sequence, v = m.vocabulary;
  const double i = m.intermediate == 0 ? 4 * h : m.intermediate;
  const double q = query_width(m), kv = kv_width(m);  // kv: of keys, and of values
  const bool llama = m.family == "llama", bert = m.family == "bert", vit = m.family == "vit";

  const double attention_matrices = 2 * h * q + 2 * h * kv;
  const double mlp_matrices = (llama ? 3 : 2) * h * i;
  // Biases and a norm.
  const double attention_rest = llama ? h + (m.qkv_bias ? q + 2 * kv : 0) + (m.output_bias ? h : 0)
                                      : (q + 2 * kv + h) + 2 * h;
  const double mlp_rest = llama ? h + (m.mlp_bias ? 2 * i + h : 0) : (i + h) + 2 * h;

  const double stream = half * s * h;
  parts p;
  p.attention = {"attention", 2 * s * attention_matrices + 4 * s * s * q,
                 attention_matrices + attention_rest, stream};
  p.mlp = {"mlp", 2 * s * mlp_matrices, mlp_matrices + mlp_rest, stream};
  if (vit) {  // patches, class token, positions; only the class token reaches the head
    p.embedding = {"embedding", 2 * s * patch_inputs * h, patch_inputs * h + h + h + s * h, stream};
    p.head = {"head", 2 * h * v, 2 * h + h * v + v, half * v};
    return p;
  }
  p.embedding = {"embedding", 0, v * h + (llama ? 0 : s * h) + (bert ? 2 * h + 2 * h : 0), stream};
  p.head = {"head", 2 * s * h * v,
            (llama  ? h
             : bert ? 0
                    : 2 * h) +
                (m.tied_head ? 0 : v * h),
            half * s * v};
  if (bert) {  // pooler and next-sentence head on one token; the masked-token head on all
    p.head.flops += 2 * s * h * h + 2 * h * h + 2 * h * 2;
    p.head.parameters += (h * h + h) + (2 * h + 2) + (h * h + h + 2 * h + v);
  }
  return p;
}

/// Kernels of a sublayer; a gated MLP has a product more, and attention its four and the two of its
/// matrix. The MLP's last one is the layer's.
kernel_counts sublayer_kernels(const model& m, bool attention) {
  const double s = m.sequence, h = m.hidden;
  if (attention) return {4, s * h, m.heads * s * s, 4 * s * s * query_width(m), 0};
  const double i = m.intermediate == 0 ? 4 * h : m.intermediate;
  return {m.family == "llama" ? 3.0 : 2.0, s * h, 0, 0, 0, 1, 2 * s * i * h};
}

kernel_counts head_kernels(const model& m) {
  const double rows = m.family == "vit" ? 1 : m.sequence;
  return {1, 0, 0, 0, rows * m.vocabulary};
}

kernel_counts operator_kernels(const model_operator& op) {
  return {1, op.output_bytes / half, 0, 0, 0};
}

}  // namespace

void kernel_counts::add(const kernel_counts& other, double times) {
  products += times * other.products;
  stream += times * other.stream;
  matrices += times * other.matrices;
  attention_flops += times * other.attention_flops;
  logits += times * other.logits;
  last_products += times * other.last_products;
  last_flops += times * other.last_flops;
}

model_shape shape_of(const model& m) {
  model_shape out;
  if (!m.operators.empty()) {
    for (const auto& op : m.operators) {
      out.parameters += op.parameters;
      out.forward_flops += op.flops;
      out.reduces += 1;
      out.reduced_bytes += op.output_bytes;
      out.kernels.add(operator_kernels(op));
    }
    return out;
  }
  const auto p = parts_of(m);
  const double l = m.layers;
  out.parameters =
      p.embedding.parameters + l * (p.attention.parameters + p.mlp.parameters) + p.head.parameters;
  out.forward_flops = p.embedding.flops + l * (p.attention.flops + p.mlp.flops) + p.head.flops;
  out.reduces = 2 * l;
  out.reduced_bytes = l * (p.attention.output_bytes + p.mlp.output_bytes);
  const auto a = sublayer_kernels(m, true), b = sublayer_kernels(m, false), c = head_kernels(m);
  out.kernels = {l * (a.products + b.products) + c.products,
                 l * (a.stream + b.stream),
                 l * a.matrices,
                 l * a.attention_flops,
                 c.logits,
                 l * b.last_products,
                 l * b.last_flops};
  return out;
}

std::vector<model_operator> expand(const model& m) {
  if (!m.operators.empty()) return m.operators;
  const auto p = parts_of(m);
  std::vector<model_operator> out{p.embedding};
  for (std::uint32_t l = 0; l < m.layers; ++l)
    for (auto op : {p.attention, p.mlp}) {
      op.name = fmt::format("layer {} {}", l, op.name);
      out.push_back(std::move(op));
    }
  out.push_back(p.head);
  return out;
}

void divisible::add(const divisible& other, double times) {
  divided += times * other.divided;
  whole += times * other.whole;
}

void chain_range::add(const chain_range& other, double times) {
  flops.add(other.flops, times);
  parameters.add(other.parameters, times);
  kept_bytes.add(other.kept_bytes, times);
  kernels.add(other.kernels, times);
  state_bytes += times * other.state_bytes;
}

/// Korthikanti et al., sections 4.1 and 4.2.1, with the preceding layer norm: 34 s h + 5 a s^2 per
/// layer, of which all but 10 s h is divided.
divisible kept_of_sublayer(const model& m, bool attention) {
  const double s = m.sequence, h = m.hidden, a = m.heads;
  return {attention ? 8 * s * query_width(m) + 5 * a * s * s : 16 * s * h, 5 * s * h};
}

double head_flops(const model& m) {
  return m.operators.empty() ? parts_of(m).head.flops : 0;
}

namespace {

divisible divided_if(bool divided, double all) {
  return divided ? divisible{all, 0} : divisible{0, all};
}

/// An operator keeps its output; a program's layer what was measured, in single precision.
chain_range piece_of(const model& m, const model_operator& op) {
  const bool measured = has_program_layers(m);
  const double width = measured ? 0.5 : 1;
  return {{op.flops, 0},
          {op.parameters, 0},
          {0, width * (measured ? op.kept_bytes : op.output_bytes)},
          width * op.output_bytes,
          operator_kernels(op),
          op.state_bytes};
}

}  // namespace

// Prefix sums make any range of pieces a difference: searches over cuts ask for thousands of
// ranges.
model_chain::model_chain(const model& m, bool divided_words)
    : before_(1), divided_words_{divided_words} {
  if (!m.operators.empty()) {
    for (const auto& op : m.operators) add(piece_of(m, op));
    tied_parameters_ = m.tied_parameters.value_or(0);
    return;
  }
  const auto p = parts_of(m);
  // A sublayer's matrices are divided; its norm and last bias are replicated.
  const double whole = 3.0 * m.hidden;
  for (std::uint32_t i = 0; i < 2 * m.layers; ++i) {
    const auto& op = i % 2 == 0 ? p.attention : p.mlp;
    chain_range piece{{op.flops, 0},
                      {op.parameters - whole, whole},
                      kept_of_sublayer(m, i % 2 == 0),
                      op.output_bytes,
                      sublayer_kernels(m, i % 2 == 0)};
    if (i == 0) {
      piece.flops.add(divided_if(divided_words, p.embedding.flops));
      piece.parameters.add(divided_if(divided_words, p.embedding.parameters));
    }
    add(piece);
  }
  add({divided_if(divided_words, p.head.flops),
       divided_if(divided_words, p.head.parameters),
       {},
       p.mlp.output_bytes,
       head_kernels(m)});
  auto untied = m;
  untied.tied_head = false;
  tied_parameters_ = parts_of(untied).head.parameters - p.head.parameters;
}

void model_chain::add(const chain_range& piece) {
  auto sum = before_.back();
  sum.add(piece);
  sum.output_bytes = piece.output_bytes;
  before_.push_back(sum);
}

chain_range model_chain::range(std::uint32_t first, std::uint32_t count) const {
  TROUPE_INVARIANT(first + count < before_.size(),
                   "a range of a chain ends where the chain ends, or before");
  auto sum = before_[first + count];
  sum.add(before_[first], -1);
  return sum;
}

}  // namespace troupe::planners
