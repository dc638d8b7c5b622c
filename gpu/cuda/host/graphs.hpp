#pragma once

#include <atomic>
#include <map>
#include <string>

#include "gpu/cuda/runtime/calls.hpp"

namespace troupe::gpu::cuda {

/// A machine that keeps the kernels of a pass until it ends. What was asked for in the same order
/// with the same numbers in the same memory before is then one graph of the GPU's, which starts
/// quicker than its kernels do one by one; anything else is asked for as it came, and kept as a
/// graph when it comes a second time. Results are the same either way, bit for bit.
class pass_graphs final : public kernel_interceptor {
 public:
  explicit pass_graphs(std::shared_ptr<machine> behind) : kernel_interceptor{std::move(behind)} {}
  ~pass_graphs() override;

  void begin_pass() override { in_pass_ = true; }
  void end_pass() override;
  void drop_pass() noexcept override;
  /// Whoever adds to the stream finds there what was asked for before.
  void* stream() override {
    flush();
    return kernel_interceptor::stream();
  }
  void* side_stream() override {
    flush();
    return kernel_interceptor::side_stream();
  }

  /// From the next pass on kernels are asked for one by one, as if there were no graphs.
  void stop() { possible_ = false; }
  /// How often a graph was made, and run.
  struct counts {
    std::size_t made = 0, run = 0;
  };
  counts so_far() const { return counts_; }

 private:
  using key = std::vector<std::uint64_t>;
  struct known {
    void* graph = nullptr;  // null: seen once
    std::uint64_t used = 0;
  };

  void perform(call what, std::function<void(machine&)> how) override;
  void flush();
  void do_all();
  void make(known& k);
  void forget_oldest();

  bool in_pass_ = false;
  std::atomic<bool> possible_{true};
  key key_;
  std::vector<std::function<void(machine&)>> waiting_;
  std::map<key, known> known_;
  std::uint64_t turn_ = 0;
  counts counts_;
};

/// As TROUPE_CUDA_GRAPHS says: with graphs, unless it is 0.
std::shared_ptr<machine> with_graphs(std::shared_ptr<machine> m);

}  // namespace troupe::gpu::cuda
