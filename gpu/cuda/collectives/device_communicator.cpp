#include "gpu/cuda/collectives/device_communicator.hpp"

#include <cstdlib>
#include <stdexcept>
#include <string_view>

namespace troupe::gpu::cuda {

// NCCL where the plug-in has it; otherwise, or on request for tests and for hosts where NCCL cannot
// work, sums pass through host memory.
const collectives* collectives_of(machine& m, std::string& why) {
  const auto* wish = std::getenv("TROUPE_COLLECTIVES");
  if (!wish || std::string_view{wish} != "hosts") return m.sums_with_others(why);
  why = "TROUPE_COLLECTIVES selects host all-reduce";
  return nullptr;
}

host_communicator::host_communicator(std::shared_ptr<machine> m,
                                     std::shared_ptr<thread_communicator> members)
    : machine_{m}, members_{std::move(members)}, host_{std::move(m), block_pool::where::host} {}

// Sums are made in 32 bits whatever the type on the GPU, in the order of ranks, so all members get
// the same bits; 16-bit values are rounded once, at the end. Both copies are awaited: the host must
// see the values, and the staging memory is reused after the return.
template <class T>
void host_communicator::through_host(T* values, std::size_t count) {
  const auto staging = host_.take<T>(count);
  machine_->copy_out(staging.get(), values, count * sizeof(T));
  machine_->wait(machine_->record_event());
  wide_.resize(count);
  for (std::size_t i = 0; i < count; ++i) wide_[i] = static_cast<float>(to_float(staging.get()[i]));
  if (const auto ok = members_->sum(wide_); !ok) throw std::runtime_error(ok.error().text);
  for (std::size_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<T, bf16>)
      staging.get()[i] = to_bf16(wide_[i]);
    else
      staging.get()[i] = wide_[i];
  }
  machine_->copy_in(values, staging.get(), count * sizeof(T));
  machine_->wait(machine_->record_event());
}

void host_communicator::sum(float* values, std::size_t count) {
  through_host(values, count);
}

void host_communicator::sum(bf16* values, std::size_t count) {
  through_host(values, count);
}

}  // namespace troupe::gpu::cuda
