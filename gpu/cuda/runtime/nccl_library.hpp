#pragma once

#include <nccl.h>

#include <cstring>
#include <string>

#include "gpu/cuda/runtime/collectives.hpp"
#include "gpu/cuda/runtime/library_search.hpp"

namespace troupe::gpu::cuda {

static_assert(sizeof(ncclUniqueId) == collectives::id_bytes);
static_assert(ncclSuccess == collectives::well && ncclInProgress == collectives::under_way);

/// libnccl's functions. The library is loaded when a group is first requested.
struct nccl_library {
  decltype(&ncclGetVersion) version = nullptr;
  decltype(&ncclGetUniqueId) make_id = nullptr;
  decltype(&ncclCommInitRankConfig) join = nullptr;
  decltype(&ncclCommGetAsyncError) state = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclCommFinalize) finalize = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclGetErrorString) text_of = nullptr;
  std::string why;  // why it cannot be used
  collectives as;

  static nccl_library& loaded() {
    static nccl_library n;
    return n;
  }

 private:
  nccl_library() {
    const auto found = find_library({"libnccl.so.2"});
    auto* const library = found.library;
    if (!library) {
      why = found.why;
      return;
    }
    const bool all =
        find(library, "ncclGetVersion", version) && find(library, "ncclGetUniqueId", make_id) &&
        find(library, "ncclCommInitRankConfig", join) &&
        find(library, "ncclCommGetAsyncError", state) &&
        find(library, "ncclAllReduce", all_reduce) && find(library, "ncclCommAbort", abort) &&
        find(library, "ncclCommFinalize", finalize) && find(library, "ncclCommDestroy", destroy) &&
        find(library, "ncclGetErrorString", text_of);
    int number = 0;
    if (!all || version(&number) != ncclSuccess || number < NCCL_VERSION(2, 18, 3)) {
      why = found.file + " is older than 2.18.3, the first with abortable initialization";
      return;
    }
    as.make_id = [](void* id) { return int{loaded().make_id(static_cast<ncclUniqueId*>(id))}; };
    as.join = [](void** member, int size, const void* id, int rank) {
      ncclUniqueId at;
      std::memcpy(&at, id, sizeof at);
      ncclConfig_t how = NCCL_CONFIG_INITIALIZER;
      how.blocking = 0;
      return int{loaded().join(reinterpret_cast<ncclComm_t*>(member), size, at, rank, &how)};
    };
    as.state = [](void* member, int* now) {
      ncclResult_t is = ncclSuccess;
      const auto result = loaded().state(static_cast<ncclComm_t>(member), &is);
      *now = is;
      return int{result};
    };
    as.sum = [](void* member, void* values, std::size_t count, bool narrow, void* stream) {
      return int{loaded().all_reduce(values, values, count, narrow ? ncclBfloat16 : ncclFloat,
                                     ncclSum, static_cast<ncclComm_t>(member),
                                     static_cast<cudaStream_t>(stream))};
    };
    as.finalize = [](void* m) { return int{loaded().finalize(static_cast<ncclComm_t>(m))}; };
    as.destroy = [](void* m) { return int{loaded().destroy(static_cast<ncclComm_t>(m))}; };
    as.abort = [](void* member) { return int{loaded().abort(static_cast<ncclComm_t>(member))}; };
    as.text_of = [](int result) { return loaded().text_of(static_cast<ncclResult_t>(result)); };
  }
  template <class Function>
  static bool find(void* library, const char* name, Function& to) {
    to = reinterpret_cast<Function>(dlsym(library, name));
    return to != nullptr;
  }
};

}  // namespace troupe::gpu::cuda
