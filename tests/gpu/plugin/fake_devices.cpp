// The fake CUDA's devices, errors and memory.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "gpu/plugin/fake_state.hpp"

namespace troupe::test::fake_cuda {

namespace {

struct allocation {
  std::size_t bytes;
  memory_kind kind;
  int device;
  bool portable;
};

/// The part of new memory that is filled. Only cuBLASLt's workspace is larger, and is never read.
constexpr std::size_t max_filled_bytes = 4 << 20;

thread_local int device = 0;
thread_local cudaError_t last = cudaSuccess;

std::map<std::string, cudaError_t> to_refuse;
std::map<int, cudaError_t> lost;
std::map<const std::byte*, allocation> memory;
counts so_far;
cudaError_t count_answer = cudaSuccess;

std::map<const std::byte*, allocation>::const_iterator find(const void* at) {
  auto it = memory.upper_bound(static_cast<const std::byte*>(at));
  if (it == memory.begin()) return memory.end();
  --it;
  return static_cast<const std::byte*>(at) < it->first + it->second.bytes ? it : memory.end();
}

cudaError_t allocate(const char* function, void** to, std::size_t bytes, memory_kind kind,
                     bool portable) {
  if (const auto e = begins(function); e != cudaSuccess) return e;
  const auto whole = (bytes + 255) / 256 * 256;
  *to = std::aligned_alloc(256, whole);
  std::memset(*to, switched().new_memory, std::min(whole, max_filled_bytes));
  std::lock_guard lock{guard()};
  memory[static_cast<std::byte*>(*to)] = {whole, kind, device, portable};
  return cudaSuccess;
}

/// CUDA waits for the device first, which may still use the memory.
cudaError_t release(const char* function, void* p, memory_kind kind) {
  if (p == nullptr) return cudaSuccess;
  finish({});
  {
    std::lock_guard lock{guard()};
    const auto it = memory.find(static_cast<std::byte*>(p));
    if (it == memory.end() || it->second.kind != kind) {
      std::fprintf(stderr, "%s of memory that was not allocated, or not so\n", function);
      std::abort();  // the plug-in may ignore a refusal
    }
    std::memset(p, 0xff, std::min(it->second.bytes, max_filled_bytes));
    memory.erase(it);
  }
  std::free(p);
  return begins(function);
}

}  // namespace

std::recursive_mutex& guard() {
  static std::recursive_mutex m;
  return m;
}
switches& switched() {
  static switches s;
  return s;
}
counts& seen() {
  return so_far;
}
cudaError_t fails(cudaError_t e) {
  return last = e;
}
cudaError_t begins(const char* function, int where) {
  std::lock_guard lock{guard()};
  if (const auto it = lost.find(where); it != lost.end()) return fails(it->second);
  if (const auto it = to_refuse.find(function); it != to_refuse.end()) {
    const auto e = it->second;
    to_refuse.erase(it);
    return fails(e);
  }
  return cudaSuccess;
}
void refuse_once(const std::string& function, cudaError_t with) {
  std::lock_guard lock{guard()};
  to_refuse[function] = with;
}
void lose(int d, cudaError_t with) {
  std::lock_guard lock{guard()};
  lost.erase(d);
  if (with != cudaSuccess) lost[d] = with;
}
void no_devices(cudaError_t why) {
  count_answer = why;
}
int current_device() {
  return device;
}

bool can_reach(const void* at, std::size_t bytes, memory_kind kind, int d) {
  std::lock_guard lock{guard()};
  const auto it = find(at);
  if (it == memory.end() || it->second.kind != kind) return false;
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(at) - it->first);
  return offset + bytes <= it->second.bytes && (it->second.device == d || it->second.portable);
}
bool is_allocated(const void* at) {
  std::lock_guard lock{guard()};
  return find(at) != memory.end();
}

settings::settings() = default;
settings::~settings() {
  switched() = {};
}
void settings::rules_only() {
  switched().runs = false;
}
void settings::no_epilogues() {
  switched().epilogues = false;
}
bool settings::has_epilogues() const {
  return switched().epilogues;
}
void settings::new_memory(unsigned char byte) {
  switched().new_memory = byte;
}
void settings::paces(const stream_paces& p) {
  switched().paces = p;
}

}  // namespace troupe::test::fake_cuda

using namespace troupe::test::fake_cuda;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = count_answer == cudaSuccess ? device_count : 0;
  return count_answer == cudaSuccess ? cudaSuccess : fails(count_answer);
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
cudaError_t cudaDeviceGetStreamPriorityRange(int* min, int* first) {
  *min = 0, *first = -5;
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
cudaError_t cudaGetLastError() {
  return std::exchange(last, cudaSuccess);
}
const char* cudaGetErrorString(cudaError_t e) {
  switch (e) {
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorInvalidDeviceFunction:
      return "the tests do not know this kernel";
    default:
      return "refused";
  }
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{80} << 30;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** to, std::size_t bytes) {
  return allocate("cudaMalloc", to, bytes, memory_kind::gpu, false);
}
cudaError_t cudaHostAlloc(void** to, std::size_t bytes, unsigned flags) {
  return allocate("cudaHostAlloc", to, bytes, memory_kind::host,
                  (flags & cudaHostAllocPortable) != 0);
}
cudaError_t cudaFree(void* p) {
  return release("cudaFree", p, memory_kind::gpu);
}
cudaError_t cudaFreeHost(void* p) {
  return release("cudaFreeHost", p, memory_kind::host);
}

}  // extern "C"
