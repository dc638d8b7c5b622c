#include "gpu/cuda/host/stage.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "messages/base/invariant.hpp"

namespace troupe::gpu::cuda {

namespace {

constexpr std::size_t staging_bytes = 16 << 20;

std::size_t up(std::size_t n, std::size_t to) {
  return (n + to - 1) / to * to;
}

}  // namespace

// Weights and moments are 32-bit; products use 16-bit copies that each update refreshes. Everything
// of constant size is allocated here, so that a stage that does not fit fails at its creation.
stage::stage(const stage_spec& s, std::shared_ptr<machine> m,
             std::shared_ptr<device_communicator> tensor_group, std::size_t piece_bytes)
    : spec_{s},
      machine_{m},
      tensor_group_{std::move(tensor_group)},
      memory_{m, block_pool::where::gpu},
      copied_{m, block_pool::where::copied},
      host_{m, block_pool::where::host},
      parameters_{parameters_of(s)},
      tokens_{tokens_of(s)},
      hidden_{s.model.hidden},
      own_hidden_{own_hidden(s)},
      inner_{own_inner(s)} {
  machine_->enter();  // the creating thread need not be the one that runs the stage
  const auto size = size_of(s);
  own_ = size.own_parameters;
  tied_ = size.tied_parameters;
  for (auto* b : {&weights_, &first_moments_, &second_moments_})
    *b = memory_.take<float>(own_ + tied_);
  // The head is the last of a stage's parameters, so that the padding of its rows is at the end.
  const std::size_t padding = s.has_head ? (head_width() - s.model.vocabulary) * hidden_ : 0;
  const bool both_ends = s.has_embedding && s.has_head && tied_ > 0;
  gradient_values_ = own_ + tied_ + (both_ends ? 0 : padding);
  gradients_ = memory_.take<float>(gradient_values_);
  if (both_ends) {
    tied_head_values_ = tied_ + padding;
    tied_head_ = memory_.take<float>(tied_head_values_);
  }
  plan_runs();
  plan_pieces(piece_bytes);
  const auto widest = std::max(inner_, 3 * own_hidden_);
  scratch_ = memory_.take<float>(norm_scratch(tokens_, std::max(widest, hidden_)));
  dots_ = memory_.take<float>(tokens_ * own_heads(s));
  rounded_ = memory_.take<bf16>(tokens_ * hidden_);
  slim_ = memory_.take<bf16>(tokens_ * hidden_);
  wide_ = memory_.take<bf16>(tokens_ * widest);
  if (s.has_head) losses_ = memory_.take<float>(tokens_);
}

/// The places of the parameters' 16-bit copies, and the values of each of AdamW's blocks.
void stage::plan_runs() {
  std::vector<adamw_run> runs;
  for (const auto& p : parameters_) {
    narrow_at_.push_back(narrow_values_);
    const auto at = p.tied ? own_ : p.offset;
    // Replicated parameters are counted on one device.
    const bool counts = (!p.tied || spec_.has_embedding) && (p.runs > 0 || p.shard == 0);
    for (std::size_t i = 0; i < p.values(); i += values_a_run)
      runs.push_back({at + i, narrow_values_ + i,
                      static_cast<std::uint32_t>(std::min(values_a_run, p.values() - i)),
                      p.vector ? 0u : 1u, counts ? 1u : 0u, 0});
    const auto rows = p.name == head() ? head_width() : p.rows;
    narrow_values_ += up(rows * p.columns, 128);
  }
  run_count_ = runs.size();
  narrow_ = memory_.take<bf16>(narrow_values_);
  runs_ = memory_.take<adamw_run>(runs.size());
  norms_ = memory_.take<double>(runs.size());
  move(runs_.get(), runs.data(), runs.size() * sizeof(adamw_run), true);
}

// Logits have rows of a multiple of 128 values, for which the tensor cores' products are fast.
std::size_t stage::head_width() const {
  return up(spec_.model.vocabulary, 128);
}

void stage::reset() {
  host_values v;
  v.weights.resize(own_ + tied_);
  v.first_moments.resize(v.weights.size());
  v.second_moments.resize(v.weights.size());
  // Each parameter's initial values depend only on its name: any thread may compute them.
  std::atomic<std::size_t> next{0};
  const auto make = [&] {
    for (std::size_t i; (i = next++) < parameters_.size();) {
      const auto& p = parameters_[i];
      initialise(p, spec_.seed, std::span{v.weights}.subspan(p.tied ? own_ : p.offset, p.values()));
    }
  };
  std::vector<std::jthread> others;
  const std::size_t threads = v.weights.size() / (1 << 22);  // none for small models
  for (std::size_t i = 1; i < std::min<std::size_t>(threads, std::thread::hardware_concurrency());
       ++i)
    others.emplace_back(make);
  make();
  others.clear();
  write(v);
}

/// Copies to or from the GPU in pieces, synchronously.
void stage::move(void* to, const void* from, std::size_t bytes, bool in) {
  machine_->wait(machine_->record_event());  // no kernel uses it any more
  const auto piece = std::min(bytes, staging_bytes);
  const auto staging = host_.take<std::byte>(piece);
  for (std::size_t at = 0; at < bytes; at += piece) {
    const auto n = std::min(piece, bytes - at);
    auto* target = static_cast<std::byte*>(to) + at;
    const auto* source = static_cast<const std::byte*>(from) + at;
    if (in) {
      std::memcpy(staging.get(), source, n);
      machine_->copy_in(target, staging.get(), n);
    } else {
      machine_->copy_out(staging.get(), source, n);
    }
    machine_->wait(machine_->record_event());
    if (!in) std::memcpy(target, staging.get(), n);
  }
}

// Values leave in 32 bits, the precision of the weights; the 16-bit copies are made again on
// loading.
stage::host_values stage::read() {
  host_values v;
  for (const auto& [to, from] : {std::pair{&v.weights, weights_.get()},
                                 {&v.first_moments, first_moments_.get()},
                                 {&v.second_moments, second_moments_.get()}}) {
    to->resize(own_ + tied_);
    move(to->data(), from, to->size() * sizeof(float), false);
  }
  return v;
}

std::vector<float> stage::read_weights() {
  std::vector<float> all(own_ + tied_);
  move(all.data(), weights_.get(), all.size() * sizeof(float), false);
  return all;
}

// The padding of the 16-bit copies must be 0: products read it.
void stage::write(const host_values& v) {
  for (const auto& [to, from] : {std::pair{weights_.get(), &v.weights},
                                 {first_moments_.get(), &v.first_moments},
                                 {second_moments_.get(), &v.second_moments}})
    move(to, from->data(), from->size() * sizeof(float), true);
  machine_->zero(narrow_.get(), narrow_values_ * sizeof(bf16));
  machine_->narrow_weights(runs_.get(), run_count_, weights_.get(), narrow_.get());
  clear_gradients();
}

stage::weight stage::find(float* values, const std::string& name) const {
  const auto p =
      std::ranges::find_if(parameters_, [&](const parameter& q) { return q.name == name; });
  TROUPE_INVARIANT(p != parameters_.end(), "a parameter that a pass names is one of its stage");
  return {values + (p->tied ? own_ : p->offset),
          narrow_.get() + narrow_at_[static_cast<std::size_t>(p - parameters_.begin())]};
}

// Biases' gradients are summed in 32 bits.
float* stage::bias_sum(const std::string& name) const {
  return find(gradients_.get(), name + ".bias").wide;
}

stage::linear stage::both(float* values, const std::string& name) const {
  return {find(values, name + ".weight"), find(values, name + ".bias")};
}

attention_shape stage::attention() const {
  return {spec_.model.sequence, static_cast<std::uint32_t>(own_heads(spec_)),
          spec_.model.hidden / spec_.model.heads};
}

// The norm reads 32-bit activations and writes 16 bits, as the next product takes them.
norm_memory stage::norm(const std::string& name, const float* in) {
  norm_memory m{memory_.take<bf16>(tokens_ * hidden_), memory_.take<float>(tokens_),
                memory_.take<float>(tokens_)};
  const auto w = both(weights_.get(), name);
  machine_->layer_norm(in, w.w.wide, w.b.wide, tokens_, hidden_, m.out.get(), m.means.get(),
                       m.inverses.get());
  return m;
}

// The bias is added within the product, which saves a pass over the widest activation.
void stage::attention_forward(const sublayer_names& names, sublayer_memory& m, float* out) {
  const auto t = tokens_, c = hidden_, d = own_hidden_;
  m.norm = norm(names.norm, m.in.get());
  const auto wide = both(weights_.get(), names.wide);
  m.qkv = memory_.take<bf16>(t * 3 * d);
  machine_->multiply({.a = {m.norm.out.get(), t, c},
                      .b = {wide.w.narrow, c, 3 * d},
                      .narrow = m.qkv.get(),
                      .stride = 3 * d,
                      .narrow_bias = wide.b.narrow});
  m.log_sums = memory_.take<float>(t * own_heads(spec_));
  m.attended = memory_.take<bf16>(t * d);
  machine_->attention(attention(), spec_.rows, m.qkv.get(), m.attended.get(), m.log_sums.get());
  come_back(names.back, {m.attended.get(), t, d}, m.in.get(), out);
}

void stage::mlp_forward(const sublayer_names& names, sublayer_memory& m, float* out) {
  const auto t = tokens_, c = hidden_;
  m.norm = norm(names.norm, m.in.get());
  const auto wide = both(weights_.get(), names.wide);
  m.before = memory_.take<bf16>(t * inner_);
  m.after = memory_.take<bf16>(t * inner_);
  machine_->multiply({.a = {m.norm.out.get(), t, c},
                      .b = {wide.w.narrow, c, inner_},
                      .narrow = m.after.get(),
                      .stride = inner_,
                      .narrow_bias = wide.b.narrow,
                      .before = m.before.get()});
  come_back(names.back, {m.after.get(), t, inner_}, m.in.get(), out);
}

/// in + bias + the product. In a tensor group, one member adds the terms that are not summed.
void stage::come_back(const std::string& name, operand made, const float* in, float* out) {
  const auto back = both(weights_.get(), name);
  const bool adds = spec_.shard == 0;
  machine_->multiply({.a = made,
                      .b = {back.w.narrow, made.columns, hidden_},
                      .wide = out,
                      .stride = hidden_,
                      .plus = adds ? in : nullptr,
                      .bias = adds ? back.b.wide : nullptr});
  sum_over_tensor_group(out, tokens_ * hidden_);
}

// The activation that leaves the stage lies in memory of copies, because its transfer runs beside
// later kernels, which may reuse other memory at once.
stage::result stage::forward(const stage_input& in, stage_memory* kept) {
  const auto values = tokens_ * hidden_;
  auto current = in.activation;
  if (spec_.has_embedding) {
    current = (spec_.sublayers == 0 && !spec_.has_head ? copied_ : memory_).take<float>(values);
    machine_->embed(in.tokens.get(), tokens_, spec_.model.sequence, hidden_,
                    find(weights_.get(), "wte.weight").wide,
                    find(weights_.get(), "wpe.weight").wide, current.get());
  }
  const auto end = spec_.first_sublayer + spec_.sublayers;
  for (auto i = spec_.first_sublayer; i < end; ++i) {
    const bool leaves = i + 1 == end && !spec_.has_head;
    sublayer_memory m;
    m.in = current;
    current = (leaves ? copied_ : memory_).take<float>(values);
    if (sublayer_kind(i) == sublayer::attention)
      attention_forward(names_of(i), m, current.get());
    else
      mlp_forward(names_of(i), m, current.get());
    if (kept) kept->sublayers.push_back(std::move(m));
  }
  if (!spec_.has_head) return {current, nullptr};
  stage_memory passing;
  auto& m = kept ? *kept : passing;
  m.last = current;
  return {nullptr, predict(in, m)};
}

// Logits in 16 bits: the largest array of a stage; cross entropy replaces them by their gradient.
buffer<double> stage::predict(const stage_input& in, stage_memory& m) {
  const auto width = head_width();
  m.final = norm("ln_f", m.last.get());
  m.logits = memory_.take<bf16>(tokens_ * width);
  const operand weights{find(weights_.get(), head()).narrow, width, hidden_};
  machine_->multiply({.a = {m.final.out.get(), tokens_, hidden_},
                      .b = weights.transposed(),
                      .narrow = m.logits.get(),
                      .stride = width});
  auto loss = copied_.take<double>(1);
  machine_->cross_entropy(m.logits.get(), in.targets.get(), tokens_, spec_.model.vocabulary, width,
                          losses_.get(), loss.get());
  return loss;
}

void stage::norm_backward(const std::string& name, const float* in, const norm_memory& m,
                          bool adds) {
  const auto sums = both(gradients_.get(), name);
  machine_->layer_norm_backward(slim_.get(), in, find(weights_.get(), name + ".weight").wide,
                                m.means.get(), m.inverses.get(), tokens_, hidden_, adds,
                                gradient_.get(), rounded_.get(), sums.w.wide, sums.b.wide,
                                scratch_.get());
}

/// The weight's gradient, and the input's gradient, optionally times gelu'.
void stage::linear_backward(const std::string& name, const bf16* gradient, const bf16* in,
                            std::size_t wide_in, std::size_t wide_out, bf16* gradient_in,
                            const bf16* slope_at) {
  const operand g{gradient, tokens_, wide_out}, x{in, tokens_, wide_in};
  auto* sum = find(gradients_.get(), name + ".weight").wide;
  machine_->multiply({.a = x.transposed(), .b = g, .wide = sum, .stride = wide_out, .plus = sum});
  const operand w{find(weights_.get(), name + ".weight").narrow, wide_in, wide_out};
  machine_->multiply({.a = g,
                      .b = w.transposed(),
                      .narrow = gradient_in,
                      .stride = wide_in,
                      .slope_at = slope_at});
}

// gelu' is part of the product back, so the gradient of the wide layer is written only once.
void stage::mlp_backward(const sublayer_names& names, const sublayer_memory& m) {
  const auto t = tokens_, c = hidden_;
  machine_->sum_rows(gradient_.get(), t, c, bias_sum(names.back), scratch_.get());
  linear_backward(names.back, rounded_.get(), m.after.get(), inner_, c, wide_.get(),
                  m.before.get());
  machine_->sum_rows(wide_.get(), t, inner_, bias_sum(names.wide), scratch_.get());
  linear_backward(names.wide, wide_.get(), m.norm.out.get(), c, inner_, slim_.get());
  sum_over_tensor_group(slim_.get(), t * c);
  norm_backward(names.norm, m.in.get(), m.norm, true);
}

void stage::attention_backward(const sublayer_names& names, const sublayer_memory& m) {
  const auto t = tokens_, c = hidden_, d = own_hidden_;
  machine_->sum_rows(gradient_.get(), t, c, bias_sum(names.back), scratch_.get());
  linear_backward(names.back, rounded_.get(), m.attended.get(), d, c, slim_.get());
  machine_->attention_backward(attention(), spec_.rows, m.qkv.get(), m.attended.get(), slim_.get(),
                               m.log_sums.get(), dots_.get(), wide_.get());
  machine_->sum_rows(wide_.get(), t, 3 * d, bias_sum(names.wide), scratch_.get());
  linear_backward(names.wide, wide_.get(), m.norm.out.get(), c, 3 * d, slim_.get());
  sum_over_tensor_group(slim_.get(), t * c);
  norm_backward(names.norm, m.in.get(), m.norm, true);
}

void stage::predict_backward(const stage_memory& m) {
  const std::size_t width = head_width();
  const operand gradient{m.logits.get(), tokens_, width};  // 0 in the padding
  machine_->multiply({.a = gradient,
                      .b = {find(weights_.get(), head()).narrow, width, hidden_},
                      .narrow = slim_.get(),
                      .stride = hidden_});
  auto* sum = tied_head_ ? tied_head_.get() : find(gradients_.get(), head()).wide;
  // With the rows of the padding: a number of rows that 128 does not divide slows the product down.
  machine_->multiply({.a = gradient.transposed(),
                      .b = {m.final.out.get(), tokens_, hidden_},
                      .wide = sum,
                      .stride = hidden_,
                      .plus = sum});
  norm_backward("ln_f", m.last.get(), m.final, false);
}

// As soon as a sublayer's gradients are complete, their all-reduce may begin beside the next ones.
buffer<float> stage::backward(const stage_input& in, const stage_memory& kept,
                              buffer<float> gradient, device_communicator* with) {
  gradient_ = spec_.has_head ? copied_.take<float>(tokens_ * hidden_) : std::move(gradient);
  if (spec_.has_head)
    predict_backward(kept);
  else
    machine_->narrow(gradient_.get(), tokens_ * hidden_, rounded_.get());
  if (spec_.has_head) sum_from(offset_of("ln_f.weight"), with);
  for (auto n = spec_.sublayers; n-- > 0;) {
    const auto i = spec_.first_sublayer + n;
    if (sublayer_kind(i) == sublayer::attention)
      attention_backward(names_of(i), kept.sublayers[n]);
    else
      mlp_backward(names_of(i), kept.sublayers[n]);
    sum_from(offset_of(names_of(i).norm + ".weight"), with);
  }
  if (spec_.has_embedding) {
    machine_->embed_words_backward(in.occur.get(), in.begins.get(), in.places.get(),
                                   in.words_that_occur, hidden_, gradient_.get(),
                                   find(gradients_.get(), "wte.weight").wide);
    machine_->embed_positions_backward(spec_.rows, spec_.model.sequence, hidden_, gradient_.get(),
                                       find(gradients_.get(), "wpe.weight").wide);
  }
  sum_from(0, with);
  return std::move(gradient_);
}

// A copy, since the next update may run while it is on its way to the host.
buffer<float> stage::weights() {
  auto copy = copied_.take<float>(own_ + tied_);
  machine_->copy(copy.get(), weights_.get(), (own_ + tied_) * sizeof(float));
  return copy;
}

}  // namespace troupe::gpu::cuda
