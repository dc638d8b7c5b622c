#pragma once

#include <cxxabi.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <new>
#include <string>
#include <typeinfo>

#include "gpu/cuda/runtime/launches.hpp"

namespace troupe::bench {

/// A machine without a GPU that notes which kernels are launched, each with its blocks; products,
/// which have no kernel of the project's, are not. Memory has only addresses.
class launch_list final : public gpu::cuda::launches<launch_list> {
 public:
  struct kernel {
    std::size_t threads = 0, shared_bytes = 0;
    std::size_t launches = 0;
  };
  /// By the kernel's type.
  std::map<std::string, kernel> kernels;

  std::string name() const override { return "no machine"; }
  void enter() override {}
  void* take(std::size_t bytes) override {
    return reinterpret_cast<void*>(next_.fetch_add((bytes + 255) / 256 * 256));
  }
  void give(void*) noexcept override {}
  void* take_host(std::size_t bytes) override { return ::operator new(bytes); }
  void give_host(void* memory) noexcept override { ::operator delete(memory); }
  void copy_in(void*, const void*, std::size_t) override {}
  void copy_out(void*, const void*, std::size_t) override {}
  void* record_event() override { return nullptr; }
  void wait(void*) override {}
  bool reached(void*) override { return true; }
  const gpu::cuda::collectives* sums_with_others(std::string& why) override {
    why = "there is no machine";
    return nullptr;
  }
  void* stream() override { return nullptr; }
  void* side_stream() override { return nullptr; }
  void join_beside() override {}
  void copy(void*, const void*, std::size_t) override {}
  void zero(void*, std::size_t) override {}
  void multiply(const gpu::cuda::product&) override {}

  template <class Kernel>
  void prepare(std::size_t) {}
  template <class Kernel>
  void launch(const Kernel&, std::size_t, std::size_t, std::size_t shared_bytes) {
    auto& k = kernels[type_name(typeid(Kernel))];
    k.threads = Kernel::threads;
    k.shared_bytes = shared_bytes;
    ++k.launches;
  }
  template <class Use>
  void with_tiles(std::uint32_t width, Use use) {
    gpu::cuda::with_gpu_tiles(width, use);
  }

 private:
  static std::string type_name(const std::type_info& type) {
    int status = 0;
    char* text = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
    const std::string name = text ? text : type.name();
    std::free(text);
    return name;
  }
  std::atomic<std::uintptr_t> next_{std::uintptr_t{1} << 44};
};

}  // namespace troupe::bench
