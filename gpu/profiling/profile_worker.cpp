#include "gpu/profiling/profile_worker.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <future>
#include <utility>
#include <vector>

#include "gpu/device/clock.hpp"
#include "gpu/worker/tensors.hpp"
#include "messages/base/statistics.hpp"

namespace troupe::gpu {

namespace {

/// One tensor of 32-bit zeros with one dimension, of which a gradient is wanted.
payload tensor_of(std::uint64_t bytes) {
  const auto numbers = static_cast<std::int64_t>(std::max<std::uint64_t>(bytes / sizeof(float), 1));
  constexpr std::size_t description = 64;  // head, one description with a dimension, and padding
  std::vector<std::byte> all(description +
                             python::aligned(static_cast<std::uint64_t>(numbers) * sizeof(float)));
  const auto put = [&](std::size_t at, auto value) {
    std::memcpy(all.data() + at, &value, sizeof value);
  };
  put(0, std::uint32_t{1});
  put(8, std::uint64_t{all.size()});
  put(16, std::array<std::uint8_t, 3>{0, 1, 1});  // f32, with a gradient, one dimension
  put(24, numbers);
  put(32, std::int64_t{1});
  return payload{std::move(all)};
}

/// The device's steps, one at a time, from submission to completion.
class stopwatch {
 public:
  explicit stopwatch(stage_device& d) : device_{d} {}

  /// Its seconds; after an error 0.
  double took(decltype(operation::what) what, std::uint64_t iteration) {
    if (!result_) return 0;
    std::promise<expected<outcome>> made;
    auto completed = made.get_future();
    const double began_s = now_s();
    device_.submit({.what = std::move(what), .program = {.iteration = iteration}},
                   [&](expected<outcome> r) { made.set_value(std::move(r)); });
    auto r = completed.get();
    const double all_s = now_s() - began_s;
    if (!r) result_ = refuse(r.error());
    return all_s;
  }
  expected<void> result() const { return result_; }

 private:
  stage_device& device_;
  expected<void> result_;
};

struct worker_samples {
  std::vector<double> forward, recompute, backward, update, gradients;
};

void round(stopwatch& w, const payload& tensor, std::uint64_t iteration, worker_samples& s) {
  s.forward.push_back(w.took(operations::forward{.input = tensor}, iteration));
  s.recompute.push_back(w.took(operations::recompute{}, iteration));
  s.backward.push_back(w.took(operations::backward{.gradient = tensor}, iteration));
  s.gradients.push_back(w.took(operations::gradients{}, iteration));
  s.update.push_back(w.took(operations::update{}, iteration));
}

}  // namespace

expected<worker_times> measure_worker(python_spec s, const worker_starter& start,
                                      std::uint64_t tensor_bytes, std::uint32_t rounds) {
  s.stage = {.first_layer = 1,
             .layers = 1,
             .stage = 1,
             .stages = 3,
             .how = python::worker_stage::recompute::stage};
  const auto made = make_python_device(s, start);
  if (!made) return refuse(made.error());
  constexpr std::uint64_t small_bytes = 64;
  const auto small = tensor_of(small_bytes), large = tensor_of(tensor_bytes);
  stopwatch watch{*made->device};
  worker_samples of_small, of_large;
  std::uint64_t iteration = 0;
  for (std::uint32_t r = 0; r < rounds + 2; ++r) {
    if (r == 2) of_small = {}, of_large = {};  // slots are allocated by the first ones
    round(watch, small, iteration++, of_small);
    round(watch, large, iteration++, of_large);
  }
  if (auto ok = watch.result(); !ok) return refuse(ok.error());
  using statistics::median;
  worker_times t;
  t.plain.forward_s = median(of_small.forward);
  t.plain.recompute_s = median(of_small.recompute);
  t.plain.backward_s = median(of_small.backward);
  t.plain.update_s = median(of_small.update);
  t.plain.gradients_s = median(of_small.gradients);
  // A tensor comes in and one goes out, twice.
  const double more_s =
      median(of_large.forward) + median(of_large.backward) - t.plain.forward_s - t.plain.backward_s;
  const double more_bytes = 4.0 * static_cast<double>(large.bytes().size() - small.bytes().size());
  if (more_s > 0) t.tensors_gbytes_s = more_bytes / more_s / 1e9;
  return t;
}

}  // namespace troupe::gpu
