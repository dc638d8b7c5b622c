#include "actors/training/make_stage_executor.hpp"

#include <exception>
#include <utility>

#include "actors/protocol/refuse_format.hpp"
#include "actors/training/device_stage.hpp"
#include "actors/training/simulated_stage.hpp"

namespace troupe::actors {

namespace {

/// Libraries of devices throw; the node must learn that the maker has returned either way.
expected<stage_backend> create_backend(stage_options& o) {
  expected<stage_backend> made = refuse(reason::kind::unavailable, "");
  try {
    made = std::exchange(o.create, nullptr)();
  } catch (const std::exception& e) {
    made = refuse(reason::kind::unavailable, "setup failed: {}", e.what());
  }
  if (o.created) *o.created = true;
  return made;
}

}  // namespace

expected<std::unique_ptr<stage_executor>> make_stage_executor(stage_actor::pointer self,
                                                              stage_options& o,
                                                              gpu::stage_device::done done) {
  if (!o.create) return std::make_unique<simulated_stage>(self, o, std::move(done));
  auto backend = create_backend(o);
  if (!backend) return refuse(backend.error());
  return std::make_unique<device_stage>(self, o.setup, std::move(*backend));
}

}  // namespace troupe::actors
