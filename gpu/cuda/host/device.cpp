#include "gpu/cuda/host/device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "gpu/device/clock.hpp"
#include "gpu/model/digest.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::gpu::cuda {

// A lost GPU and a lack of memory have codes of their own, since callers react to them differently.
reason::kind code_of(const std::runtime_error& e, reason::kind other) {
  if (dynamic_cast<const gpu_lost*>(&e)) return reason::kind::device_lost;
  return dynamic_cast<const gpu_out_of_memory*>(&e) ? reason::kind::out_of_memory : other;
}

// Limits of this device's kernels: vectors of eight 16-bit values, and heads that fit a tile.
expected<void> check_shape(const stage_spec& s) {
  const auto width = s.model.hidden / s.model.heads;
  const auto inner = own_inner(s);
  if (width % 8 != 0 || width > widest_head)
    return refuse(reason::kind::invalid,
                  "the CUDA device supports head sizes 8, 16, ... {}, not {}", widest_head, width);
  if (inner % 8 != 0)
    return refuse(reason::kind::invalid,
                  "the CUDA device needs an MLP width divisible by 8, not {}", inner);
  return {};
}

device::device(const stage_spec& s, std::shared_ptr<machine> m, first_values first,
               communicator_patience patience, std::shared_ptr<device_communicator> tensor_group,
               std::size_t piece_bytes)
    : spec_{s},
      machine_{m},
      tensor_group_{tensor_group},
      stage_{s, std::move(m), std::move(tensor_group), piece_bytes},
      patience_{patience},
      submitter_{[this] { machine_->enter(); }} {
  if (first == first_values::set) stage_.reset();
  if (tensor_group_) rehearse();
  completer_ = std::thread{[this] { complete_operations(); }};
}

// The submitter ends first; closing the groups ends its waits for peers. Only then is the completer
// asked to end, after it has answered everything that was launched.
device::~device() {
  submitter_.close();
  leaving_ = true;
  for (const auto& with : {peers(), tensor_group_})
    if (with) with->close("the device was closed");
  submitter_.join();
  {
    std::lock_guard lock{guard_};
    closed_ = true;
  }
  wake_.notify_one();
  completer_.join();
  if (sums_begun_) end_group("the device was closed");  // on the side stream: no event waits for it
}

void device::submit(operation o, done d) {
  submitter_.submit(std::move(o), std::move(d),
                    [this](const auto& what, const operation& all, done completed) {
                      enqueue(what, all.timed, std::move(completed));
                    });
}

void device::submit_values(done d) {
  submitter_.submit(
      [this](const done& completed) { enqueue(operations::values{}, false, completed); },
      std::move(d));
}

// Two threads: one launches kernels, the other waits for them. The GPU's queue thus never runs dry
// while a result is delivered.
template <class What>
void device::enqueue(const What& o, bool timed, done completed) {
  pending p;
  p.begin_s = now_s();
  p.completed = std::move(completed);
  p.timed = timed;
  start(o, p);
  {
    std::lock_guard lock{guard_};
    asked_.push_back(std::move(p));
  }
  wake_.notify_one();
}

// Results are delivered in the order of submission. Held memory is released before the callback, so
// a next operation that it submits can reuse it.
void device::complete_operations() {
  machine_->enter();
  double before_s = 0;
  for (;;) {
    pending p;
    {
      std::unique_lock lock{guard_};
      wake_.wait(lock, [this] { return closed_ || !asked_.empty(); });
      if (asked_.empty()) return;
      p = std::move(asked_.front());
      asked_.pop_front();
    }
    try {
      if (p.event != nullptr) wait_for(p);
      if (p.result && p.to != nullptr) p.result->compute_s = machine_->seconds(p.from, p.to);
    } catch (const std::runtime_error& e) {
      p.result = refuse(code_of(e), e.what());
    }
    if (p.result) {
      p.result->begin_s = std::max(p.begin_s, before_s);  // it waited for the previous one
      p.result->end_s = before_s = now_s();
      if (p.loss) p.result->of<operations::forward>().loss = *p.loss;
      if (p.norm) p.result->of<operations::update>().squared_norm = *p.norm;
    }
    for (auto* e : {p.from, p.to})
      if (e != nullptr) machine_->forget(e);
    p.held.clear();
    p.completed(std::move(p.result));
  }
}

/// Waits for the GPU. An all-reduce may wait for GPUs of other hosts, which may be gone.
void device::wait_for(const pending& p) {
  if (!p.with) return machine_->wait(p.event);
  const double until_s = now_s() + p.with->patience_s();
  std::string why;
  while (why.empty() && !machine_->reached(p.event)) {
    why = p.with->trouble();
    if (why.empty() && now_s() > until_s)
      why =
          fmt::format("all-reduce between GPUs not complete within {:.3g} s", p.with->patience_s());
    if (why.empty()) std::this_thread::sleep_for(std::chrono::microseconds{50});
  }
  if (why.empty()) why = p.with->trouble();  // it may have ended without a result
  if (!why.empty()) {
    p.with->abort(why);
    broke({reason::kind::unavailable, why});
  }
  machine_->wait(p.event);
  if (!why.empty()) throw std::runtime_error(why);
}

std::shared_ptr<device_communicator> device::peers() {
  std::lock_guard lock{guard_};
  return peers_;
}

// The first reason is kept: later errors follow from it.
void device::broke(const reason& why) {
  std::lock_guard lock{guard_};
  if (!broken_) broken_ = why;
}

// An operation that changes weights or gradients and fails half-way leaves them undefined: the
// device then refuses all but a load. An all-reduce that had begun is aborted as well, as peers
// would wait for its part.
template <class What>
void device::start(const What& o, pending& p) {
  namespace kinds = operations;
  auto ok = progress_.check(o);
  if (ok) ok = check_payloads(spec_, o, summed_);
  // Some gradients are already summed over all members, others are not: only `sum` can continue.
  if (ok && sums_begun_ &&
      kinds::is_one_of<What, kinds::backward, kinds::gradients, kinds::update,
                       kinds::join_communicator>)
    ok = refuse(reason::kind::invalid, "gradient all-reduce already started; expected sum or load");
  if (std::lock_guard lock{guard_}; broken_ && !kinds::is_one_of<What, kinds::load>)
    ok = refuse(broken_->code,
                fmt::format("device state is invalid; load a checkpoint first: {}", broken_->text));
  if (!ok) {
    p.result = refuse(ok.error());
    return;
  }
  try {
    perform(o, p);
    p.event = machine_->record_event();
  } catch (const std::runtime_error& e) {
    if (kinds::is_one_of<What, kinds::sum> ||
        (kinds::is_one_of<What, kinds::backward> && sums_begun_))
      end_group(e.what());
    settle();
    if (kinds::is_one_of<What, kinds::backward, kinds::sum, kinds::update, kinds::load>)
      broke({code_of(e), e.what()});
    p.result = refuse(code_of(e), e.what());
  }
}

/// After an error: earlier work must be complete before its memory is reused.
void device::settle() {
  try {
    machine_->wait(machine_->record_event());
  } catch (const std::runtime_error&) {  // the first error is reported
  }
}

/// Copies values to the GPU through pinned memory.
// Both buffers are held until the operation is complete: the copy runs after this function returns.
template <class T>
buffer<T> device::bring(std::span<const T> values, pending& p) {
  const auto staging = stage_.host().take<T>(values.size());
  if (!values.empty()) std::memcpy(staging.get(), values.data(), values.size_bytes());
  auto to = stage_.copied().take<T>(values.size());
  machine_->copy_in(to.get(), staging.get(), values.size_bytes());
  p.held.push_back(staging);
  p.held.push_back(to);
  return to;
}

buffer<float> device::bring_floats(const payload& from, pending& p) {
  const auto* first = reinterpret_cast<const float*>(from.bytes().data());  // only read by memcpy
  return bring(std::span{first, from.bytes().size() / sizeof(float)}, p);
}

payload device::take_out(const buffer<float>& from, std::size_t values, pending& p) {
  const auto to = stage_.host().take<float>(values);
  machine_->copy_out(to.get(), from.get(), values * sizeof(float));
  p.held.push_back(from);
  return payload{to, std::as_bytes(std::span<const float>{to.get(), values})};
}

const double* device::take_out(const buffer<double>& one, pending& p) {
  const auto to = stage_.host().take<double>(1);
  machine_->copy_out(to.get(), one.get(), sizeof(double));
  p.held.push_back(one);
  p.held.push_back(to);
  return to.get();
}

own_and_tied device::take_out_both(const buffer<float>& values, pending& p) {
  const auto own = stage_.own();
  return {take_out(values, own, p),
          take_out(buffer<float>{values, values.get() + own}, stage_.tied(), p)};
}

/// The tokens, and the positions of each occurring word for their gradients, in one copy of
/// constant size.
void device::bring_tokens(const payload& tokens, stage_input& in, pending& p) {
  const auto n = static_cast<std::size_t>(tokens_of(spec_));
  auto all = tokens.values<std::uint32_t>();
  all.resize(4 * n + 1);
  const auto places = all.begin() + static_cast<std::ptrdiff_t>(n);
  std::iota(places, places + static_cast<std::ptrdiff_t>(n), 0u);
  std::stable_sort(places, places + static_cast<std::ptrdiff_t>(n),
                   [&](std::uint32_t a, std::uint32_t b) { return all[a] < all[b]; });
  auto *occur = all.data() + 2 * n, *begins = all.data() + 3 * n;
  for (std::uint32_t i = 0; i < n; ++i) {
    const auto word = all[all[n + i]];
    if (in.words_that_occur > 0 && occur[in.words_that_occur - 1] == word) continue;
    begins[in.words_that_occur] = i;
    occur[in.words_that_occur++] = word;
  }
  begins[in.words_that_occur] = static_cast<std::uint32_t>(n);
  in.tokens = bring(std::span<const std::uint32_t>{all}, p);
  in.places = {in.tokens, in.tokens.get() + n};
  in.occur = {in.tokens, in.tokens.get() + 2 * n};
  in.begins = {in.tokens, in.tokens.get() + 3 * n};
}

/// Launches the kernels of an operation, between two timing events if it is timed.
template <class Launch>
auto device::timed(Launch launch, pending& p) {
  if (!p.timed) return launch();
  p.from = machine_->timing_event();
  auto made = launch();
  p.to = machine_->timing_event();
  return made;
}

/// Launches the kernels of one pass, as a graph if possible; returns the result of `ask`.
template <class Ask>
auto device::in_one_pass(Ask ask, pending& p) {
  p.with = tensor_group_;
  // All-reduces inside a pass cannot be part of a graph.
  if (tensor_group_) return timed(ask, p);
  machine_->begin_pass();
  try {
    return timed(
        [&] {
          auto made = ask();
          machine_->end_pass();
          return made;
        },
        p);
  } catch (...) {
    machine_->drop_pass();
    throw;
  }
}

stage_input device::input_of(const operations::forward& o, pending& p) {
  stage_input in;
  if (spec_.has_embedding)
    bring_tokens(o.input, in, p);
  else
    in.activation = bring_floats(o.input, p);
  if (spec_.has_head) {
    const auto targets = o.targets.values<std::uint32_t>();
    in.targets = bring(std::span<const std::uint32_t>{targets}, p);
  }
  return in;
}

void device::perform(const operations::forward& o, pending& p) {
  auto m = std::make_shared<microbatch>();
  p.held.push_back(m);
  m->in = input_of(o, p);
  const auto made =
      in_one_pass([&] { return stage_.forward(m->in, o.keep ? &m->kept : nullptr); }, p);
  auto& out = p.result->what.emplace<operations::forward::result>();
  if (made.activation)
    out.activation = take_out(made.activation, tokens_of(spec_) * spec_.model.hidden, p);
  if (made.loss) p.loss = take_out(made.loss, p);
  held_[o.microbatch] = std::move(m);
  progress_.went_forward(o.microbatch, o.keep);
}

// A recompute that failed half-way may have left activations, so `kept` is emptied first.
void device::perform(const operations::recompute& o, pending& p) {
  const auto m = held_.at(o.microbatch);
  p.held.push_back(m);
  if (progress_.kept(o.microbatch)) return;
  m->kept = {};
  const auto made = in_one_pass([&] { return stage_.forward(m->in, &m->kept); }, p);
  if (made.activation) p.held.push_back(made.activation);
  if (made.loss) p.held.push_back(made.loss);
  progress_.went_forward(o.microbatch, true);
}

// Gradients of earlier micro-batches are only partial sums: the all-reduce runs beside the last
// one.
void device::perform(const operations::backward& o, pending& p) {
  const auto m = held_.at(o.microbatch);
  p.held.push_back(m);
  buffer<float> gradient;
  if (!spec_.has_head) gradient = bring_floats(o.gradient, p);
  const auto with = o.last ? beside_backward() : nullptr;
  const auto made = in_one_pass(
      [&] { return stage_.backward(m->in, m->kept, std::move(gradient), with.get()); }, p);
  p.held.push_back(made);
  auto& out = p.result->what.emplace<operations::backward::result>();
  if (!spec_.has_embedding) out.gradient = take_out(made, tokens_of(spec_) * spec_.model.hidden, p);
  m->kept = {};  // its memory can be reused by later kernels
  held_.erase(o.microbatch);
  progress_.forget(o.microbatch);
  went_back_ = true;
}

// The copy is behind the kernels that wrote them, and before the one that clears them.
void device::perform(const operations::gradients& o, pending& p) {
  p.result->what = take_out_both(stage_.gradients(), p);
  if (!o.take) return;
  stage_.clear_gradients();
  went_back_ = false;
}

void device::perform(const operations::reset&, pending&) {
  forget_passes("it was reset instead of the all-reduce");
  stage_.clear_gradients();
}

void device::forget_passes(const std::string& why) {
  if (sums_begun_) {
    end_group(why);
    stage_.forget_sums();
    sums_begun_ = false;
  }
  held_.clear();
  progress_.clear();
  summed_ = went_back_ = false;
}

void device::perform(const operations::weights&, pending& p) {
  p.result->what = take_out_both(stage_.weights(), p);
}

// Synchronous, as a save is.
void device::perform(const operations::digest&, pending& p) {
  const auto all = stage_.read_weights();
  p.result->what = operations::digest::result{digest_of(std::as_bytes(std::span{all}))};
}

// The norm is copied out behind the kernels and read when the operation completes.
void device::perform(const operations::update& o, pending& p) {
  const auto brought = [&](const payload& sums) {
    return sums.empty() ? nullptr : bring_floats(sums, p);
  };
  const auto own = brought(o.sums.own), tied = brought(o.sums.tied);
  stage_.replace_gradients(own.get(), tied.get());
  p.result->what = operations::update::result{};
  p.norm = take_out(timed([&] { return stage_.update(o.scale); }, p), p);
  summed_ = went_back_ = false;
}

// Synchronous on the launching thread: later operations would change the values.
void device::perform(const operations::save& o, pending& p) {
  auto v = stage_.read();
  const auto ok = save_values(
      o.path, spec_, stage_.steps,
      {stage_.parameters(), stage_.own(), v.weights, v.first_moments, v.second_moments}, o.whole);
  if (!ok) p.result = refuse(ok.error());
}

void device::perform(const operations::values&, pending& p) {
  auto v = stage_.read();
  p.result->what =
      operations::values::result{payload{std::move(v.weights)}, payload{std::move(v.first_moments)},
                                 payload{std::move(v.second_moments)}, stage_.steps};
}

// The files are read completely before the GPU changes: a failed load leaves the weights as they
// were.
void device::perform(const operations::load& o, pending& p) {
  const auto n = stage_.own() + stage_.tied();
  stage::host_values v{std::vector<float>(n), std::vector<float>(n), std::vector<float>(n)};
  const auto steps = load_values(
      o.path, spec_,
      {stage_.parameters(), stage_.own(), v.weights, v.first_moments, v.second_moments});
  if (!steps) {
    p.result = refuse(steps.error());
    return;
  }
  forget_passes("a checkpoint was loaded instead of the all-reduce");
  stage_.write(v);
  stage_.steps = *steps;
  std::lock_guard lock{guard_};
  broken_.reset();
}

}  // namespace troupe::gpu::cuda
