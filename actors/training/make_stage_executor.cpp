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
  stage_backend backend{std::move(o.device), std::move(o.tokens)};
  if (o.create) {
    auto made = create_backend(o);
    if (!made) return refuse(made.error());
    backend = std::move(*made);
  }
  if (backend.device) return std::make_unique<device_stage>(self, o.setup, std::move(backend));
  return std::make_unique<simulated_stage>(self, o, std::move(done));
}

}  // namespace troupe::actors
