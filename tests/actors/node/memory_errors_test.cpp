#include "actors/node/memory_errors.hpp"

#include <catch2/catch.hpp>

#include <string>

#include "actors/protocol/launch_environment.hpp"

using namespace troupe::actors;

namespace {

constexpr const char* errors[] = {
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; ...)",
    "RuntimeError: CUDA out of memory. Tried to allocate 12.00 MiB",
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
    "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 20.00 MiB",
    "RuntimeError: CUDA error: out of memory",
    "RuntimeError: HIP error: out of memory",
    "torch.AcceleratorError: CUDA error: out of memory",
    "RuntimeError: CUDA driver error: out of memory",
    "RuntimeError: Triton Error [CUDA]: out of memory",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "RuntimeError: cusolver error: CUSOLVER_STATUS_ALLOC_FAILED",
    "RuntimeError: CUDA error: CUSPARSE_STATUS_ALLOC_FAILED when calling `cusparseCreate(handle)`",
    "RuntimeError: cuFFT error: CUFFT_ALLOC_FAILED",
    "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "pycuda._driver.MemoryError: cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY",
    "terminate called: cudaErrorMemoryAllocation: out of memory",
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9000.00 MiB on device 0: cudaMalloc "
    "failed: out of memory",
    "Last error: Cuda failure 2 'out of memory'",
    "NCCL WARN Cuda failure 'out of memory'",
    "onnxruntime: CUDA failure 2: out of memory ; GPU=0 ; hostname=a",
    "RuntimeError: CUDA failed with error out of memory",
    "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 "
    "bytes.",
    "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for "
    "2.0GiB (2147483648B) on device ordinal 0",
    "RuntimeError: Resource exhausted: Out of memory while trying to allocate 8 bytes.",
    "XlaRuntimeError: INTERNAL: Out of memory allocating 1024 bytes",
    "ResourceExhaustedError: OOM when allocating tensor with shape[64,1024]",
};

constexpr const char* near_misses[] = {
    "",
    "out of patience",
    "MemoryError",
    "Killed",
    "RuntimeError: [enforce fail at alloc_cpu.cpp:83] DefaultCPUAllocator: can't allocate memory",
    "RESOURCE_EXHAUSTED: Quota exceeded",
    "Resource exhausted: too many requests",
    "OSError: [Errno 12] Cannot allocate memory",
    "Cuda failure 700 'an illegal memory access was encountered'",
    "RuntimeError: CUDA error: an illegal memory access was encountered",
    "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
    "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED",
    "cudaMalloc failed: invalid argument",
    "RuntimeError: Triton Error [CUDA]: invalid argument",
};

}  // namespace

TEST_CASE("a failed program ran out of GPU memory if its last lines have a known error") {
  for (const std::string line : errors) {
    CAPTURE(line);
    const auto text = "epoch 1\n" + line;
    CHECK(ran_out_of_memory(1, text));
    CHECK(ran_out_of_memory(1, text + "\r\n"));
    CHECK(ran_out_of_memory(1, text + "\n\nThe launcher's summary\n"));
    CHECK(ran_out_of_memory(134, text));
    CHECK_FALSE(ran_out_of_memory(0, text));
    std::string later;
    for (int i = 0; i < 100; ++i) later += "\nepoch 2";
    CHECK_FALSE(ran_out_of_memory(1, text + later));  // it went on, and failed for another reason
  }
  for (const char* line : near_misses) {
    CAPTURE(line);
    CHECK_FALSE(ran_out_of_memory(1, line));
  }
  CHECK_FALSE(ran_out_of_memory(78, ""));  // sysexits.h's EX_CONFIG
  CHECK(ran_out_of_memory(out_of_memory_exit, ""));
}

TEST_CASE("an error of GPU memory that was caught is not the cause of a later error") {
  for (const std::string line : errors) {
    for (const char* later :
         {"ValueError: bad label", "KeyError", "torch.linalg.LinAlgError: the input is singular",
          "[rank0]: ValueError: bad label", "my_package.data.BrokenShardException: shard 7",
          "RuntimeError: The size of tensor a (4) must match", "MemoryError"}) {
      CAPTURE(line, later);
      CHECK_FALSE(ran_out_of_memory(
          1, line + ", retrying\nTraceback (most recent call last):\n  raise x\n" + later + '\n'));
      CHECK(ran_out_of_memory(1, std::string{later} + '\n' + line));
    }
  }
}

TEST_CASE("errors of launchers and of other ranks follow from an error of GPU memory") {
  for (const std::string line : errors) {
    for (const char* later :
         {"torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
          "subprocess.CalledProcessError: Command '['python', 'a.py']' returned 1.",
          "torch.OutOfMemoryError", "torch.distributed.DistBackendError: NCCL error in: a.cpp:1",
          "[rank1]: RuntimeError: NCCL communicator was aborted on rank 1",
          "RuntimeError: [a.cc:1] Connection closed by peer [10.0.0.1]:1",
          "the error: ValueError: in the middle of a line", "ValueErrors: 3", "Errors: none",
          "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1)", "Error: 1",
          "error_file: <N/A>", "exitcode  : 1 (pid: 3)"}) {
      CAPTURE(line, later);
      CHECK(ran_out_of_memory(1, line + "\n" + later + "\n"));
    }
  }
}

TEST_CASE("the line with an error of GPU memory is quoted, without its rank and with an end") {
  CHECK(memory_error_in("a\n  CUDA out of memory\nb\n") == "CUDA out of memory");
  CHECK(memory_error_in("[rank1]: CUDA out of memory") == "CUDA out of memory");
  CHECK(memory_error_in("CUDA out of memory\nHIP out of memory\n") == "HIP out of memory");
  CHECK(memory_error_in("nothing").empty());
  const auto longer = memory_error_in("CUDA out of memory" + std::string(300, 'x'));
  CHECK(longer.size() == 203);
  CHECK(longer.ends_with("x..."));
  std::string umlauts = "CUDA out of memory";
  for (int i = 0; i < 200; ++i) umlauts += "\xc3\xa4";
  CHECK(memory_error_in(umlauts + "x").ends_with("\xc3\xa4..."));
  CHECK(memory_error_in("x" + umlauts).ends_with("\xc3\xa4..."));
}
