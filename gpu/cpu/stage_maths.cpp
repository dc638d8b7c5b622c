#include "gpu/cpu/stage_maths.hpp"
#include "messages/base/invariant.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::gpu::cpu {

// Weights, gradients and both moments are four arrays with the same layout: own parameters first,
// the tied ones behind them, so that an update, a save and an all-reduce each walk over one range.
// A stage with both embedding and head sums the head's gradient of the tied matrix apart: the sum
// of the two then has the same order, and the same bits, as when two stages hold the ends.
template <class T>
stage_maths<T>::stage_maths(const stage_spec& s, std::shared_ptr<thread_communicator> tensor_group,
                            const kernels<T>& set)
    : spec_{s},
      k_{set},
      parameters_{parameters_of(s)},
      tokens_{tokens_of(s)},
      hidden_{s.model.hidden},
      sublayer_{s, memory_, std::move(tensor_group), set} {
  const auto size = size_of(s);
  own_ = size.own_parameters;
  tied_ = size.tied_parameters;
  weights_ = memory_.take<T>(own_ + tied_);
  for (auto* b : {&gradients_, &first_moments_, &second_moments_})
    *b = memory_.zeros<T>(own_ + tied_);
  if (s.has_embedding && s.has_head && tied_ > 0) tied_head_ = memory_.zeros<T>(tied_);
  std::vector<float> start;
  for (const auto& p : parameters_) {
    start.resize(p.values());
    initialise(p, s.seed, start);
    std::copy(start.begin(), start.end(), weights_.get() + position(p));
  }
}

template <class T>
T* stage_maths<T>::find(T* values, const std::string& name) const {
  const auto p =
      std::ranges::find_if(parameters_, [&](const parameter& q) { return q.name == name; });
  TROUPE_INVARIANT(p != parameters_.end(), "a parameter that a pass names is one of its stage");
  return values + position(*p);
}

template <class T>
weight_and_bias<T> stage_maths<T>::both(T* values, const std::string& name) const {
  return {find(values, name + ".weight"), find(values, name + ".bias")};
}

template <class T>
sublayer_values<T> stage_maths<T>::values_of(T* values, std::uint32_t i) const {
  const auto names = names_of(i);
  return {both(values, names.norm), both(values, names.wide), both(values, names.back)};
}

template <class T>
T* stage_maths<T>::head_sums() {
  if (tied_head_) return tied_head_.get();
  return find(gradients_.get(), spec_.model.tied_head ? "wte.weight" : "lm_head.weight");
}

// Without `kept` (recomputation will follow) the memory of a sublayer is released as soon as the
// next has its input.
template <class T>
typename stage_maths<T>::result stage_maths<T>::forward(const stage_input<T>& in,
                                                        stage_memory<T>* kept) {
  auto current = in.activation;
  if (spec_.has_embedding) {
    const auto embedded = memory_.take<T>(tokens_ * hidden_);
    k_.embed(in.tokens.get(), spec_.rows, spec_.model.sequence, hidden_,
             find(weights_.get(), "wte.weight"), find(weights_.get(), "wpe.weight"),
             embedded.get());
    current = embedded;
  }
  buffer<T> out;
  for (auto i = spec_.first_sublayer; i < spec_.first_sublayer + spec_.sublayers; ++i) {
    sublayer_memory<T> m;
    m.in = current;
    out = sublayer_.forward(sublayer_kind(i), values_of(weights_.get(), i), m);
    current = out;
    if (kept) kept->sublayers.push_back(std::move(m));
  }
  if (!spec_.has_head) {
    if (!out) out = std::const_pointer_cast<T>(current);  // a stage with only the embedding
    return {out, 0};
  }
  stage_memory<T> passing;
  return {nullptr, predict(in, current, kept ? *kept : passing)};
}

// Cross entropy replaces the logits by their gradient in place, because the logits are the largest
// array of a stage. The gradient is scaled by the number of tokens of this micro-batch; the mean
// over micro-batches is the scale of the update.
template <class T>
double stage_maths<T>::predict(const stage_input<T>& in, buffer<const T> last, stage_memory<T>& m) {
  const std::size_t words = spec_.model.vocabulary;
  const T* head = find(weights_.get(), spec_.model.tied_head ? "wte.weight" : "lm_head.weight");
  m.last = std::move(last);
  m.final = sublayer_.norm(both(weights_.get(), "ln_f"), m.last.get());
  m.logits = memory_.take<T>(tokens_ * words);
  multiply(matrix{m.final.out.get(), tokens_, hidden_}, matrix{head, words, hidden_}.transposed(),
           matrix{m.logits.get(), tokens_, words});
  const auto count = static_cast<double>(tokens_);
  return k_.cross_entropy(m.logits.get(), in.targets.get(), tokens_, words,
                          static_cast<T>(1 / count)) /
         count;
}

template <class T>
buffer<T> stage_maths<T>::predict_backward(const stage_memory<T>& m) {
  const std::size_t words = spec_.model.vocabulary;
  const T* head = find(weights_.get(), spec_.model.tied_head ? "wte.weight" : "lm_head.weight");
  const matrix logits{m.logits.get(), tokens_, words};
  const auto normal = memory_.take<T>(tokens_ * hidden_);
  multiply(logits, matrix{head, words, hidden_}, matrix{normal.get(), tokens_, hidden_});
  multiply(logits.transposed(), matrix{m.final.out.get(), tokens_, hidden_},
           matrix{head_sums(), words, hidden_}, into::add);
  auto gradient = memory_.zeros<T>(tokens_ * hidden_);
  const auto sums = both(gradients_.get(), "ln_f");
  k_.layer_norm_backward(normal.get(), m.last.get(), both(weights_.get(), "ln_f").weight,
                         m.final.means.get(), m.final.inverses.get(), tokens_, hidden_,
                         gradient.get(), sums.weight, sums.bias);
  return gradient;
}

// The gradient is copied, since the sublayers change it in place and the received message is
// shared. Sublayers run in reverse; each adds its parameters' gradients to the running sums, so
// micro-batches accumulate in the order in which they are scheduled.
template <class T>
buffer<T> stage_maths<T>::backward(const stage_input<T>& in, const stage_memory<T>& kept,
                                   const T* gradient) {
  buffer<T> g;
  if (spec_.has_head) {
    g = predict_backward(kept);
  } else {
    g = memory_.take<T>(tokens_ * hidden_);
    std::copy_n(gradient, tokens_ * hidden_, g.get());
  }
  for (auto n = spec_.sublayers; n-- > 0;) {
    const auto i = spec_.first_sublayer + n;
    sublayer_.backward(sublayer_kind(i), values_of(weights_.get(), i), kept.sublayers[n],
                       values_of(gradients_.get(), i), g.get());
  }
  if (!spec_.has_embedding) return g;
  k_.embed_backward(in.tokens.get(), spec_.rows, spec_.model.sequence, hidden_, g.get(),
                    find(gradients_.get(), "wte.weight"), find(gradients_.get(), "wpe.weight"));
  return nullptr;
}

template <class T>
void stage_maths<T>::copy_gradients(T* out) const {
  std::copy_n(gradients_.get(), own_ + tied_, out);
  if (tied_head_) k_.add(out + own_, tied_head_.get(), tied_);
}

// The sums of all replicas arrive with the head's part already added, so that part is cleared.
template <class T>
void stage_maths<T>::replace_gradients(const T* own, const T* tied) {
  std::copy_n(own, own_, gradients_.get());
  std::copy_n(tied, tied_, gradients_.get() + own_);
  if (tied_head_) std::fill_n(tied_head_.get(), tied_, T{});
}

template <class T>
void stage_maths<T>::clear_gradients() {
  std::fill_n(gradients_.get(), own_ + tied_, T{});
  if (tied_head_) std::fill_n(tied_head_.get(), tied_, T{});
}

// AdamW with bias correction; vectors (biases and layer norms) do not decay. Returns the squared
// norm of the stage's gradients, in which each parameter of the model counts once over all devices.
template <class T>
double stage_maths<T>::update(double scale) {
  if (tied_head_) k_.add(gradients_.get() + own_, tied_head_.get(), tied_);
  ++steps;
  const auto n = static_cast<double>(steps);
  adamw_step how{.scale = scale,
                 .learning_rate = spec_.learning_rate,
                 .beta1 = spec_.beta1,
                 .beta2 = spec_.beta2,
                 .epsilon = spec_.epsilon,
                 .correction1 = 1 - std::pow(spec_.beta1, n),
                 .correction2 = 1 - std::pow(spec_.beta2, n)};
  double norm = 0;
  for (const auto& p : parameters_) {
    const auto at = position(p);
    how.decay = p.vector ? 0 : spec_.weight_decay;
    const auto squares =
        k_.adamw(weights_.get() + at, first_moments_.get() + at, second_moments_.get() + at,
                 gradients_.get() + at, p.values(), how);
    // Replicated parameters are counted on one device.
    if ((!p.tied || spec_.has_embedding) && (p.runs > 0 || p.shard == 0)) norm += squares;
  }
  clear_gradients();
  return norm;
}

template class stage_maths<float>;
template class stage_maths<double>;

}  // namespace troupe::gpu::cpu
