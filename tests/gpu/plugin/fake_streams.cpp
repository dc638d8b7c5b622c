// The fake CUDA's streams, events, copies, launches and graphs.
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "gpu/plugin/fake_state.hpp"

namespace troupe::test::fake_cuda {

namespace {

constexpr std::size_t plain_shared = 48 << 10, max_shared = 227 << 10;

/// A place in a stream's queue.
struct stream_place {
  std::shared_ptr<late_stream> queue;
  std::uint64_t place = 0;
};

struct fake_event {
  int device;
  bool timing;
  stream_place last{};  // no queue: it was not recorded yet
};

std::set<fake_stream*> streams;
std::map<int, std::size_t> streams_made;                           // by device
std::map<std::pair<int, const void*>, std::size_t> shared_limits;  // of kernels, by device
std::set<std::pair<int, const void*>> loaded;

fake_event& of(cudaEvent_t e) {
  return *reinterpret_cast<fake_event*>(e);
}

cudaError_t create(const char* function, cudaStream_t* out) {
  if (const auto e = begins(function); e != cudaSuccess) return e;
  std::lock_guard lock{guard()};
  const auto device = current_device();
  const auto& paces = switched().paces;
  const auto& pace = paces[streams_made[device]++ % paces.size()];
  auto* s = new fake_stream{device, std::make_shared<late_stream>(pace)};
  streams.insert(s);
  *out = reinterpret_cast<cudaStream_t>(s);
  return cudaSuccess;
}

cudaError_t create(const char* function, cudaEvent_t* out, bool timing) {
  if (const auto e = begins(function); e != cudaSuccess) return e;
  *out = reinterpret_cast<cudaEvent_t>(new fake_event{current_device(), timing});
  return cudaSuccess;
}

/// A call that a capture does not allow ends it.
cudaError_t spoils(fake_stream& s, cudaError_t with) {
  s.capture_is_invalid = true;
  return fails(with);
}

bool may_copy(cudaMemcpyKind kind, void* to, const void* from, std::size_t bytes, int device) {
  const auto on_gpu = [&](const void* p) { return can_reach(p, bytes, memory_kind::gpu, device); };
  const auto on_host = [&](const void* p) {  // pageable memory, too
    return !is_allocated(p) || can_reach(p, bytes, memory_kind::host, device);
  };
  return kind == cudaMemcpyHostToDevice     ? on_host(from) && on_gpu(to)
         : kind == cudaMemcpyDeviceToHost   ? on_gpu(from) && on_host(to)
         : kind == cudaMemcpyDeviceToDevice ? on_gpu(from) && on_gpu(to)
                                            : false;
}

}  // namespace

void enqueue(fake_stream& s, std::function<void()> what) {
  if (s.capture)
    s.capture->operations.push_back(std::move(what));
  else
    s.queue->may_be_late(std::move(what));
}

void finish(std::optional<int> device) {
  std::vector<std::shared_ptr<late_stream>> queues;
  {
    std::lock_guard lock{guard()};
    for (const auto* s : streams)
      if (!device || s->device == *device) queues.push_back(s->queue);
  }
  for (const auto& q : queues) q->wait(q->asked());
}

std::vector<stream_paces> all_paces() {
  using when = stream_pace::when;
  std::vector<stream_paces> all;
  for (unsigned choice = 0; choice < 16; ++choice) {
    stream_paces p;
    for (unsigned i = 0; i < p.size(); ++i)
      p[i].is = (choice >> i) % 2 == 0 ? when::at_once : when::late;
    all.push_back(p);
  }
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    stream_paces p;
    for (std::size_t i = 0; i < p.size(); ++i) p[i] = {when::sometimes_late, 4 * seed + i};
    all.push_back(p);
  }
  return all;
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
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, void*,
                            void*, void*, void*, int*) {
  add_kernel(function, name);
}
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

// -- streams and events

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) {
  return create("cudaStreamCreateWithFlags", s);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned, int) {
  return create("cudaStreamCreateWithPriority", s);
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  auto& stream = of(s);
  stream.queue->wait(stream.queue->asked());
  std::lock_guard lock{guard()};
  streams.erase(&stream);
  delete &stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  if (const auto e = begins("cudaStreamSynchronize", of(s).device); e != cudaSuccess) return e;
  if (of(s).capture) return spoils(of(s), cudaErrorStreamCaptureUnsupported);
  of(s).queue->wait(of(s).queue->asked());
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  if (const auto e = begins("cudaDeviceSynchronize"); e != cudaSuccess) return e;
  {
    std::lock_guard lock{guard()};
    for (auto* s : streams)
      if (s->device == current_device() && s->capture)
        return spoils(*s, cudaErrorStreamCaptureUnsupported);
  }
  finish(current_device());
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  if (const auto f = begins("cudaStreamWaitEvent", of(s).device); f != cudaSuccess) return f;
  const auto last = of(e).last;
  if (!last.queue || last.queue == of(s).queue) return cudaSuccess;
  if (of(s).capture) return spoils(of(s), cudaErrorStreamCaptureIsolation);
  enqueue(of(s), [last] { last.queue->wait(last.place); });
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* e) {
  return create("cudaEventCreate", e, true);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned flags) {
  return create("cudaEventCreateWithFlags", e, (flags & cudaEventDisableTiming) == 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  delete &of(e);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  if (of(e).device != of(s).device) return fails(cudaErrorInvalidResourceHandle);
  if (const auto f = begins("cudaEventRecord", of(s).device); f != cudaSuccess) return f;
  if (of(s).capture) return spoils(of(s), cudaErrorStreamCaptureUnsupported);
  of(e).last = {of(s).queue, of(s).queue->asked()};
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  if (const auto f = begins("cudaEventQuery", of(e).device); f != cudaSuccess) return f;
  const auto& last = of(e).last;
  return !last.queue || last.queue->reached(last.place) ? cudaSuccess : fails(cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  if (const auto f = begins("cudaEventSynchronize", of(e).device); f != cudaSuccess) return f;
  if (const auto& last = of(e).last; last.queue) last.queue->wait(last.place);
  std::lock_guard lock{guard()};
  ++seen().syncs;
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  for (const auto e : {from, to}) {
    const auto& last = of(e).last;
    if (!of(e).timing || !last.queue) return fails(cudaErrorInvalidResourceHandle);
    if (!last.queue->reached(last.place)) return fails(cudaErrorNotReady);
  }
  *ms = static_cast<float>(1e3 * elapsed_s);
  return cudaSuccess;
}

// -- copies

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t s) {
  if (const auto e = begins("cudaMemcpyAsync", of(s).device); e != cudaSuccess) return e;
  if (of(s).capture && kind != cudaMemcpyDeviceToDevice)
    return spoils(of(s), cudaErrorStreamCaptureUnsupported);
  if (!may_copy(kind, to, from, bytes, of(s).device)) return fails(cudaErrorInvalidValue);
  enqueue(of(s), [=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t s) {
  if (const auto e = begins("cudaMemsetAsync", of(s).device); e != cudaSuccess) return e;
  if (!can_reach(to, bytes, memory_kind::gpu, of(s).device)) return fails(cudaErrorInvalidValue);
  enqueue(of(s), [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

// -- kernels

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  const auto bytes = static_cast<std::size_t>(value);
  if (bytes > max_shared) return fails(cudaErrorInvalidValue);
  const auto e = begins("cudaFuncSetAttribute");
  std::lock_guard lock{guard()};
  if (e == cudaSuccess) shared_limits[{current_device(), kernel}] = bytes;
  return e;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void* kernel) {
  *a = {};
  const auto e = begins("cudaFuncGetAttributes");
  std::lock_guard lock{guard()};
  if (e == cudaSuccess) loaded.insert({current_device(), kernel});
  return e;
}
cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                             std::size_t shared, cudaStream_t s) {
  const auto device = current_device();
  if (const auto e = begins("cudaLaunchKernel", of(s).device); e != cudaSuccess) return e;
  if (of(s).device != device) return fails(cudaErrorInvalidResourceHandle);
  if (grid.x == 0 || grid.x > 0x7fffffff || grid.y == 0 || grid.y > 65535 || block.x > 1024)
    return fails(cudaErrorInvalidConfiguration);
  auto run = kernel_of(kernel, arguments[0], grid, shared);
  if (!run) return fails(cudaErrorInvalidDeviceFunction);
  {
    std::lock_guard lock{guard()};
    const auto limit = shared_limits.find({device, kernel});
    if (shared > (limit == shared_limits.end() ? plain_shared : limit->second))
      return fails(cudaErrorInvalidValue);
    if (loaded.insert({device, kernel}).second) ++seen().late_loads;
    ++seen().launches;
  }
  if (switched().runs) enqueue(of(s), std::move(run));
  return cudaSuccess;
}

// -- graphs

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
  if (const auto e = begins("cudaStreamBeginCapture", of(s).device); e != cudaSuccess) return e;
  if (of(s).capture) return fails(cudaErrorIllegalState);
  of(s).capture = std::make_unique<fake_graph>();
  of(s).capture_is_invalid = false;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* graph) {
  const auto made = std::exchange(of(s).capture, nullptr);
  if (!made) return fails(cudaErrorIllegalState);
  if (of(s).capture_is_invalid) return fails(cudaErrorStreamCaptureInvalidated);
  if (const auto e = begins("cudaStreamEndCapture", of(s).device); e != cudaSuccess) return e;
  *graph = reinterpret_cast<cudaGraph_t>(new fake_graph{*made});
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* to, cudaGraph_t graph, unsigned long long) {
  if (const auto e = begins("cudaGraphInstantiate"); e != cudaSuccess) return e;
  *to = reinterpret_cast<cudaGraphExec_t>(new fake_graph{*reinterpret_cast<fake_graph*>(graph)});
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t s) {
  if (const auto e = begins("cudaGraphLaunch", of(s).device); e != cudaSuccess) return e;
  if (of(s).capture) return spoils(of(s), cudaErrorStreamCaptureUnsupported);
  for (const auto& one : reinterpret_cast<fake_graph*>(graph)->operations) enqueue(of(s), one);
  std::lock_guard lock{guard()};
  ++seen().graphs;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<fake_graph*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  if (graph == nullptr) return fails(cudaErrorInvalidValue);
  delete reinterpret_cast<fake_graph*>(graph);
  return cudaSuccess;
}

}  // extern "C"
