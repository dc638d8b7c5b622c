#include "gpu_plugin/fake_cuda.hpp"

#include <cublasLt.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace troupe::test::fake_cuda {

namespace {

constexpr std::size_t plain_shared = 48 << 10, max_shared = 227 << 10;

struct on_device {  // a stream, or an event
  int device;
};

thread_local int device = 0;
thread_local cudaError_t last = cudaSuccess;

std::recursive_mutex guard;
std::map<std::string, cudaError_t> to_refuse;
std::map<int, cudaError_t> lost;
std::map<std::pair<int, const void*>, std::size_t> shared_limits;  // of kernels, by device
std::set<std::pair<int, const void*>> loaded;
counts so_far;

cudaError_t fails(cudaError_t e) {
  return last = e;
}
/// What becomes of a call before it does anything.
cudaError_t begins(const char* function, int where = device) {
  std::lock_guard lock{guard};
  if (const auto it = lost.find(where); it != lost.end()) return fails(it->second);
  if (const auto it = to_refuse.find(function); it != to_refuse.end()) {
    const auto e = it->second;
    to_refuse.erase(it);
    return fails(e);
  }
  return cudaSuccess;
}
int of(cudaStream_t s) {
  return reinterpret_cast<on_device*>(s)->device;
}
int of(cudaEvent_t e) {
  return reinterpret_cast<on_device*>(e)->device;
}
template <class T>
cudaError_t make(const char* function, T* out) {
  const auto e = begins(function);
  if (e == cudaSuccess) *out = reinterpret_cast<T>(new on_device{device});
  return e;
}
template <class T>
cudaError_t drop(T what) {
  delete reinterpret_cast<on_device*>(what);
  return cudaSuccess;
}
void* memory(std::size_t bytes) {
  return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
}

}  // namespace

counts& seen() {
  return so_far;
}
void refuse_once(const std::string& function, cudaError_t with) {
  std::lock_guard lock{guard};
  to_refuse[function] = with;
}
void lose(int d, cudaError_t with) {
  std::lock_guard lock{guard};
  lost.erase(d);
  if (with != cudaSuccess) lost[d] = with;
}
int current_device() {
  return device;
}

}  // namespace troupe::test::fake_cuda

using namespace troupe::test::fake_cuda;

extern "C" {

// -- what nvcc's own code calls

void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) {
  return 0;
}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*,
                            void*, int*) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
unsigned __cudaPushCallConfiguration(dim3, dim3, std::size_t, cudaStream_t) {
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, std::size_t*, void*) {
  return cudaErrorUnknown;  // kernels are launched by cudaLaunchKernel alone
}
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) {
  return cudaErrorUnknown;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t) {
  return cudaErrorUnknown;
}

// -- devices and errors

cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_count;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int d) {
  if (d < 0 || d >= device_count) return fails(cudaErrorInvalidDevice);
  device = d;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* d) {
  *d = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  *p = {};
  std::strcpy(p->name, "a GPU that is none");
  p->major = 9;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* first) {
  *least = 0, *first = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char*, int, int) {
  return cudaErrorNotSupported;
}
cudaError_t cudaDriverGetVersion(int* v) {
  *v = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* v) {
  *v = 13000;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  return begins("cudaDeviceSynchronize");
}
cudaError_t cudaGetLastError() {
  return std::exchange(last, cudaSuccess);
}
const char* cudaGetErrorString(cudaError_t e) {
  return e == cudaErrorIllegalAddress ? "an illegal memory access was encountered" : "refused";
}

// -- memory

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{80} << 30;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** to, std::size_t bytes) {
  const auto e = begins("cudaMalloc");
  if (e == cudaSuccess) *to = memory(bytes);
  return e;
}
cudaError_t cudaHostAlloc(void** to, std::size_t bytes, unsigned) {
  const auto e = begins("cudaHostAlloc");
  if (e == cudaSuccess) *to = memory(bytes);
  return e;
}
cudaError_t cudaFree(void* p) {
  std::free(p);
  return begins("cudaFree");
}
cudaError_t cudaFreeHost(void* p) {
  std::free(p);
  return begins("cudaFreeHost");
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t s) {
  const auto e = begins("cudaMemcpyAsync", of(s));
  if (e == cudaSuccess) std::memmove(to, from, bytes);
  return e;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t s) {
  const auto e = begins("cudaMemsetAsync", of(s));
  if (e == cudaSuccess) std::memset(to, value, bytes);
  return e;
}

// -- streams and events

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) {
  return make("cudaStreamCreateWithFlags", s);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned, int) {
  return make("cudaStreamCreateWithPriority", s);
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  return drop(s);
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  return begins("cudaStreamSynchronize", of(s));
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t, unsigned) {
  return begins("cudaStreamWaitEvent", of(s));
}
cudaError_t cudaEventCreate(cudaEvent_t* e) {
  return make("cudaEventCreate", e);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) {
  return make("cudaEventCreateWithFlags", e);
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  return drop(e);
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  if (of(e) != of(s)) return fails(cudaErrorInvalidResourceHandle);
  return begins("cudaEventRecord", of(s));
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  return begins("cudaEventQuery", of(e));
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  return begins("cudaEventSynchronize", of(e));
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  *ms = 1;
  return cudaSuccess;
}

// -- kernels and graphs

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  const auto bytes = static_cast<std::size_t>(value);
  if (bytes > max_shared) return fails(cudaErrorInvalidValue);
  const auto e = begins("cudaFuncSetAttribute");
  std::lock_guard lock{guard};
  if (e == cudaSuccess) shared_limits[{device, kernel}] = bytes;
  return e;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void* kernel) {
  *a = {};
  const auto e = begins("cudaFuncGetAttributes");
  std::lock_guard lock{guard};
  if (e == cudaSuccess) loaded.insert({device, kernel});
  return e;
}
cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void**, std::size_t shared,
                             cudaStream_t s) {
  if (const auto e = begins("cudaLaunchKernel", of(s)); e != cudaSuccess) return e;
  if (of(s) != device) return fails(cudaErrorInvalidResourceHandle);
  std::lock_guard lock{guard};
  const auto limit = shared_limits.find({device, kernel});
  if (shared > (limit == shared_limits.end() ? plain_shared : limit->second))
    return fails(cudaErrorInvalidValue);
  if (grid.x == 0 || grid.x > 0x7fffffff || grid.y == 0 || grid.y > 65535 || block.x > 1024)
    return fails(cudaErrorInvalidConfiguration);
  if (loaded.insert({device, kernel}).second) ++so_far.late_loads;
  ++so_far.launches;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  return fails(cudaErrorNotSupported);
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) {
  return fails(cudaErrorNotSupported);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long) {
  return fails(cudaErrorNotSupported);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) {
  return fails(cudaErrorNotSupported);
}
cudaError_t cudaGraphDestroy(cudaGraph_t) {
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) {
  return cudaSuccess;
}

// -- cuBLASLt

std::size_t cublasLtGetVersion() {
  return 130100;
}
const char* cublasLtGetStatusName(cublasStatus_t) {
  return "refused";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* h) {
  *h = reinterpret_cast<cublasLtHandle_t>(new on_device{device});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h) {
  delete reinterpret_cast<on_device*>(h);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t,
                                        cudaDataType_t) {
  *d = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
                                              const void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* l, cudaDataType, std::uint64_t,
                                          std::uint64_t, std::int64_t) {
  *l = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) {
  *p = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t* best, int* found) {
  *best = {};
  *found = 1;
  std::lock_guard lock{guard};
  ++so_far.choices;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t, const void*, const void*,
                              cublasLtMatrixLayout_t, const void*, cublasLtMatrixLayout_t,
                              const void*, const void*, cublasLtMatrixLayout_t, void*,
                              cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t*, void*,
                              std::size_t, cudaStream_t s) {
  const auto handle = reinterpret_cast<on_device*>(h)->device;
  if (handle != device || of(s) != device) return CUBLAS_STATUS_EXECUTION_FAILED;
  std::lock_guard lock{guard};
  ++so_far.products;
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
