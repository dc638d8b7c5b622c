#include "gpu/cpu/block.hpp"

#include <algorithm>

namespace troupe::gpu::cpu {

template <class T>
block_maths<T>::block_maths(std::size_t rows, std::size_t sequence, std::size_t hidden,
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
normed<T> block_maths<T>::norm(const weight_and_bias<T>& weights, const T* in) {
  normed<T> n{memory_.take<T>(tokens_ * hidden_), memory_.take<T>(tokens_),
              memory_.take<T>(tokens_)};
  k_.layer_norm(in, weights.weight, weights.bias, tokens_, hidden_, n.out.get(), n.means.get(),
                n.inverses.get());
  return n;
}

template <class T>
buffer<T> block_maths<T>::forward(const block_values<T>& w, block_memory<T>& m) {
  const auto t = tokens_, c = hidden_;
  m.first = norm(w.ln_1, m.in.get());
  m.qkv = memory_.take<T>(t * 3 * c);
  k_.add_bias(nullptr, w.c_attn.bias, t, 3 * c, m.qkv.get());
  multiply(matrix{m.first.out.get(), t, c}, matrix{w.c_attn.weight, c, 3 * c},
           matrix{m.qkv.get(), t, 3 * c}, into::add);
  m.log_sums = memory_.take<T>(attention_.log_sums());
  m.attended = memory_.take<T>(t * c);
  attention_.forward(m.qkv.get(), m.attended.get(), m.log_sums.get());
  m.middle = memory_.take<T>(t * c);
  k_.add_bias(m.in.get(), w.c_proj.bias, t, c, m.middle.get());
  multiply(matrix{m.attended.get(), t, c}, matrix{w.c_proj.weight, c, c},
           matrix{m.middle.get(), t, c}, into::add);

  m.second = norm(w.ln_2, m.middle.get());
  m.before = memory_.take<T>(t * inner_);
  multiply(matrix{m.second.out.get(), t, c}, matrix{w.c_fc.weight, c, inner_},
           matrix{m.before.get(), t, inner_});
  m.after = memory_.take<T>(t * inner_);
  k_.bias_gelu(m.before.get(), w.c_fc.bias, t, inner_, m.after.get());
  auto out = memory_.take<T>(t * c);
  k_.add_bias(m.middle.get(), w.mlp_proj.bias, t, c, out.get());
  multiply(matrix{m.after.get(), t, inner_}, matrix{w.mlp_proj.weight, inner_, c},
           matrix{out.get(), t, c}, into::add);
  return out;
}

template <class T>
void block_maths<T>::linear_backward(const T* gradient_out, const T* in, std::size_t wide_in,
                                     std::size_t wide_out, const T* weight, T* weight_sum,
                                     T* gradient_in) {
  const matrix g{gradient_out, tokens_, wide_out};
  multiply(matrix{in, tokens_, wide_in}.transposed(), g, matrix{weight_sum, wide_in, wide_out},
           into::add);
  multiply(g, matrix{weight, wide_in, wide_out}.transposed(),
           matrix{gradient_in, tokens_, wide_in});
}

template <class T>
void block_maths<T>::mlp_backward(const block_values<T>& w, const block_memory<T>& m,
                                  const block_values<T>& sums, T* gradient) {
  const auto t = tokens_, c = hidden_;
  k_.sum_rows(gradient, t, c, sums.mlp_proj.bias);
  linear_backward(gradient, m.after.get(), inner_, c, w.mlp_proj.weight, sums.mlp_proj.weight,
                  wide_.get());
  k_.gelu_backward(wide_.get(), m.before.get(), t, inner_, sums.c_fc.bias);
  linear_backward(wide_.get(), m.second.out.get(), c, inner_, w.c_fc.weight, sums.c_fc.weight,
                  narrow_.get());
  k_.layer_norm_backward(narrow_.get(), m.middle.get(), w.ln_2.weight, m.second.means.get(),
                         m.second.inverses.get(), t, c, gradient, sums.ln_2.weight, sums.ln_2.bias);
}

template <class T>
void block_maths<T>::attention_backward(const block_values<T>& w, const block_memory<T>& m,
                                        const block_values<T>& sums, T* gradient) {
  const auto t = tokens_, c = hidden_;
  k_.sum_rows(gradient, t, c, sums.c_proj.bias);
  linear_backward(gradient, m.attended.get(), c, c, w.c_proj.weight, sums.c_proj.weight,
                  narrow_.get());
  attention_.backward(narrow_.get(), m.qkv.get(), m.attended.get(), m.log_sums.get(), wide_.get());
  k_.sum_rows(wide_.get(), t, 3 * c, sums.c_attn.bias);
  linear_backward(wide_.get(), m.first.out.get(), c, 3 * c, w.c_attn.weight, sums.c_attn.weight,
                  narrow_.get());
  k_.layer_norm_backward(narrow_.get(), m.in.get(), w.ln_1.weight, m.first.means.get(),
                         m.first.inverses.get(), t, c, gradient, sums.ln_1.weight, sums.ln_1.bias);
}

template <class T>
void block_maths<T>::backward(const block_values<T>& weights, const block_memory<T>& m,
                              const block_values<T>& sums, T* gradient) {
  mlp_backward(weights, m, sums, gradient);
  attention_backward(weights, m, sums, gradient);
}

template class block_maths<float>;
template class block_maths<double>;

}  // namespace troupe::gpu::cpu
