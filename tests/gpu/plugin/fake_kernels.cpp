// Kernels of plugin.cu on emulated threads. nvcc registers each as the address of a function of the
// host and the mangled name run<Kernel>(Kernel); a kernel's one argument is the object itself.
#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <typeinfo>

#include "gpu/cuda/runtime/launches.hpp"
#include "gpu/emulation/emulation.hpp"
#include "gpu/plugin/fake_state.hpp"

namespace troupe::test::fake_cuda {

namespace {

using namespace troupe::gpu::cuda;
using maker = std::function<void()> (*)(const void* argument, dim3 grid, std::size_t shared);

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text{
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free};
  return text ? text.get() : "";
}

/// "... run<NAME>(...)": NAME.
std::string kernel_name(const std::string& function) {
  const std::string before = "::run<", after = ">(";
  const auto first = function.find(before), last = function.rfind(after);
  if (first == std::string::npos || last == std::string::npos) return "";
  auto name = function.substr(first + before.size(), last - first - before.size());
  if (name.ends_with(' ')) name.pop_back();  // it stands behind a name that ends with >
  return name;
}

/// The kernels that this program can run, by name.
struct kernel_table {
  kernel_table() { prepare_all(*this); }

  template <class Kernel>
  void prepare(std::size_t) {
    by_name[demangled(typeid(Kernel).name())] = [](const void* argument, dim3 grid,
                                                   std::size_t shared) -> std::function<void()> {
      Kernel kernel;
      std::memcpy(static_cast<void*>(&kernel), argument, sizeof kernel);
      return [=] { run_kernel(kernel, grid.x, grid.y, shared); };
    };
  }
  template <class Use>
  void with_tiles(std::uint32_t width, Use use) {
    with_gpu_tiles(width, use);
  }

  std::map<std::string, maker> by_name;
};

std::map<const void*, std::string>& registered() {
  static std::map<const void*, std::string> all;  // nvcc's code fills it before main
  return all;
}

}  // namespace

void add_kernel(const void* function, const char* mangled) {
  registered()[function] = kernel_name(demangled(mangled));
}

std::function<void()> kernel_of(const void* function, const void* argument, dim3 grid,
                                std::size_t shared) {
  static const kernel_table known;
  const auto name = registered().find(function);
  if (name == registered().end()) return {};
  const auto kernel = known.by_name.find(name->second);
  return kernel == known.by_name.end() ? std::function<void()>{}
                                       : kernel->second(argument, grid, shared);
}

}  // namespace troupe::test::fake_cuda
