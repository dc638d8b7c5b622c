#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/cuda/collectives/communicator.hpp"
#include "gpu/cuda/collectives/device_communicator.hpp"
#include "gpu/cuda/runtime/machine.hpp"
#include "gpu/device/clock.hpp"
#include "gpu/profiling/profile.hpp"

// Times of all-reduces between GPUs of one machine, with the communicator that stages use.

namespace troupe::gpu {

namespace {

using cuda::communicator;
using machines = std::vector<std::shared_ptr<cuda::machine>>;

constexpr std::size_t timed_rounds = 5, warm_up = 2;
// Several in a row, so that the cost of the start is divided among them.
constexpr std::size_t large_in_a_row = 4, small_in_a_row = 20;
// NCCL orders all-reduces by the stream; a wait with sleeps would take as long as a small one.
constexpr std::size_t looks_between_questions = 64;

/// When a member began a round, and when all its all-reduces were complete.
struct span {
  double begin_s = 0, end_s = 0;
};

/// State shared by the threads of a group.
class communicator_id {
 public:
  explicit communicator_id(std::size_t size)
      : size_{size}, large{size, std::vector<span>(timed_rounds)}, small{large} {}

  /// A spinning barrier; false: a member has failed.
  bool together() {
    const auto all = (came_.fetch_add(1) / size_ + 1) * size_;
    while (came_.load() < all) {
      if (over_) return false;
      std::this_thread::yield();
    }
    return true;
  }
  bool over() const { return over_; }
  /// The first error counts.
  void fail(const std::string& why) {
    std::lock_guard lock{guard_};
    if (why_.empty()) why_ = why;
    over_ = true;
  }
  std::string why() {
    std::lock_guard lock{guard_};
    return why_;
  }

 private:
  const std::size_t size_;
  std::atomic<std::size_t> came_{0};
  std::atomic<bool> over_{false};
  std::mutex guard_;
  std::string why_;

 public:
  std::vector<std::vector<span>> large, small;  // by member
};

/// The fastest round: time per all-reduce, over all members.
double quickest_s(const std::vector<std::vector<span>>& all, std::size_t in_a_row) {
  double quickest = 1e9;
  for (std::size_t r = 0; r < timed_rounds; ++r) {
    auto whole = all.front()[r];
    for (const auto& member : all) {
      whole.begin_s = std::min(whole.begin_s, member[r].begin_s);
      whole.end_s = std::max(whole.end_s, member[r].end_s);
    }
    quickest = std::min(quickest, whole.end_s - whole.begin_s);
  }
  return std::max(quickest, 1e-9) / static_cast<double>(in_a_row);
}

class member {
 public:
  member(communicator_id& all, cuda::machine& m, communicator& sums, std::size_t bytes,
         double max_wait_s)
      : all_{all}, machine_{m}, sums_{sums}, patience_s_{max_wait_s}, bytes_{bytes} {}

  void measure(float* values, std::size_t rank) {
    machine_.zero(values, bytes_);
    const auto small = std::min<std::size_t>(small_sum_bytes, bytes_);
    rounds_of(values, bytes_, large_in_a_row, all_.large[rank]);
    rounds_of(values, small, small_in_a_row, all_.small[rank]);
    // No member may leave while another may still be in the last all-reduce.
    all_.together();
  }

 private:
  void rounds_of(float* values, std::size_t bytes, std::size_t in_a_row, std::vector<span>& out) {
    for (std::size_t r = 0; r < warm_up + timed_rounds; ++r) {
      if (!all_.together()) return;
      span took{now_s(), 0};
      for (std::size_t i = 0; i < in_a_row; ++i)
        sums_.sum(values, bytes / sizeof(float), machine_.stream());
      wait();
      took.end_s = now_s();
      if (r >= warm_up) out[r - warm_up] = took;
    }
  }

  /// Waits for the all-reduces. Throws if they will never complete.
  void wait() {
    auto* event = machine_.record_event();
    const double until_s = now_s() + patience_s_;
    std::string why;
    for (std::size_t looks = 1; why.empty() && !machine_.reached(event); ++looks) {
      if (looks % looks_between_questions == 0) why = trouble(until_s);
      std::this_thread::yield();
    }
    if (why.empty()) why = sums_.trouble();  // it may have ended without a result
    if (!why.empty()) sums_.abort(why);
    machine_.wait(event);
    if (!why.empty()) throw std::runtime_error(why);
  }
  std::string trouble(double until_s) {
    auto why = sums_.trouble();
    if (why.empty() && all_.over()) why = "another member of the group failed";
    if (why.empty() && now_s() > until_s)
      why = fmt::format("all-reduce not complete within {:.3g} s", patience_s_);
    return why;
  }

  communicator_id& all_;
  cuda::machine& machine_;
  communicator& sums_;
  const double patience_s_;
  const std::size_t bytes_;
};

/// Measures a group of `size` devices, or returns why it cannot.
/// One thread per member, as in a training. The first failure ends the barrier's and the
/// communicator's waits of all others, so no thread outlives the measurement.
expected<all_reduce_rate> measure_group(const machines& all, std::size_t size,
                                        const cuda::collectives& with, const sums_wish& w) {
  communicator_id group{size};
  std::vector<std::byte> id;
  try {
    all[0]->enter();
    id = cuda::make_communicator_id(with);
  } catch (const std::exception& e) {
    return refuse(reason::kind::unavailable, e.what());
  }
  const auto be_member = [&](std::size_t rank) {
    auto& m = *all[rank];
    try {
      m.enter();
      const auto give = [&m](void* memory) { m.give(memory); };
      const std::unique_ptr<void, decltype(give)> values{m.take(w.bytes), give};
      communicator sums{with,
                        id,
                        static_cast<std::uint32_t>(rank),
                        static_cast<std::uint32_t>(size),
                        {w.patience_s, w.patience_s},
                        [&group] { return group.over(); }};
      member{group, m, sums, w.bytes, w.patience_s}.measure(static_cast<float*>(values.get()),
                                                            rank);
    } catch (const std::exception& e) {
      group.fail(e.what());
    }
  };
  std::vector<std::jthread> threads;
  try {
    for (std::size_t rank = 0; rank < size; ++rank) threads.emplace_back(be_member, rank);
  } catch (const std::exception& e) {
    group.fail(e.what());
  }
  threads.clear();
  if (auto why = group.why(); !why.empty()) return refuse(reason::kind::unavailable, why);
  return all_reduce_rate{
      static_cast<std::uint32_t>(size),
      static_cast<double>(w.bytes) / quickest_s(group.large, large_in_a_row) / 1e9,
      1e6 * quickest_s(group.small, small_in_a_row)};
}

/// 2, 4, 8, ... and all.
std::vector<std::size_t> group_sizes(std::size_t devices) {
  std::vector<std::size_t> sizes;
  for (std::size_t n = 2; n < devices; n *= 2) sizes.push_back(n);
  sizes.push_back(devices);
  return sizes;
}

}  // namespace

// A failure becomes a sentence of the profile and no error: the other figures remain valid.
void measure_sums(const sums_wish& w, const machine_opener& open, copy_rates& into) {
  into.all_reduces.clear();
  const auto none = [&](const std::string& why) { into.all_reduce = "not measured: " + why; };
  if (w.devices <= 1) return none("the machine has only one device");
  machines all;
  for (int i = 0; i < w.devices; ++i) {
    const int index = (w.first + i) % w.devices;
    auto m = open(index);
    if (!m) return none(fmt::format("device {}: {}", index, m.error().text));
    all.push_back(std::move(*m));
  }
  std::string why;
  const auto* with = cuda::collectives_of(*all[0], why);
  if (!with) return none(why);
  std::vector<std::uint32_t> measured;
  for (const auto size : group_sizes(all.size())) {
    const auto rate = measure_group(all, size, *with, w);
    if (!rate) {
      why = fmt::format("over {} of the machine's devices: {}", size, rate.error().text);
      break;  // larger groups would time out as well
    }
    into.all_reduces.push_back(*rate);
    measured.push_back(rate->devices);
  }
  if (measured.empty()) return none(why);
  into.all_reduce = fmt::format(
      "by NCCL over {} of the machine's devices, starting at index {}: the fastest of {} rounds{}",
      fmt::join(measured, ", "), w.first, timed_rounds, why.empty() ? "" : "; not measured " + why);
}

}  // namespace troupe::gpu
