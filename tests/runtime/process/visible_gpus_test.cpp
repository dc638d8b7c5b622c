#include <catch2/catch.hpp>

#include "harness/facts.hpp"
#include "runtime/process/visible_gpus.hpp"

using namespace troupe;
using runtime::visible_gpus;

TEST_CASE("a job gets parts of its node's own list of GPUs, and its numbers without a list") {
  const auto names = [](const char* list, const char* numbers) {
    const auto all = visible_gpus::read(list);
    REQUIRE(all);
    return all->names_of(numbers);
  };
  CHECK(names(nullptr, "0,3") == "0,3");
  CHECK(names("4,5,6,7", "0,3") == "4,7");
  CHECK(names(" 4, 5 ,6", "2,1") == "6,5");
  CHECK(names("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,GPU-8f", "1") == "GPU-8f");
  CHECK(names("MIG-GPU-8932f937/1/0,MIG-3eb8", "0,1") == "MIG-GPU-8932f937/1/0,MIG-3eb8");
  CHECK(names("4,5", "1,2") == "5");  // there is no third one
  std::vector<std::pair<std::string, std::string>> environment{{"A", "0"},
                                                               {"CUDA_VISIBLE_DEVICES", "1"}};
  visible_gpus::read("4,5")->name_in(environment);
  CHECK(environment[0].second == "0");
  CHECK(environment[1].second == "5");
}

TEST_CASE("a list of GPUs ends where CUDA stops reading, and too short a one is refused") {
  const auto refusal = [](const char* list, std::uint32_t gpus) {
    const auto all = visible_gpus::read(list);
    if (!all) return all.error().text;
    const auto ok = all->suffice("e-0", gpus);
    return ok ? std::string{} : ok.error().text;
  };
  CHECK(refusal(nullptr, 8).empty());
  CHECK(refusal("4,5,6,7", 4).empty());
  CHECK(refusal("4,5,6,7", 2).empty());
  CHECK(refusal("4,5,-1,7", 2).empty());
  CHECK(refusal("", 0).empty());
  CHECK(test::has_facts(refusal("4,5,6,7", 8), {"shows 4 GPUs", "gives e-0 8"}));
  CHECK(test::has_facts(refusal("", 1), {"shows 0 GPUs", "gives e-0 1"}));
  CHECK(test::has_facts(refusal("4,5,-1,7", 4), {"shows 2 GPUs", "stops reading at '-1'"}));
  CHECK(test::has_facts(refusal("4,,5", 2), {"shows 1 GPU", "gives e-0 2"}));
  for (const char* broken :
       {"all", "none", "GPU-", "MIG-", "0x4", "+4", "4.0", "99999999999", "GPU-!"})
    CHECK(test::has_facts(refusal(broken, 1), {"shows 0 GPUs", "stops reading at"}));
  CHECK(test::has_facts(refusal("4,5,4", 3), {"lists 4 twice"}));
  CHECK(test::has_facts(refusal("GPU-8f,GPU-8f", 2), {"lists GPU-8f twice"}));
}
