#include "planners/model/engine_memory.hpp"

#include <algorithm>

#include "planners/model/job_device.hpp"

namespace troupe::planners {

namespace {

using count = std::uint64_t;

constexpr count wide = 4, narrow = 2;           // bytes of a value
constexpr count workspace_bytes = 32ull << 20;  // cuBLASLt's
// AdamW goes through the parameters by runs; each has a place and a part of the norm.
constexpr count values_a_run = 8192, run_bytes = 32, norm_bytes_a_run = 8;

count up(count n, count to) {
  return (n + to - 1) / to * to;
}

/// A block of n values: pools round up to 256 bytes.
count block(count n, count each) {
  return up(n * each, 256);
}

/// The sizes of a stage on one of its GPUs.
struct sizes {
  count tokens, hidden, sequence, vocabulary;  // tokens of a micro-batch
  count heads, width, inner;                   // on the GPU; width: all of its heads
  count attentions, mlps;
  bool embedding, head, tied;

  sizes(const model& m, const stage_part& p, std::uint32_t rows)
      : tokens{count{rows} * m.sequence},
        hidden{m.hidden},
        sequence{m.sequence},
        vocabulary{m.vocabulary},
        heads{std::max(1U, m.heads / p.tensor_parallel)},
        width{m.hidden / p.tensor_parallel},
        inner{(m.intermediate == 0 ? count{4} * m.hidden : m.intermediate) / p.tensor_parallel},
        attentions{(p.first + p.count + 1) / 2 - (p.first + 1) / 2},
        mlps{p.count - attentions},
        embedding{p.first == 0},
        head{p.last},
        tied{m.tied_head && (embedding || head)} {}

  count sublayers() const { return attentions + mlps; }
  count widest() const { return std::max(inner, 3 * width); }
  /// The residual stream of a micro-batch, or its gradient.
  count stream() const { return block(tokens * hidden, wide); }
};

/// Parameters of a stage, and what is counted parameter by parameter.
struct parameters {
  count own = 0, tied = 0, copies = 0, runs = 0;

  void add(count values, count times = 1) { add(values, times, values); }
  void add(count values, count times, count padded) {
    own += values * times;
    copies += up(padded, 128) * times;
    runs += up(values, values_a_run) / values_a_run * times;
  }
};

parameters parameters_of(const sizes& s, count padded_words) {
  const count h = s.hidden, words = s.vocabulary * h;
  parameters p;
  if (s.embedding && !s.tied) p.add(words);
  if (s.embedding) p.add(s.sequence * h);
  p.add(h, 2 * s.sublayers());  // norms
  p.add(h, s.sublayers());      // last biases
  p.add(h * 3 * s.width, s.attentions);
  p.add(3 * s.width, s.attentions);
  p.add(s.width * h, s.attentions);
  p.add(h * s.inner, 2 * s.mlps);
  p.add(s.inner, s.mlps);
  if (s.head) p.add(h, 2);
  if (s.head && !s.tied) p.add(words, 1, padded_words * h);
  if (s.tied) {
    p.add(words, 1, padded_words * h);
    p.tied = words;
    p.own -= words;  // its gradient is summed apart
  }
  return p;
}

/// A norm's output, means and deviations.
count norm_bytes(const sizes& s) {
  return block(s.tokens * s.hidden, narrow) + 2 * block(s.tokens, wide);
}

/// Activations of a micro-batch's sublayers: norms, queries to values, sums and result of
/// attention, the MLP before and after GELU, and the residual stream between them. The stream that
/// leaves for another stage is a copy's.
count activation_bytes(const sizes& s) {
  const count streams = s.sublayers() - (s.head || s.sublayers() == 0 ? 0 : 1);
  return s.sublayers() * norm_bytes(s) +
         s.attentions * (block(s.tokens * 3 * s.width, narrow) + block(s.tokens * s.heads, wide) +
                         block(s.tokens * s.width, narrow)) +
         s.mlps * 2 * block(s.tokens * s.inner, narrow) +
         (streams + (s.embedding ? 1 : 0)) * s.stream();
}

/// Scratch that all sublayers use in turn: the largest need counts once.
count scratch_bytes(const sizes& s) {
  const count parts = std::min<count>((s.tokens + 63) / 64, 64);  // partial sums over rows
  return block(2 * parts * std::max(s.widest(), s.hidden), wide) + block(s.tokens * s.heads, wide) +
         2 * block(s.tokens * s.hidden, narrow) + block(s.tokens * s.widest(), narrow) +
         (s.head ? block(s.tokens, wide) : 0);
}

/// Copies to and from the host beside a micro-batch's input: an activation or a gradient, the loss,
/// and the gradients of which hosts make sums, on their way out and back. If GPUs make the sums,
/// less: whether they can is not known before they run.
count copy_bytes(const sizes& s, const parameters& p, const stage_part& part,
                 const stage_load& load) {
  const bool several = !s.embedding || !s.head;  // stages
  const bool sums = load.pipelines > 1 || (several && p.tied > 0);
  count bytes = s.stream() + block(1, 8);
  if (sums) bytes += block(p.own, wide);
  if (sums && p.tied > 0) bytes += block(p.own + p.tied, wide);
  // GPUs that share a stage rehearse an iteration, the sum of a tied embedding's gradient included.
  const count tied = part.tensor_parallel > 1 ? 2 : sums ? 1 : 0;
  return bytes + tied * block(p.tied, wide);
}

}  // namespace

std::uint64_t head_width(const model& m) {
  return up(m.vocabulary, 128);
}

// The device allocates each purpose as a few pools at the start of a training, so that a sum of
// rounded blocks is exact. Integers until the end: doubles would round sums of products this large.
memory_parts engine_memory(const model& m, const stage_part& part, const stage_load& load) {
  const sizes s{m, part, load.rows};
  const auto width = head_width(m);
  const auto p = parameters_of(s, width);
  const count all = block(p.own + p.tied, wide);
  // The head's gradient has its words' padding; it is apart where the embedding is here, too.
  const count padding = s.head ? (width - s.vocabulary) * s.hidden : 0;
  const bool both_ends = s.embedding && s.head && p.tied > 0;
  const count gradients =
      both_ends ? all + block(p.tied + padding, wide) : block(p.own + p.tied + padding, wide);
  const count held = load.held, kept = load.recompute && !s.head ? 1 : held;
  const auto bytes = [](count n) { return static_cast<double>(n); };

  memory_parts parts;
  parts.weights = bytes(block(p.copies, narrow));
  parts.gradients = bytes(gradients);
  parts.optimizer = bytes(3 * all + block(p.runs, run_bytes) + block(p.runs, norm_bytes_a_run));
  parts.inputs = bytes(held * ((s.embedding ? block(4 * s.tokens + 1, wide) : s.stream()) +
                               (s.head ? block(s.tokens, wide) : 0)));
  parts.activations = bytes(kept * activation_bytes(s));
  if (s.head) parts.ends = bytes(kept * (norm_bytes(s) + block(s.tokens * width, narrow)));
  parts.buffers = bytes(scratch_bytes(s) + copy_bytes(s, p, part, load) + workspace_bytes);
  parts.context = cuda_context_bytes;
  return parts;
}

double engine_bytes_of_pieces(const model& m, const stage_part& p, const stage_load& load) {
  // Pieces that follow each other hand on the stream.
  const auto stream = static_cast<double>(sizes{m, p, load.rows}.stream());
  return std::max(0.0, (p.last ? 0 : stream) + engine_memory(m, p, load).total() -
                           engine_bytes_of_any_stage(m, p, load));
}

double engine_bytes_of_any_stage(const model& m, const stage_part& p, const stage_load& load) {
  // As a part of the stage that holds the whole range, without embedding, head or sublayers.
  const stage_part none{.first = 1, .tensor_parallel = p.tensor_parallel};
  return engine_memory(m, none, load).total();
}

}  // namespace troupe::planners
