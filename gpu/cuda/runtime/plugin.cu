#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "gpu/cuda/kernels/launches.hpp"
#include "gpu/cuda/runtime/driver_library.hpp"
#ifdef TROUPE_NCCL
#include "gpu/cuda/runtime/nccl_library.hpp"
#endif

// The machine of a real GPU, in libtroupe_cuda.so: launches kernels; products use cuBLASLt. It uses
// only headers of the program.

namespace troupe::gpu::cuda {

namespace {

/// Errors after which no call of this process on that GPU succeeds: according to CUDA's manual the
/// process has to be restarted.
bool loses_gpu(cudaError_t e) {
  switch (e) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

void check(cudaError_t e, const char* function) {
  if (e == cudaSuccess) return;
  cudaGetLastError();  // clears the error, so that it is not reported by the next call
  const auto text = std::string{"the GPU refused "} + function + ": " + cudaGetErrorString(e);
  if (!loses_gpu(e)) throw std::runtime_error(text);
  throw gpu_lost(text + "; this GPU is lost until the process is restarted");
}
void check(cublasStatus_t s, const char* function) {
  if (s == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string{"cuBLASLt failed in "} + function + ": " +
                           cublasLtGetStatusName(s));
}
// Adds the failed function's name to the error.
#define CALL(function, ...) check(function(__VA_ARGS__), #function)

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

/// cuBLASLt's description of a product, cached by shape and kind.
struct plan {
  cublasLtMatmulDesc_t how = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool found = false;  // cuBLASLt supports it with its epilogue
};

enum class after : int { nothing, bias, gelu, slope };

after after_of(const product& p) {
  if (p.before) return after::gelu;
  if (p.slope_at) return after::slope;
  return p.bias || p.narrow_bias ? after::bias : after::nothing;
}

/// Largest power of two, up to 16, that divides an address. No kernel needs more, and cuBLASLt's
/// choice of algorithm must not depend on the place of a parameter.
std::uint32_t alignment_of(const void* p) {
  const auto at = reinterpret_cast<std::uintptr_t>(p) | 16u;
  return static_cast<std::uint32_t>(at & (~at + 1));
}

class gpu_machine final : public launches<gpu_machine> {
 public:
  explicit gpu_machine(int index) : index_{index} {
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
    int least = 0, first = 0;
    CALL(cudaDeviceGetStreamPriorityRange, &least, &first);
    CALL(cudaStreamCreateWithPriority, &beside_, cudaStreamNonBlocking, first);
    for (auto* e : {&arrived_, &left_, &made_, &summed_})
      CALL(cudaEventCreateWithFlags, e, cudaEventDisableTiming);
    CALL(cublasLtCreate, &blas_);
    CALL(cudaMalloc, &workspace_, workspace_bytes);
    prepare_kernels();
  }
  ~gpu_machine() override {
    const on_device mine{index_};
    cudaDeviceSynchronize();
    for (auto& [shape, p] : plans_) {
      if (p.how) cublasLtMatmulDescDestroy(p.how);
      for (auto layout : {p.a, p.b, p.c})
        if (layout) cublasLtMatrixLayoutDestroy(layout);
    }
    cublasLtDestroy(blas_);
    cudaFree(workspace_);
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
    check(cudaMalloc(&memory, bytes < 256 ? 256 : bytes),
          ("cudaMalloc of " + std::to_string(bytes) + " bytes").c_str());
    return memory;
  }
  void give(void* memory) noexcept override {
    const on_device mine{index_};
    cudaFree(memory);
  }
  void* take_host(std::size_t bytes) override {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, bytes < 256 ? 256 : bytes, cudaHostAllocPortable),
          ("cudaHostAlloc of " + std::to_string(bytes) + " bytes").c_str());
    return memory;
  }
  void give_host(void* memory) noexcept override {
    const on_device mine{index_};
    cudaFreeHost(memory);
  }

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
  void* record_event() override {
    auto m = std::make_unique<two_events>(two_events{event(), event()});
    CALL(cudaEventRecord, (*m)[0], compute_);
    CALL(cudaEventRecord, (*m)[1], out_);
    return m.release();  // released by wait()
  }
  void wait(void* event) override {
    const std::unique_ptr<two_events> m{static_cast<two_events*>(event)};
    for (auto e : *m) CALL(cudaEventSynchronize, e);
    std::lock_guard lock{guard_};
    for (auto e : *m) idle_events_.push_back(e);
  }

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
  void drop_graph(void* graph) noexcept override {
    const on_device mine{index_};
    cudaStreamSynchronize(compute_);  // it may be running
    cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
  }

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
    const auto what = after_of(p);
    auto& fused = plan_of(p, what);
    if (fused.found) return multiply(p, fused, what);
    // cuBLASLt does not support the epilogue: plain product, then the project's kernels.
    auto bare = p;
    if (p.before) bare.narrow = p.before;
    auto& alone = plan_of(bare, after::nothing);
    if (!alone.found)
      throw std::runtime_error("cuBLASLt has no algorithm for a product of these shapes");
    multiply(bare, alone, after::nothing);
    finish(p);
  }

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

  // cuBLASLt is column-major: a row-major c = a b is c' = b' a' there, so its first factor is our
  // second one. A row-major matrix is the transpose in column-major order.
  using shape = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t, std::size_t,
                           std::size_t, bool, bool, bool, bool, int, std::uint32_t>;

  static shape shape_of(const product& p, after what) {
    std::uint32_t aligned =
        alignment_of(p.a.at) < alignment_of(p.b.at) ? alignment_of(p.a.at) : alignment_of(p.b.at);
    const void* to = p.wide ? static_cast<const void*>(p.wide) : p.narrow;
    if (alignment_of(to) < aligned) aligned = alignment_of(to);
    return {p.a.rows,
            p.b.columns,
            p.a.columns,
            p.a.stride,
            p.b.stride,
            p.stride,
            p.a.turned,
            p.b.turned,
            p.wide,
            p.plus != nullptr,
            static_cast<int>(what),
            aligned};
  }

  static cublasLtMatrixLayout_t layout_of(const operand& o) {
    const auto rows = o.turned ? o.columns : o.rows, columns = o.turned ? o.rows : o.columns;
    cublasLtMatrixLayout_t layout = nullptr;
    CALL(cublasLtMatrixLayoutCreate, &layout, CUDA_R_16BF, columns, rows,
         static_cast<std::int64_t>(o.stride));
    return layout;
  }
  template <class T>
  static void set(cublasLtMatmulDesc_t how, cublasLtMatmulDescAttributes_t what, const T& value) {
    CALL(cublasLtMatmulDescSetAttribute, how, what, &value, sizeof value);
  }

  /// An epilogue's pointers change from call to call.
  static void set_pointers(cublasLtMatmulDesc_t how, const product& p, after what) {
    const void* bias = p.wide ? static_cast<const void*>(p.bias) : p.narrow_bias;
    if (what == after::bias || what == after::gelu)
      set(how, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    const void* other = what == after::gelu ? p.before : p.slope_at;
    if (what == after::gelu || what == after::slope)
      set(how, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, other);
  }

  plan& plan_of(const product& p, after what) {
    const auto key = shape_of(p, what);
    if (const auto known = plans_.find(key); known != plans_.end()) return known->second;
    auto& made = plans_[key];
    CALL(cublasLtMatmulDescCreate, &made.how, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    set(made.how, CUBLASLT_MATMUL_DESC_TRANSA, p.b.turned ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(made.how, CUBLASLT_MATMUL_DESC_TRANSB, p.a.turned ? CUBLAS_OP_T : CUBLAS_OP_N);
    const cublasLtEpilogue_t epilogue = what == after::bias    ? CUBLASLT_EPILOGUE_BIAS
                                        : what == after::gelu  ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS
                                        : what == after::slope ? CUBLASLT_EPILOGUE_DGELU
                                                               : CUBLASLT_EPILOGUE_DEFAULT;
    set(made.how, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    if (what == after::gelu || what == after::slope)
      set(made.how, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, static_cast<std::int64_t>(p.stride));
    set_pointers(made.how, p, what);
    made.a = layout_of(p.b);
    made.b = layout_of(p.a);
    CALL(cublasLtMatrixLayoutCreate, &made.c, p.wide ? CUDA_R_32F : CUDA_R_16BF, p.b.columns,
         p.a.rows, static_cast<std::int64_t>(p.stride));
    choose(made, std::get<std::uint32_t>(key));
    return made;
  }

  /// cuBLASLt's fastest algorithm among those with a deterministic order of additions.
  void choose(plan& made, std::uint32_t aligned) {
    cublasLtMatmulPreference_t wish = nullptr;
    CALL(cublasLtMatmulPreferenceCreate, &wish);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
      CALL(cublasLtMatmulPreferenceSetAttribute, wish, what, &value, sizeof value);
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_bytes));
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    for (const auto what :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(what, aligned);
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const auto status = cublasLtMatmulAlgoGetHeuristic(blas_, made.how, made.a, made.b, made.c,
                                                       made.c, wish, 1, &best, &found);
    cublasLtMatmulPreferenceDestroy(wish);
    made.found = status == CUBLAS_STATUS_SUCCESS && found > 0;
    made.algorithm = best.algo;
  }

  void multiply(const product& p, const plan& with, after what) {
    set_pointers(with.how, p, what);
    const float one = 1, added = p.plus ? 1.0f : 0.0f;
    void* to = p.wide ? static_cast<void*>(p.wide) : p.narrow;
    const void* plus = p.plus ? p.plus : to;
    CALL(cublasLtMatmul, blas_, with.how, &one, p.b.at, with.a, p.a.at, with.b, &added, plus,
         with.c, to, with.c, &with.algorithm, workspace_, workspace_bytes, compute_);
  }

  int index_;
  std::string name_;
  cudaStream_t compute_ = nullptr, in_ = nullptr, out_ = nullptr, beside_ = nullptr;
  cudaEvent_t arrived_ = nullptr, left_ = nullptr, made_ = nullptr, summed_ = nullptr;
  cublasLtHandle_t blas_ = nullptr;
  void* workspace_ = nullptr;
  std::map<shape, plan> plans_;
  std::mutex guard_;
  std::vector<cudaEvent_t> idle_events_;
};

}  // namespace

}  // namespace troupe::gpu::cuda

extern "C" {

extern __attribute__((visibility("default"))) const int troupe_cuda_machine_version;
const int troupe_cuda_machine_version = troupe::gpu::cuda::machine_version;

__attribute__((visibility("default"))) troupe::gpu::cuda::machine* troupe_open_cuda_machine(
    int index, char* sentence, std::size_t size, bool* lost) {
  *lost = false;
  int count = 0;
  if (const auto e = cudaGetDeviceCount(&count); e != cudaSuccess || count == 0) {
    std::snprintf(sentence, size, "no usable CUDA device: %s",
                  e == cudaSuccess ? "the driver lists none" : cudaGetErrorString(e));
    return nullptr;
  }
  if (index < 0 || index >= count) {
    std::snprintf(sentence, size, "found %d CUDA devices; device %d does not exist", count, index);
    return nullptr;
  }
  try {
    return new troupe::gpu::cuda::gpu_machine(index);
  } catch (const std::exception& e) {
    *lost = dynamic_cast<const troupe::gpu::cuda::gpu_lost*>(&e) != nullptr;
    std::snprintf(sentence, size, "%s", e.what());
    return nullptr;
  }
}
}
