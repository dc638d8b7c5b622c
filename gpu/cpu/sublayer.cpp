#include "gpu/cpu/sublayer.hpp"

#include <algorithm>
#include <stdexcept>
#include <type_traits>

namespace troupe::gpu::cpu {

// The scratch is shared by all sublayers of a stage: only one of them computes at a time, and
// results that backward needs lie in its own memory.
template <class T>
sublayer_maths<T>::sublayer_maths(const stage_spec& s, pool& memory,
                                  std::shared_ptr<thread_communicator> tensor_group,
                                  const kernels<T>& set)
    : memory_{memory},
      k_{set},
      tensor_group_{std::move(tensor_group)},
      tokens_{tokens_of(s)},
      hidden_{s.model.hidden},
      own_hidden_{own_hidden(s)},
      inner_{own_inner(s)},
      attention_{s.rows, s.model.sequence, own_hidden_, own_heads(s), memory},
      wide_{memory.take<T>(tokens_ * std::max(inner_, 3 * own_hidden_))},
      narrow_{memory.take<T>(tokens_ * hidden_)} {}

template <class T>
void sublayer_maths<T>::sum_over_tensor_group(T* values) {
  if (!tensor_group_) return;
  if constexpr (std::is_same_v<T, float>) {
    const auto ok = tensor_group_->sum(std::span{values, tokens_ * hidden_});
    if (!ok) throw std::runtime_error(ok.error().text);
  }
}

/// in + bias + a b. In a tensor group, one member adds the terms that are not summed.
template <class T>
buffer<T> sublayer_maths<T>::partial_sum(const T* in, const T* bias, matrix<const T> a,
                                         matrix<const T> b) {
  auto out = memory_.take<T>(tokens_ * hidden_);
  const bool adds = !tensor_group_ || tensor_group_->rank() == 0;
  if (adds) k_.add_bias(in, bias, tokens_, hidden_, out.get());
  multiply(a, b, matrix{out.get(), tokens_, hidden_}, adds ? into::add : into::set);
  sum_over_tensor_group(out.get());
  return out;
}

template <class T>
normed<T> sublayer_maths<T>::norm(const weight_and_bias<T>& weights, const T* in) {
  normed<T> n{memory_.take<T>(tokens_ * hidden_), memory_.take<T>(tokens_),
              memory_.take<T>(tokens_)};
  k_.layer_norm(in, weights.weight, weights.bias, tokens_, hidden_, n.out.get(), n.means.get(),
                n.inverses.get());
  return n;
}

// Megatron's split: the wide product is column-parallel, so each member has whole heads; the
// product back is row-parallel and its partial results are summed, one all-reduce per sublayer.
template <class T>
buffer<T> sublayer_maths<T>::attention_forward(const sublayer_values<T>& w, sublayer_memory<T>& m) {
  const auto t = tokens_, c = hidden_, d = own_hidden_;
  m.norm = norm(w.norm, m.in.get());
  m.qkv = memory_.take<T>(t * 3 * d);
  k_.add_bias(nullptr, w.wide.bias, t, 3 * d, m.qkv.get());
  multiply(matrix{m.norm.out.get(), t, c}, matrix{w.wide.weight, c, 3 * d},
           matrix{m.qkv.get(), t, 3 * d}, into::add);
  m.log_sums = memory_.take<T>(attention_.log_sums());
  m.attended = memory_.take<T>(t * d);
  attention_.forward(m.qkv.get(), m.attended.get(), m.log_sums.get());
  return partial_sum(m.in.get(), w.back.bias, matrix{m.attended.get(), t, d},
                     matrix{w.back.weight, d, c});
}

template <class T>
buffer<T> sublayer_maths<T>::mlp_forward(const sublayer_values<T>& w, sublayer_memory<T>& m) {
  const auto t = tokens_, c = hidden_;
  m.norm = norm(w.norm, m.in.get());
  m.before = memory_.take<T>(t * inner_);
  multiply(matrix{m.norm.out.get(), t, c}, matrix{w.wide.weight, c, inner_},
           matrix{m.before.get(), t, inner_});
  m.after = memory_.take<T>(t * inner_);
  k_.bias_gelu(m.before.get(), w.wide.bias, t, inner_, m.after.get());
  return partial_sum(m.in.get(), w.back.bias, matrix{m.after.get(), t, inner_},
                     matrix{w.back.weight, inner_, c});
}

template <class T>
buffer<T> sublayer_maths<T>::forward(sublayer what, const sublayer_values<T>& weights,
                                     sublayer_memory<T>& m) {
  return what == sublayer::attention ? attention_forward(weights, m) : mlp_forward(weights, m);
}

// The weights' gradient is added to the running sum of the micro-batches; the input's is set.
template <class T>
void sublayer_maths<T>::linear_backward(const T* gradient_out, const T* in, std::size_t wide_in,
                                        std::size_t wide_out, const T* weight, T* weight_sum,
                                        T* gradient_in) {
  const matrix g{gradient_out, tokens_, wide_out};
  multiply(matrix{in, tokens_, wide_in}.transposed(), g, matrix{weight_sum, wide_in, wide_out},
           into::add);
  multiply(g, matrix{weight, wide_in, wide_out}.transposed(),
           matrix{gradient_in, tokens_, wide_in});
}

template <class T>
void sublayer_maths<T>::mlp_backward(const sublayer_values<T>& w, const sublayer_memory<T>& m,
                                     const sublayer_values<T>& sums, T* gradient) {
  const auto t = tokens_, c = hidden_;
  k_.sum_rows(gradient, t, c, sums.back.bias);
  linear_backward(gradient, m.after.get(), inner_, c, w.back.weight, sums.back.weight, wide_.get());
  k_.gelu_backward(wide_.get(), m.before.get(), t, inner_, sums.wide.bias);
  linear_backward(wide_.get(), m.norm.out.get(), c, inner_, w.wide.weight, sums.wide.weight,
                  narrow_.get());
}

template <class T>
void sublayer_maths<T>::attention_backward(const sublayer_values<T>& w, const sublayer_memory<T>& m,
                                           const sublayer_values<T>& sums, T* gradient) {
  const auto t = tokens_, c = hidden_, d = own_hidden_;
  k_.sum_rows(gradient, t, c, sums.back.bias);
  linear_backward(gradient, m.attended.get(), d, c, w.back.weight, sums.back.weight, narrow_.get());
  attention_.backward(narrow_.get(), m.qkv.get(), m.attended.get(), m.log_sums.get(), wide_.get());
  k_.sum_rows(wide_.get(), t, 3 * d, sums.wide.bias);
  linear_backward(wide_.get(), m.norm.out.get(), c, 3 * d, w.wide.weight, sums.wide.weight,
                  narrow_.get());
}

template <class T>
void sublayer_maths<T>::backward(sublayer what, const sublayer_values<T>& w,
                                 const sublayer_memory<T>& m, const sublayer_values<T>& sums,
                                 T* gradient) {
  if (what == sublayer::attention)
    attention_backward(w, m, sums, gradient);
  else
    mlp_backward(w, m, sums, gradient);
  sum_over_tensor_group(narrow_.get());
  k_.layer_norm_backward(narrow_.get(), m.in.get(), w.norm.weight, m.norm.means.get(),
                         m.norm.inverses.get(), tokens_, hidden_, gradient, sums.norm.weight,
                         sums.norm.bias);
}

template class sublayer_maths<float>;
template class sublayer_maths<double>;

}  // namespace troupe::gpu::cpu
