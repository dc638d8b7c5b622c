#include "actors/profiling.hpp"

namespace troupe::actors {

expected<device_profile> measure_profile(const profile_wish& w) {
  return gpu::measure_device(w);
}

}  // namespace troupe::actors
