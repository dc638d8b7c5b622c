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

#include "gpu/cuda/driver_library.hpp"
#include "gpu/cuda/launches.hpp"
#ifdef TROUPE_NCCL
#include "gpu/cuda/nccl_library.hpp"
#endif

// The machine that is a GPU: libtroupe_cuda.so. Kernels are launched, products are cuBLASLt's. It
// uses nothing of the program's but headers.

namespace troupe::gpu::cuda {

namespace {

void check(cudaError_t e, const char* what) {
  if (e == cudaSuccess) return;
  throw std::runtime_error(std::string{"the GPU refused "} + what + ": " + cudaGetErrorString(e));
}
void check(cublasStatus_t s, const char* what) {
  if (s == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string{"cuBLASLt refused "} + what + ": " +
                           cublasLtGetStatusName(s));
}

template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads) run(const __grid_constant__ Kernel kernel) {
  kernel();
}

/// What cuBLASLt is told of a product, once for each shape and kind.
struct plan {
  cublasLtMatmulDesc_t how = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool found = false;  // cuBLASLt can do it with what comes after it
};

enum class after : int { nothing, bias, gelu, slope };

after after_of(const product& p) {
  if (p.before) return after::gelu;
  if (p.slope_at) return after::slope;
  return p.bias || p.narrow_bias ? after::bias : after::nothing;
}

/// Largest power of two, up to 256, that divides an address.
std::uint32_t alignment_of(const void* p) {
  const auto at = reinterpret_cast<std::uintptr_t>(p) | 256u;
  return static_cast<std::uint32_t>(at & (~at + 1));
}

class gpu_machine final : public launches<gpu_machine> {
 public:
  explicit gpu_machine(int index) : index_{index} {
    enter();
    cudaDeviceProp about{};
    check(cudaGetDeviceProperties(&about, index_), "its description");
    if (about.major < 8)
      throw std::runtime_error(std::string{about.name} +
                               " has no 16-bit tensor cores of the kind that is needed (compute "
                               "capability 8.0 or newer)");
    name_ = about.name;
    for (auto* s : {&compute_, &in_, &out_})
      check(cudaStreamCreateWithFlags(s, cudaStreamNonBlocking), "a stream");
    // A sum's few blocks need not wait until all blocks of a large product have begun.
    int least = 0, first = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &first), "its priorities");
    check(cudaStreamCreateWithPriority(&beside_, cudaStreamNonBlocking, first), "a stream");
    for (auto* e : {&arrived_, &left_, &made_, &summed_})
      check(cudaEventCreateWithFlags(e, cudaEventDisableTiming), "an event");
    check(cublasLtCreate(&blas_), "to start");
    check(cudaMalloc(&workspace_, workspace_bytes), "memory");
  }
  ~gpu_machine() override {
    cudaSetDevice(index_);
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
  void enter() override { check(cudaSetDevice(index_), "to be used"); }

  memory_state memory() override {
    memory_state m;
    check(cudaMemGetInfo(&m.free_bytes, &m.total_bytes), "to say what memory is free");
    return m;
  }
  void* take(std::size_t bytes) override {
    void* memory = nullptr;
    const auto e = cudaMalloc(&memory, bytes < 256 ? 256 : bytes);
    if (e != cudaSuccess) {
      cudaGetLastError();  // it is told here, and nowhere else
      check(e, (std::to_string(bytes) + " bytes of memory").c_str());
    }
    return memory;
  }
  void give(void* memory) noexcept override {
    cudaSetDevice(index_);
    cudaFree(memory);
  }
  void* take_host(std::size_t bytes) override {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, bytes < 256 ? 256 : bytes, cudaHostAllocPortable),
          "memory of the host");
    return memory;
  }
  void give_host(void* memory) noexcept override {
    cudaSetDevice(index_);
    cudaFreeHost(memory);
  }

  void copy_in(void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, in_), "a copy");
    check(cudaEventRecord(arrived_, in_), "an event");
    check(cudaStreamWaitEvent(compute_, arrived_, 0), "an order");
  }
  void copy_out(void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    check(cudaEventRecord(left_, compute_), "an event");
    check(cudaStreamWaitEvent(out_, left_, 0), "an order");
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, out_), "a copy");
  }
  void* mark() override {
    auto m = std::make_unique<two_events>(two_events{event(), event()});
    check(cudaEventRecord((*m)[0], compute_), "an event");
    check(cudaEventRecord((*m)[1], out_), "an event");
    return m.release();  // to wait()
  }
  void wait(void* mark) override {
    const std::unique_ptr<two_events> m{static_cast<two_events*>(mark)};
    for (auto e : *m) check(cudaEventSynchronize(e), "what it was asked for");
    std::lock_guard lock{guard_};
    for (auto e : *m) idle_events_.push_back(e);
  }

  bool reached(void* mark) override {
    for (auto e : *static_cast<two_events*>(mark)) {
      const auto now = cudaEventQuery(e);
      if (now == cudaErrorNotReady) return false;
      check(now, "what it was asked for");
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
  void* beside() override {
    check(cudaEventRecord(made_, compute_), "an event");
    check(cudaStreamWaitEvent(beside_, made_, 0), "an order");
    return beside_;
  }
  void join_beside() override {
    check(cudaEventRecord(summed_, beside_), "an event");
    check(cudaStreamWaitEvent(compute_, summed_, 0), "an order");
  }

  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0)
      check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, compute_), "a copy");
  }
  void zero(void* to, std::size_t bytes) override {
    if (bytes > 0) check(cudaMemsetAsync(to, 0, bytes, compute_), "to clear memory");
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
      cudaGetLastError();  // the kernels are asked for one by one then
      ready = nullptr;
    }
    if (kept != nullptr) cudaGraphDestroy(kept);
    return ready;
  }
  void run_graph(void* graph) override {
    check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), compute_), "a graph");
  }
  void drop_graph(void* graph) noexcept override {
    cudaSetDevice(index_);
    cudaStreamSynchronize(compute_);  // it may be at work
    cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
  }

  void* moment() override {
    cudaEvent_t e = nullptr;
    check(cudaEventCreate(&e), "an event");
    check(cudaEventRecord(e, compute_), "an event");
    return e;
  }
  double seconds(void* from, void* to) override {
    float ms = 0;
    check(cudaEventSynchronize(static_cast<cudaEvent_t>(to)), "what it was asked for");
    check(cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(from), static_cast<cudaEvent_t>(to)),
          "a time");
    return static_cast<double>(ms) * 1e-3;
  }
  void forget(void* moment) noexcept override {
    cudaEventDestroy(static_cast<cudaEvent_t>(moment));
  }

  void multiply(const product& p) override {
    const auto what = after_of(p);
    auto& fused = plan_of(p, what);
    if (fused.found) return multiply(p, fused, what);
    // cuBLASLt has nothing for all of it at once: the product alone, and the project's kernels.
    auto bare = p;
    if (p.before) bare.narrow = p.before;
    auto& alone = plan_of(bare, after::nothing);
    if (!alone.found) throw std::runtime_error("cuBLASLt has no product of these shapes");
    multiply(bare, alone, after::nothing);
    finish(p);
  }

  template <class Kernel>
  void launch(const Kernel& k, std::size_t blocks, std::size_t blocks_y, std::size_t shared) {
    if (shared > 48 * 1024) {
      static std::once_flag allowed;  // once for each kernel; every GPU here is of one kind
      std::call_once(allowed, [&] {
        check(cudaFuncSetAttribute(run<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(shared)),
              "so much shared memory");
      });
    }
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(blocks_y));
    run<Kernel><<<grid, Kernel::threads, shared, compute_>>>(k);
    check(cudaGetLastError(), "a kernel");
  }
  template <class Use>
  void with_tiles(std::uint32_t width, Use use) {
    if (width <= 64)
      use(attention_tiles<64, 4, 64, 32>{});
    else
      use(attention_tiles<128, 4, 32, 32>{});
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
    check(cudaEventCreateWithFlags(&e, cudaEventDisableTiming | cudaEventBlockingSync), "an event");
    return e;
  }

  // cuBLASLt goes by columns: a row-major c = a b is c' = b' a' by columns, so its first factor is
  // our second. A matrix that lies row by row is, by columns, its transpose.
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
    check(cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, columns, rows,
                                     static_cast<std::int64_t>(o.stride)),
          "a layout");
    return layout;
  }
  template <class T>
  static void set(cublasLtMatmulDesc_t how, cublasLtMatmulDescAttributes_t what, const T& value) {
    check(cublasLtMatmulDescSetAttribute(how, what, &value, sizeof value), "an attribute");
  }

  /// Pointers of what comes after a product change from call to call.
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
    check(cublasLtMatmulDescCreate(&made.how, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a product");
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
    check(cublasLtMatrixLayoutCreate(&made.c, p.wide ? CUDA_R_32F : CUDA_R_16BF, p.b.columns,
                                     p.a.rows, static_cast<std::int64_t>(p.stride)),
          "a layout");
    choose(made, std::get<std::uint32_t>(key));
    return made;
  }

  /// The algorithm that cuBLASLt thinks quickest, of those whose sums have one order.
  void choose(plan& made, std::uint32_t aligned) {
    cublasLtMatmulPreference_t wish = nullptr;
    check(cublasLtMatmulPreferenceCreate(&wish), "a preference");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
      check(cublasLtMatmulPreferenceSetAttribute(wish, what, &value, sizeof value), "a preference");
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
    check(
        cublasLtMatmul(blas_, with.how, &one, p.b.at, with.a, p.a.at, with.b, &added, plus, with.c,
                       to, with.c, &with.algorithm, workspace_, workspace_bytes, compute_),
        "a product");
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
    int index, char* sentence, std::size_t size) {
  int count = 0;
  if (const auto e = cudaGetDeviceCount(&count); e != cudaSuccess || count == 0) {
    std::snprintf(sentence, size, "this machine has no CUDA device that can be used: %s",
                  e == cudaSuccess ? "the driver lists none" : cudaGetErrorString(e));
    return nullptr;
  }
  if (index < 0 || index >= count) {
    std::snprintf(sentence, size, "this machine has %d CUDA devices; number %d is none of them",
                  count, index);
    return nullptr;
  }
  try {
    return new troupe::gpu::cuda::gpu_machine(index);
  } catch (const std::exception& e) {
    std::snprintf(sentence, size, "%s", e.what());
    return nullptr;
  }
}
}
