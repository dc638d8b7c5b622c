#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "gpu/cuda/host/device.hpp"
#include "gpu/cuda/host/graphs.hpp"
#include "gpu/tensor_parallel/shared_stage.hpp"

// Only the shared object libtroupe_cuda.so, which is loaded when a CUDA device is requested, needs
// the CUDA libraries: the program itself runs on machines without them.

namespace troupe::gpu {

namespace {

tl::unexpected<reason> none(std::string why) {
  return refuse(reason::kind::unavailable, std::move(why));
}

#ifdef TROUPE_CUDA

namespace fs = std::filesystem;

/// Next to the program, in lib/ next to its folder, or in the system loader's path.
expected<void*> load() {
  const std::string name = "libtroupe_cuda.so";
  std::error_code error;
  const auto folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const auto& file : {folder / name, folder.parent_path() / "lib" / name})
    if (fs::exists(file, error)) {
      if (auto* loaded = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return loaded;
      return none(fmt::format("the CUDA device cannot be loaded: {}", dlerror()));
    }
  if (auto* loaded = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return loaded;
  return none(fmt::format("the CUDA device cannot be loaded: {}", dlerror()));
}

// The plug-in exports a C function, across which no exception may pass; its version is compared
// first, since a class with other virtual functions would crash.
expected<std::shared_ptr<cuda::machine>> open(int index) {
  static const auto library = load();  // loaded once, never unloaded
  if (!library) return refuse(library.error());
  const auto* version = static_cast<const int*>(dlsym(*library, cuda::machine_version_name));
  auto* make = reinterpret_cast<cuda::open_machine*>(dlsym(*library, cuda::open_machine_name));
  if (version == nullptr || make == nullptr || *version != cuda::machine_version)
    return none("libtroupe_cuda.so belongs to another version of this program");
  char sentence[512] = "";
  auto why = cuda::open_failure::unusable;
  std::shared_ptr<cuda::machine> m{make(index, sentence, sizeof sentence, &why)};
  if (m) return m;
  if (why == cuda::open_failure::lost) return refuse(reason::kind::device_lost, sentence);
  if (why == cuda::open_failure::out_of_memory)
    return refuse(reason::kind::out_of_memory, sentence);
  return none(sentence);
}

#else

expected<std::shared_ptr<cuda::machine>> open(int) {
  return none("this program was built without the CUDA toolkit, so it has no CUDA device");
}

#endif

}  // namespace

// For profiles and tests, which use a machine without a stage.
expected<std::shared_ptr<cuda::machine>> cuda::open_machine_here(int index) {
  return open(index);
}

// The shape is checked before the plug-in loads: an impossible stage is refused without a GPU, too.
expected<std::unique_ptr<stage_device>> make_cuda_device(const stage_spec& s, int index) {
  auto ok = check(s);
  if (ok) ok = cuda::check_shape(s);
  if (!ok) return refuse(ok.error());
  auto m = open(index);
  if (!m) return refuse(m.error());
  try {
    return std::make_unique<cuda::device>(s, cuda::with_graphs(std::move(*m)));
  } catch (const std::runtime_error& e) {
    return refuse(cuda::code_of(e, reason::kind::insufficient), e.what());
  }
}

// All shards have the same shape, so the first is checked for all.
expected<std::unique_ptr<stage_device>> make_shared_cuda_device(const stage_spec& s,
                                                                const std::vector<int>& indices) {
  const auto shards = static_cast<std::uint32_t>(indices.size());
  if (shards == 1) return make_cuda_device(s, indices[0]);
  const auto one = shard_of(s, 0, shards);
  auto ok = check(one);
  if (ok) ok = cuda::check_shape(one);
  if (!ok) return refuse(ok.error());
  std::vector<std::shared_ptr<cuda::machine>> machines;
  for (const auto index : indices) {
    auto m = open(index);
    if (!m) return refuse(m.error());
    machines.push_back(std::move(*m));
  }
  try {
    std::string by_hosts_since;
    auto shared = cuda::share_stage(s, std::move(machines), {}, &by_hosts_since);
    if (!by_hosts_since.empty())
      fmt::print(stderr, "{} GPUs share a stage through the host: {}\n", shards, by_hosts_since);
    return shared;
  } catch (const std::runtime_error& e) {
    return refuse(cuda::code_of(e, reason::kind::insufficient), e.what());
  }
}

}  // namespace troupe::gpu
