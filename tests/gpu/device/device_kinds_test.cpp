#include <catch2/catch.hpp>

#include <string>
#include <vector>

#include "gpu/device/device_type.hpp"
#include "gpu/inference/inference_device.hpp"
#include "messages/domain/device_kind.hpp"

namespace troupe::gpu {

using names = std::vector<std::string>;

TEST_CASE("the abilities of device kinds, by name") {
  CHECK(device_names(&device_facts::can_train) == names{"sim", "cpu", "cuda"});
  CHECK(device_names(&device_facts::computes) == names{"cpu", "cuda"});
  CHECK(device_names(&device_facts::can_serve) == names{"sim", "cpu"});
  CHECK(device_names(&device_facts::lends_to_guests) == names{"sim", "cpu"});
  CHECK(real_devices(&device_facts::can_train) == "cpu or cuda");
  CHECK(real_devices(&device_facts::can_serve) == "cpu");
  CHECK(device_kind_of(name_of(device_kind::cuda)) == device_kind::cuda);
}

TEST_CASE("a name that no kind has, and none at all, have no ability") {
  for (const auto* name : {"", "gpu", "CPU", "simulated"}) {
    CHECK_FALSE(device_kind_of(name));
    CHECK_FALSE(is_simulated(name));
    CHECK_FALSE(facts_of_device(name).computes);
    CHECK_FALSE(facts_of_device(name).lends_to_guests);
  }
  CHECK(is_simulated("sim"));
  CHECK_FALSE(is_simulated("cpu"));
}

TEST_CASE("kinds that compute have makers for their abilities, and the simulated one has none") {
  CHECK(type_of(device_kind::sim) == nullptr);
  for (const auto& name : device_names(&device_facts::computes)) {
    CAPTURE(name);
    const auto* type = type_of(*device_kind_of(name));
    REQUIRE(type);
    CHECK(type->make_stage);
    CHECK(type->describe);
    CHECK(type->free_bytes);
    CHECK((type->make_inference != nullptr) == facts_of_device(name).can_serve);
    CHECK((type->make_executor != nullptr) == facts_of_device(name).lends_to_guests);
  }
  CHECK(type_of(device_kind::cpu)->free_bytes(0) == 0);
}

}  // namespace troupe::gpu
