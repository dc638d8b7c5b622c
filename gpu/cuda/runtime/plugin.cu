#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "gpu/cuda/runtime/blas_products.hpp"
#include "gpu/cuda/runtime/driver_library.hpp"
#include "gpu/cuda/runtime/launches.hpp"
#ifdef TROUPE_NCCL
#include "gpu/cuda/runtime/nccl_library.hpp"
#endif

// The machine of a real GPU, in libtroupe_cuda.so: launches kernels; products use cuBLASLt. It uses
// only headers of the program.

namespace troupe::gpu::cuda {

namespace {

/// Selects another device for its scope, on any thread.
class on_device {
 public:
  explicit on_device(int index) {
    cudaGetDevice(&before_);
    cudaSetDevice(index);
  }
  ~on_device() {
    cudaSetDevice(before_);
    cudaGetLastError();  // errors of releasing are ignored
  }
  on_device(const on_device&) = delete;

 private:
  int before_ = 0;
};

template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads) run(const __grid_constant__ Kernel kernel) {
  kernel();
}

/// Whether new memory is filled with values that are not numbers, to find reads of memory that
/// nothing has written.
/// The pattern is all ones, which is NaN in both floating-point formats.
bool wants_poison() {
  const auto* wish = std::getenv("TROUPE_CUDA_POISON");
  return wish && std::string_view{wish} == "1";
}

class gpu_machine final : public launches<gpu_machine> {
 public:
  explicit gpu_machine(int index) : index_{index} {
    if (const auto& why = blas_library::loaded().why; !why.empty()) throw std::runtime_error(why);
    enter();
    cudaDeviceProp about{};
    CALL(cudaGetDeviceProperties, &about, index_);
    if (about.major < 8)
      throw std::runtime_error(
          std::string{about.name} +
          " lacks the required 16-bit tensor cores (compute capability 8.0 or newer)");
    name_ = about.name;
    for (auto* s : {&compute_, &in_, &out_})
      CALL(cudaStreamCreateWithFlags, s, cudaStreamNonBlocking);
    // An all-reduce's few blocks must not wait for all blocks of a large product.
    int min = 0, first = 0;
    CALL(cudaDeviceGetStreamPriorityRange, &min, &first);
    CALL(cudaStreamCreateWithPriority, &beside_, cudaStreamNonBlocking, first);
    for (auto* e : {&arrived_, &left_, &made_, &summed_})
      CALL(cudaEventCreateWithFlags, e, cudaEventDisableTiming);
    products_.open(compute_);
    prepare_kernels();
  }
  ~gpu_machine() override {
    const on_device mine{index_};
    cudaDeviceSynchronize();
    products_.close();
    for (auto e : {arrived_, left_, made_, summed_}) cudaEventDestroy(e);
    for (auto e : idle_events_) cudaEventDestroy(e);
    for (auto s : {compute_, in_, out_, beside_}) cudaStreamDestroy(s);
  }

  std::string name() const override { return name_; }
  machine_facts facts() override { return facts_of(index_); }
  void enter() override { CALL(cudaSetDevice, index_); }

  memory_state memory() override {
    memory_state m;
    CALL(cudaMemGetInfo, &m.free_bytes, &m.total_bytes);
    return m;
  }
  void* take(std::size_t bytes) override {
    void* memory = nullptr;
    check_allocated(cudaMalloc(&memory, bytes < 256 ? 256 : bytes), "cudaMalloc", bytes);
    if (poisons_) {
      CALL(cudaMemsetAsync, memory, 0xff, bytes, in_);
      CALL(cudaStreamSynchronize, in_);
    }
    return memory;
  }
  // The last owner may be a thread of another GPU.
  void give(void* memory) noexcept override {
    const on_device mine{index_};
    cudaFree(memory);
  }
  // Portable memory counts as pinned for all GPUs of the program, and not only for this one.
  void* take_host(std::size_t bytes) override {
    void* memory = nullptr;
    check_allocated(cudaHostAlloc(&memory, bytes < 256 ? 256 : bytes, cudaHostAllocPortable),
                    "cudaHostAlloc", bytes, false);
    return memory;
  }
  void give_host(void* memory) noexcept override {
    const on_device mine{index_};
    cudaFreeHost(memory);
  }

  // Copies have streams of their own so that they overlap with kernels: the next micro-batch
  // arrives while the present one is computed. The compute stream waits for an arrival by an event,
  // without the host.
  void copy_in(void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    CALL(cudaMemcpyAsync, to, from, bytes, cudaMemcpyHostToDevice, in_);
    CALL(cudaEventRecord, arrived_, in_);
    CALL(cudaStreamWaitEvent, compute_, arrived_, 0);
  }
  void copy_out(void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    CALL(cudaEventRecord, left_, compute_);
    CALL(cudaStreamWaitEvent, out_, left_, 0);
    CALL(cudaMemcpyAsync, to, from, bytes, cudaMemcpyDeviceToHost, out_);
  }
  // Completion of an operation is two events: its kernels on the compute stream, and its results
  // that leave on the other. Events are recycled, because creating one costs a call into the
  // driver; they block instead of spinning, which would take a core from other devices' threads.
  void* record_event() override {
    auto both = std::make_unique<two_events>(two_events{event(), event()});
    auto result = cudaEventRecord((*both)[0], compute_);
    if (result == cudaSuccess) result = cudaEventRecord((*both)[1], out_);
    if (result != cudaSuccess) release(*both);
    check(result, "cudaEventRecord");
    return both.release();  // released by wait()
  }
  // Both events are released before an error is thrown, so that none is lost.
  void wait(void* event) override {
    const std::unique_ptr<two_events> both{static_cast<two_events*>(event)};
    auto result = cudaEventSynchronize((*both)[0]);
    if (result == cudaSuccess) result = cudaEventSynchronize((*both)[1]);
    release(*both);
    check(result, "cudaEventSynchronize");
  }

  // Polled by a thread that must also watch its peers, so it never blocks.
  bool reached(void* event) override {
    for (auto e : *static_cast<two_events*>(event)) {
      const auto now = cudaEventQuery(e);
      if (now == cudaErrorNotReady) {
        cudaGetLastError();  // not an error, but recorded as one
        return false;
      }
      check(now, "cudaEventQuery");
    }
    return true;
  }

  const collectives* sums_with_others(std::string& why) override {
#ifdef TROUPE_NCCL
    const auto& n = nccl_library::loaded();
    why = n.why;
    return why.empty() ? &n.as : nullptr;
#else
    why = "this program was built without NCCL";
    return nullptr;
#endif
  }
  void* stream() override {
    return compute_;
  }
  // All-reduces run beside the backward that makes the next gradients: the side stream starts after
  // what was computed so far, and join_beside() makes later kernels wait for the sums.
  void* side_stream() override {
    CALL(cudaEventRecord, made_, compute_);
    CALL(cudaStreamWaitEvent, beside_, made_, 0);
    return beside_;
  }
  void join_beside() override {
    CALL(cudaEventRecord, summed_, beside_);
    CALL(cudaStreamWaitEvent, compute_, summed_, 0);
  }

  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) CALL(cudaMemcpyAsync, to, from, bytes, cudaMemcpyDeviceToDevice, compute_);
  }
  void zero(void* to, std::size_t bytes) override {
    if (bytes > 0) CALL(cudaMemsetAsync, to, 0, bytes, compute_);
  }

  // Relaxed capture lets other threads of the program use the CUDA API meanwhile. A machine that
  // cannot capture clears the error and launches the kernels one by one.
  bool begin_graph() override {
    return cudaStreamBeginCapture(compute_, cudaStreamCaptureModeRelaxed) == cudaSuccess ||
           (cudaGetLastError(), false);
  }
  void* end_graph() override {
    cudaGraph_t kept = nullptr;
    cudaGraphExec_t ready = nullptr;
    if (cudaStreamEndCapture(compute_, &kept) != cudaSuccess ||
        cudaGraphInstantiate(&ready, kept, 0) != cudaSuccess) {
      cudaGetLastError();  // kernels are launched one by one then
      ready = nullptr;
    }
    if (kept != nullptr) cudaGraphDestroy(kept);
    return ready;
  }
  void run_graph(void* graph) override {
    CALL(cudaGraphLaunch, static_cast<cudaGraphExec_t>(graph), compute_);
  }
  // Graphs are released on any thread, hence the device is selected for the scope.
  void drop_graph(void* graph) noexcept override {
    const on_device mine{index_};
    cudaStreamSynchronize(compute_);  // it may be running
    cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
  }

  // A timed event costs more than the others, so it is created only for operations that are timed.
  void* timing_event() override {
    cudaEvent_t e = nullptr;
    CALL(cudaEventCreate, &e);
    CALL(cudaEventRecord, e, compute_);
    return e;
  }
  double seconds(void* from, void* to) override {
    float ms = 0;
    CALL(cudaEventSynchronize, static_cast<cudaEvent_t>(to));
    CALL(cudaEventElapsedTime, &ms, static_cast<cudaEvent_t>(from), static_cast<cudaEvent_t>(to));
    return static_cast<double>(ms) * 1e-3;
  }
  void forget(void* timing_event) noexcept override {
    cudaEventDestroy(static_cast<cudaEvent_t>(timing_event));
  }

  void multiply(const product& p) override {
    if (!products_.multiply(p)) finish(p);
  }

  // CUDA loads kernels lazily, and loading may wait for work of the GPU, or fail within a graph's
  // capture. So all kernels are loaded at the start.
  template <class Kernel>
  void prepare(std::size_t shared) {
    static_assert(Kernel::threads <= 1024 && Kernel::threads % lanes == 0);
    if (shared > plain_shared_bytes)
      CALL(cudaFuncSetAttribute, run<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
           static_cast<int>(shared));
    cudaFuncAttributes about{};
    CALL(cudaFuncGetAttributes, &about, run<Kernel>);  // loads the kernel
  }
  template <class Kernel>
  void launch(const Kernel& k, std::size_t blocks, std::size_t blocks_y, std::size_t shared) {
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(blocks_y));
    void* arguments[] = {const_cast<Kernel*>(&k)};
    CALL(cudaLaunchKernel, run<Kernel>, grid, dim3(Kernel::threads), arguments, shared, compute_);
  }
  template <class Use>
  void with_tiles(std::uint32_t width, Use use) {
    with_gpu_tiles(width, use);
  }

 private:
  using two_events = std::array<cudaEvent_t, 2>;

  void release(const two_events& both) {
    std::lock_guard lock{guard_};
    for (auto e : both) idle_events_.push_back(e);
  }
  cudaEvent_t event() {
    {
      std::lock_guard lock{guard_};
      if (!idle_events_.empty()) {
        auto e = idle_events_.back();
        idle_events_.pop_back();
        return e;
      }
    }
    cudaEvent_t e = nullptr;
    CALL(cudaEventCreateWithFlags, &e, cudaEventDisableTiming | cudaEventBlockingSync);
    return e;
  }

  const int index_;
  const bool poisons_ = wants_poison();
  std::string name_;
  cudaStream_t compute_ = nullptr, in_ = nullptr, out_ = nullptr, beside_ = nullptr;
  cudaEvent_t arrived_ = nullptr, left_ = nullptr, made_ = nullptr, summed_ = nullptr;
  blas_products products_;
  std::mutex guard_;
  std::vector<cudaEvent_t> idle_events_;
};

}  // namespace

}  // namespace troupe::gpu::cuda

extern "C" {

extern __attribute__((visibility("default"))) const int troupe_cuda_machine_version;
const int troupe_cuda_machine_version = troupe::gpu::cuda::machine_version;

__attribute__((visibility("default"))) troupe::gpu::cuda::machine* troupe_open_cuda_machine(
    int index, char* sentence, std::size_t size, troupe::gpu::cuda::open_failure* why) {
  using namespace troupe::gpu::cuda;
  *why = open_failure::unusable;
  int count = 0;
  if (const auto e = cudaGetDeviceCount(&count); e != cudaSuccess || count == 0) {
    // Without a driver CUDA reports one that is too old.
    const bool driver = e == cudaSuccess || dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    std::snprintf(sentence, size, "no usable CUDA device: %s",
                  e == cudaSuccess ? "the driver lists none"
                  : driver         ? cudaGetErrorString(e)
                           : "this machine has no NVIDIA driver (libcuda.so.1 was not found)");
    return nullptr;
  }
  if (index < 0 || index >= count) {
    std::snprintf(sentence, size, "found %d CUDA devices; device %d does not exist", count, index);
    return nullptr;
  }
  try {
    return new troupe::gpu::cuda::gpu_machine(index);
  } catch (const std::exception& e) {
    if (dynamic_cast<const gpu_lost*>(&e)) *why = open_failure::lost;
    if (dynamic_cast<const gpu_out_of_memory*>(&e)) *why = open_failure::out_of_memory;
    std::snprintf(sentence, size, "%s", e.what());
    return nullptr;
  }
}
}
