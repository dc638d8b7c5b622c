#include <array>
#include <vector>

#include "formats/load/key_reader.hpp"
#include "formats/load/part_readers.hpp"

namespace troupe::formats {
namespace {

/// PyTorch's names of FSDP's sharding strategies, in the order of the equivalent ZeRO stages.
// FSDP's strategies and ZeRO's stages name the same thing, so only one may be given.
void read_sharding(map_reader& map, memory_options& o) {
  static const std::vector<std::string> strategies{"no_shard", "shard_grad_op", "full_shard"};
  constexpr std::array<std::uint32_t, 3> same_as{0, 2, 3};
  std::string fsdp;
  if (!map.read_choice("fsdp", fsdp, strategies)) return;
  if (map.find("zero")) return map.fail("fsdp", "found together with zero; give one of them");
  for (std::size_t i = 0; i < strategies.size(); ++i)
    if (fsdp == strategies[i]) o.zero = same_as[i];
}

}  // namespace

// No declaration at all is different from one with the defaults: then the paper's formula predicts
// (docs/planners/marp.md).
void read_memory(map_reader& map, job_spec& job) {
  memory_options o;
  const bool any = read_keys(map, admission::memory_keys(), o);
  read_sharding(map, o);
  map.section("lora", [&](map_reader& lora) { read_keys(lora, admission::lora_keys(), o); });
  if (any) job.memory = o;
}

}  // namespace troupe::formats
