#pragma once

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <string>

#include "gpu/cuda/runtime/blas_library.hpp"
#include "gpu/cuda/runtime/machine.hpp"

namespace troupe::gpu::cuda {

/// Properties from the driver's management library (NVML), if it is installed: CUDA does not report
/// the present clocks. nvml.h is not part of every toolkit, so its functions are declared here.
class driver_library {
 public:
  explicit driver_library(int index)
      : library_{dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)} {
    char bus[32] = "";
    const auto start = function<int()>("nvmlInit_v2");
    const auto find = function<int(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
    if (!start || !find || start() != 0) return;
    started_ = true;
    if (cudaDeviceGetPCIBusId(bus, sizeof bus, index) != cudaSuccess || find(bus, &device_) != 0)
      device_ = nullptr;
  }
  ~driver_library() {
    if (const auto stop = function<int()>("nvmlShutdown"); stop && started_) stop();
    if (library_) dlclose(library_);
  }
  driver_library(const driver_library&) = delete;

  enum clock : unsigned { core = 1, memory = 2 };  // nvmlClockType_t: SM, memory
  double now_mhz(clock which) const { return mhz("nvmlDeviceGetClockInfo", which); }
  double max_mhz(clock which) const { return mhz("nvmlDeviceGetMaxClockInfo", which); }
  std::string version() const {
    char text[96] = "";
    const auto ask = function<int(char*, unsigned)>("nvmlSystemGetDriverVersion");
    return ask && started_ && ask(text, sizeof text) == 0 ? text : "";
  }

 private:
  template <class F>
  F* function(const char* name) const {
    return library_ ? reinterpret_cast<F*>(dlsym(library_, name)) : nullptr;
  }
  double mhz(const char* name, clock which) const {
    unsigned value = 0;
    const auto ask = function<int(void*, unsigned, unsigned*)>(name);
    return ask && device_ && ask(device_, which, &value) == 0 ? value : 0;
  }

  void* library_;
  void* device_ = nullptr;
  bool started_ = false;
};

/// "13.0" of 13000.
inline std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// Properties of a GPU from CUDA, cuBLASLt and the driver; unknown ones stay empty.
inline machine_facts facts_of(int index) {
  machine_facts f;
  const driver_library driver{index};
  int of_driver = 0, of_runtime = 0;
  if (cudaDriverGetVersion(&of_driver) == cudaSuccess)
    f.driver = driver.version() + " (CUDA " + version_text(of_driver) + ")";
  if (cudaRuntimeGetVersion(&of_runtime) == cudaSuccess)
    f.runtime = "CUDA " + version_text(of_runtime);
  f.libraries = "cuBLASLt " + std::to_string(blas_library::loaded().version());
  using clocks = driver_library;
  f.core_mhz = driver.now_mhz(clocks::core), f.core_max_mhz = driver.max_mhz(clocks::core);
  f.memory_mhz = driver.now_mhz(clocks::memory);
  f.memory_max_mhz = driver.max_mhz(clocks::memory);
  if (cudaGetDeviceCount(&f.devices) != cudaSuccess) f.devices = 1;
  return f;
}

}  // namespace troupe::gpu::cuda
