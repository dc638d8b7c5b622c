// Where the shared object looks for cuBLASLt and NCCL.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gpu/cuda/runtime/blas_library.hpp"
#include "gpu/plugin/fake_cuda.hpp"
#include "gpu/plugin/plugin_machines.hpp"
#include "harness/facts.hpp"
#include "harness/files.hpp"

using namespace troupe;
using namespace troupe::gpu::cuda;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

/// A host's file tree with libraries that are copies of the fake cuBLASLt, under names that no
/// loader finds by itself.
struct host {
  const fs::path root = fresh_path("libraries");
  const std::string name = "libtroupe_test_blas.so.13", other = "libtroupe_test_blas.so.12";

  std::string add(const std::string& folder, const std::string& file) const {
    fs::create_directories(root / folder);
    const auto to = root / folder / file;
    fs::copy_file(fs::path{FAKE_LIBRARIES} / blas_library::names()[0], to);
    return to.string();
  }
  found_library find() const { return find_library({name, other}, library_folder_patterns(root)); }
};

/// Sets a variable of the environment for its scope.
class variable {
 public:
  variable(const char* name, const std::string& value) : name_{name} {
    if (const auto* now = std::getenv(name)) before_ = now;
    ::setenv(name, value.c_str(), 1);
  }
  ~variable() { ::setenv(name_, before_.c_str(), 1); }
  variable(const variable&) = delete;

 private:
  const char* name_;
  std::string before_;
};

}  // namespace

TEST_CASE("a library is found in the folders of the variable, a toolkit's or PyTorch's") {
  const host h;
  const variable listed{library_folders_variable, ""};
  const variable home{"HOME", (h.root / "home").string()};
  const variable environment{"VIRTUAL_ENV", (h.root / "venv").string()};
  const auto* folder =
      GENERATE("usr/local/cuda/lib64", "usr/local/cuda-12.4/targets/x86_64-linux/lib",
               "usr/lib/python3/dist-packages/nvidia/cublas/lib",
               "usr/local/lib/python3.12/dist-packages/nvidia/cu13/lib",
               "home/.local/lib/python3.11/site-packages/nvidia/cublas/lib",
               "venv/lib/python3.12/site-packages/nvidia/cu13/lib");
  CAPTURE(folder);
  CHECK(h.find().library == nullptr);
  const auto file =
      h.add(folder, GENERATE("libtroupe_test_blas.so.13", "libtroupe_test_blas.so.12"));
  const auto found = h.find();
  CHECK(found.library != nullptr);
  CHECK(found.file == file);
  CHECK(found.why.empty());
}

TEST_CASE("a library's first name comes before its second, the variable's folders before others") {
  const host h;
  const variable listed{library_folders_variable,
                        (h.root / "none").string() + ":" + (h.root / "mine").string()};
  h.add("usr/local/cuda-12.4/lib64", h.other);
  const auto older = h.add("usr/local/cuda-12.8/lib64", h.other);
  CHECK(h.find().file == older);
  const auto mine = h.add("mine", h.other);
  CHECK(h.find().file == mine);
  const auto newer = h.add("usr/local/cuda-13.0/lib64", h.name);
  CHECK(h.find().file == newer);
}

TEST_CASE("a library that is missing or unusable is reported with what was looked for and where") {
  const host h;
  const variable listed{library_folders_variable, ""};
  CHECK(has_facts(h.find().why, {h.name, h.other, "was not found", "/usr/local/cuda", "PyTorch",
                                 "TROUPE_CUDA_LIBRARIES"}));
  fs::create_directories(h.root / "usr/local/cuda-13.9/lib64");
  const auto broken = h.root / "usr/local/cuda-13.9/lib64" / h.name;
  std::ofstream{broken} << "no library";
  CHECK(has_facts(h.find().why, {"cannot be loaded", broken.string()}));
  const auto usable = h.add("usr/local/cuda-13.1/lib64", h.name);
  CHECK(h.find().file == usable);
}

TEST_CASE("a library without one of cuBLASLt's functions is reported with the function") {
  found_library libc;
  libc.library = dlopen("libc.so.6", RTLD_NOW);
  libc.file = "libc.so.6";
  REQUIRE(libc.library != nullptr);
  CHECK(blas_library{libc}.why == "libc.so.6 has no function cublasLtGetVersion");
}

TEST_CASE("the plug-in loads cuBLASLt's major version of its toolkit, or the other one") {
  CHECK(blas_library::names().size() == 2);
  CHECK(blas_library::names()[0] == "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR));
  CHECK(open_gpu(0).m->facts().libraries == "cuBLASLt 130100");
}

TEST_CASE("a machine without a driver, or without GPUs, says which") {
  fake_cuda::no_devices(cudaErrorInsufficientDriver);
  auto why = open_gpu(0).why;
  const bool driver = dlopen("libcuda.so.1", RTLD_NOW) != nullptr;
  CHECK(why == (driver ? "no usable CUDA device: CUDA driver version is insufficient for CUDA "
                         "runtime version"
                       : "no usable CUDA device: this machine has no NVIDIA driver (libcuda.so.1 "
                         "was not found)"));
  fake_cuda::no_devices(cudaErrorNoDevice);
  CHECK(has_facts(open_gpu(0).why, {"no usable CUDA device"}));
  fake_cuda::no_devices(cudaSuccess);
  CHECK(has_facts(open_gpu(7).why, {"3 CUDA devices", "device 7"}));
}
