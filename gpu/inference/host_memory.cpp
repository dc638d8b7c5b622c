#include "gpu/inference/host_memory.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <sstream>

#include "gpu/files/control_groups.hpp"
#include "gpu/files/kernel_file.hpp"
#include "gpu/inference/inference_device.hpp"
#include "gpu/inference/weights.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::gpu {

namespace {

/// The number in a file of one line; "max" and a file that is not there are no limit.
std::uint64_t limit_in(const std::filesystem::path& file) {
  std::istringstream in{kernel_file(file)};
  std::uint64_t bytes = 0;
  return in >> bytes ? bytes : std::numeric_limits<std::uint64_t>::max();
}

}  // namespace

// Beyond a control group's limit the kernel kills the process, while other limits let an allocation
// fail.
std::uint64_t host_memory_bytes() {
  auto bytes = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
               static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  for (const auto& group : control_groups("/proc/self/cgroup", "/sys/fs/cgroup", "memory"))
    for (const char* limit : {"memory.max", "memory.limit_in_bytes"})
      bytes = std::min(bytes, limit_in(group / limit));
  rlimit own{};
  if (::getrlimit(RLIMIT_AS, &own) == 0 && own.rlim_cur != RLIM_INFINITY)
    bytes = std::min<std::uint64_t>(bytes, own.rlim_cur);
  return bytes;
}

std::uint64_t weight_bytes(const inference_model& m) {
  std::uint64_t values = m.tied_head ? std::uint64_t{m.vocabulary} * m.hidden : 0;
  for (const auto& tensor : tensors_of(m)) {
    std::uint64_t n = 1;
    for (const auto size : tensor.shape) n *= static_cast<std::uint64_t>(size);
    values += n;
  }
  return values * sizeof(float);
}

std::uint64_t cache_bytes(const inference_model& m, std::uint32_t pages) {
  return page_bytes(m) * m.layers * pages;
}

// As prepare_scores() of paged_attention takes it: a window begins within a page, and a tile's
// queries have 64 windows.
std::uint64_t attention_bytes(const inference_model& m, std::uint32_t pages,
                              std::uint32_t threads) {
  std::uint64_t seen = std::min(pages, pages_for(m.positions));
  if (m.window > 0) seen = std::min<std::uint64_t>(seen, m.window / tile_positions + 2);
  return threads * seen * tile_positions * tile_positions * sizeof(float);
}

std::uint32_t affordable_pages(const inference_model& m, std::uint32_t threads,
                               std::uint64_t memory_bytes, std::uint64_t adapter_bytes) {
  const auto rest =
      weight_bytes(m) + adapter_bytes + attention_bytes(m, pages_for(m.positions), threads);
  const auto left = memory_bytes > rest ? memory_bytes - rest : 0;
  const auto pages = left / 2 / std::max<std::uint64_t>(cache_bytes(m, 1), 1);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(pages, 1, 1'000'000'000));
}

expected<void> check_cache(const inference_model& m, std::uint32_t pages, std::uint32_t threads,
                           std::uint64_t memory_bytes, std::string_view option,
                           std::uint64_t adapter_bytes) {
  constexpr double gb = 1e9;
  const auto weights = static_cast<double>(weight_bytes(m) + adapter_bytes),
             scores = static_cast<double>(attention_bytes(m, pages, threads)),
             cache = static_cast<double>(cache_bytes(m, pages)),
             have = static_cast<double>(memory_bytes);
  if (weights + scores + cache <= have) return {};
  if (weights >= have)
    return refuse(reason::kind::insufficient,
                  "the weights need {:.3g} GB of memory, and {:.3g} GB are there", weights / gb,
                  have / gb);
  return refuse(reason::kind::insufficient,
                "the cache's {} pages need {:.3g} GB of memory beside {:.3g} GB of weights and "
                "{:.3g} GB of the attention of {} thread{}, and {:.3g} GB are there: set a smaller "
                "{}",
                pages, cache / gb, weights / gb, scores / gb, threads, threads == 1 ? "" : "s",
                have / gb, option);
}

}  // namespace troupe::gpu
