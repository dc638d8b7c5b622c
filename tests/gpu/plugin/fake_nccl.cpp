// A fake libnccl: the emulated NCCL behind the real one's functions, for streams of the fake CUDA.
#include <nccl.h>

#include "gpu/emulation/emulated_nccl.hpp"
#include "gpu/plugin/fake_state.hpp"

using namespace troupe::test::fake_cuda;

namespace {

const troupe::gpu::cuda::collectives& emulated() {
  return troupe::test::emulated_nccl();
}

std::size_t bytes_of(ncclDataType_t type) {
  return type == ncclFloat ? 4 : type == ncclBfloat16 ? 2 : 0;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return ncclResult_t(emulated().make_id(id));
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* member, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* how) {
  if (rank < 0 || rank >= size) return ncclInvalidArgument;
  if (how->blocking != 0) return ncclInvalidUsage;  // it would wait here, and could not be aborted
  return ncclResult_t(emulated().join(reinterpret_cast<void**>(member), size, &id, rank));
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t member, ncclResult_t* now) {
  int state = 0;
  const int result = emulated().state(member, &state);
  *now = ncclResult_t(state);
  return ncclResult_t(result);
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t how, ncclComm_t member, cudaStream_t s) {
  const auto bytes = count * bytes_of(type);
  if (from != to || how != ncclSum || bytes == 0 || of(s).capture ||
      !can_reach(to, bytes, memory_kind::gpu, of(s).device))
    return ncclInvalidArgument;
  auto* stream = static_cast<troupe::test::emulated_stream*>(of(s).queue.get());
  return ncclResult_t(emulated().sum(member, to, count, type == ncclBfloat16, stream));
}
ncclResult_t ncclCommFinalize(ncclComm_t member) {
  return ncclResult_t(emulated().finalize(member));
}
ncclResult_t ncclCommDestroy(ncclComm_t member) {
  return ncclResult_t(emulated().destroy(member));
}
ncclResult_t ncclCommAbort(ncclComm_t member) {
  return ncclResult_t(emulated().abort(member));
}
const char* ncclGetErrorString(ncclResult_t result) {
  return emulated().text_of(result);
}

}  // extern "C"
