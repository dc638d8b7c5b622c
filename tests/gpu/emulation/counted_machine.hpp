#pragma once

#include <atomic>
#include <new>

#include "gpu/cuda/runtime/calls.hpp"

namespace troupe::gpu::cuda {

/// The memory that a stage allocates on a GPU. Pools never free memory, so it is also the peak.
struct taken_memory {
  std::atomic<std::uint64_t> bytes{0}, blocks{0}, host_bytes{0};
};

/// A machine that counts allocated memory.
class counting_machine final : public kernel_interceptor {
 public:
  counting_machine(std::shared_ptr<machine> behind, std::shared_ptr<taken_memory> count)
      : kernel_interceptor{std::move(behind)}, count_{std::move(count)} {}

  void* take(std::size_t bytes) override {
    count_->bytes += bytes;
    ++count_->blocks;
    return kernel_interceptor::take(bytes);
  }
  void* take_host(std::size_t bytes) override {
    count_->host_bytes += bytes;
    return kernel_interceptor::take_host(bytes);
  }

 private:
  void perform(call, std::function<void(machine&)> how) override { how(behind()); }
  std::shared_ptr<taken_memory> count_;
};

/// A machine that does nothing: memory has only addresses, results are undefined. Behind a counting
/// machine it determines a stage's memory without a GPU and without allocating it.
class idle_machine final : public kernel_interceptor {
 public:
  idle_machine() : kernel_interceptor{nullptr} {}

  std::string name() const override { return "no machine"; }
  machine_facts facts() override { return {}; }
  void enter() override {}
  memory_state memory() override { return {}; }
  void* take(std::size_t bytes) override {
    return reinterpret_cast<void*>(next_.fetch_add((bytes + 255) / 256 * 256));
  }
  void give(void*) noexcept override {}
  void* take_host(std::size_t bytes) override { return ::operator new(bytes); }
  void give_host(void* memory) noexcept override { ::operator delete(memory); }
  void let_go(void*, std::size_t) noexcept override {}
  void copy_in(void*, const void*, std::size_t) override {}
  void copy_out(void*, const void*, std::size_t) override {}
  void* record_event() override { return nullptr; }
  void wait(void*) override {}
  bool begin_graph() override { return false; }
  void* timing_event() override { return nullptr; }

 private:
  void perform(call, std::function<void(machine&)>) override {}
  std::atomic<std::uintptr_t> next_{std::uintptr_t{1} << 44};
};

}  // namespace troupe::gpu::cuda
