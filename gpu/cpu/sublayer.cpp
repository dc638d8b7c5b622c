#include "gpu/cpu/sublayer.hpp"

#include <algorithm>

namespace troupe::gpu::cpu {

template <class T>
sublayer_maths<T>::sublayer_maths(std::size_t rows, std::size_t sequence, std::size_t hidden,
                                  std::size_t heads, std::size_t inner, pool& memory)
    : memory_{memory},
      k_{kernels_for<T>()},
      tokens_{rows * sequence},
      hidden_{hidden},
      inner_{inner},
      attention_{rows, sequence, hidden, heads, memory},
      wide_{memory.take<T>(tokens_ * std::max(inner, 3 * hidden))},
      narrow_{memory.take<T>(tokens_ * hidden)} {}

template <class T>
normed<T> sublayer_maths<T>::norm(const weight_and_bias<T>& weights, const T* in) {
  normed<T> n{memory_.take<T>(tokens_ * hidden_), memory_.take<T>(tokens_),
              memory_.take<T>(tokens_)};
  k_.layer_norm(in, weights.weight, weights.bias, tokens_, hidden_, n.out.get(), n.means.get(),
                n.inverses.get());
  return n;
}

template <class T>
buffer<T> sublayer_maths<T>::attention_forward(const sublayer_values<T>& w, sublayer_memory<T>& m) {
  const auto t = tokens_, c = hidden_;
  m.norm = norm(w.norm, m.in.get());
  m.qkv = memory_.take<T>(t * 3 * c);
  k_.add_bias(nullptr, w.wide.bias, t, 3 * c, m.qkv.get());
  multiply(matrix{m.norm.out.get(), t, c}, matrix{w.wide.weight, c, 3 * c},
           matrix{m.qkv.get(), t, 3 * c}, into::add);
  m.log_sums = memory_.take<T>(attention_.log_sums());
  m.attended = memory_.take<T>(t * c);
  attention_.forward(m.qkv.get(), m.attended.get(), m.log_sums.get());
  auto out = memory_.take<T>(t * c);
  k_.add_bias(m.in.get(), w.back.bias, t, c, out.get());
  multiply(matrix{m.attended.get(), t, c}, matrix{w.back.weight, c, c}, matrix{out.get(), t, c},
           into::add);
  return out;
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
  auto out = memory_.take<T>(t * c);
  k_.add_bias(m.in.get(), w.back.bias, t, c, out.get());
  multiply(matrix{m.after.get(), t, inner_}, matrix{w.back.weight, inner_, c},
           matrix{out.get(), t, c}, into::add);
  return out;
}

template <class T>
buffer<T> sublayer_maths<T>::forward(sublayer what, const sublayer_values<T>& weights,
                                     sublayer_memory<T>& m) {
  return what == sublayer::attention ? attention_forward(weights, m) : mlp_forward(weights, m);
}

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
  const auto t = tokens_, c = hidden_;
  k_.sum_rows(gradient, t, c, sums.back.bias);
  linear_backward(gradient, m.attended.get(), c, c, w.back.weight, sums.back.weight, narrow_.get());
  attention_.backward(narrow_.get(), m.qkv.get(), m.attended.get(), m.log_sums.get(), wide_.get());
  k_.sum_rows(wide_.get(), t, 3 * c, sums.wide.bias);
  linear_backward(wide_.get(), m.norm.out.get(), c, 3 * c, w.wide.weight, sums.wide.weight,
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
  k_.layer_norm_backward(narrow_.get(), m.in.get(), w.norm.weight, m.norm.means.get(),
                         m.norm.inverses.get(), tokens_, hidden_, gradient, sums.norm.weight,
                         sums.norm.bias);
}

template class sublayer_maths<float>;
template class sublayer_maths<double>;

}  // namespace troupe::gpu::cpu
