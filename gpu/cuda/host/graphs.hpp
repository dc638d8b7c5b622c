#pragma once

#include <atomic>
#include <map>
#include <string>

#include "gpu/cuda/runtime/calls.hpp"

namespace troupe::gpu::cuda {

/// A machine that records the kernels of a pass until its end. A sequence that was recorded before,
/// with the same arguments in the same memory, is launched as one CUDA graph, which starts faster
/// than its kernels one by one; others are launched one by one, and become a graph when they recur.
/// Results are bitwise equal either way.
class pass_graphs final : public kernel_interceptor {
 public:
  explicit pass_graphs(std::shared_ptr<machine> behind) : kernel_interceptor{std::move(behind)} {}
  ~pass_graphs() override;

  void begin_pass() override { in_pass_ = true; }
  void end_pass() override;
  void drop_pass() noexcept override;
  /// Before other work is added to the stream: launches the recorded kernels.
  void* stream() override {
    flush();
    return kernel_interceptor::stream();
  }
  void* side_stream() override {
    flush();
    return kernel_interceptor::side_stream();
  }

  /// From the next pass on, kernels are launched one by one.
  void stop() { possible_ = false; }
  /// The numbers of created and launched graphs.
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

/// Graphs are used unless TROUPE_CUDA_GRAPHS is 0.
std::shared_ptr<machine> with_graphs(std::shared_ptr<machine> m);

}  // namespace troupe::gpu::cuda
