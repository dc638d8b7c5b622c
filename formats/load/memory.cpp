#include <array>
#include <vector>

#include <fmt/format.h>

#include "formats/load/memory_reader.hpp"
#include "messages/admission.hpp"

namespace troupe::formats {
namespace {

/// PyTorch's names of FSDP's sharding strategies, in the order of the equivalent ZeRO stages.
void read_sharding(map_reader& map, memory_options& o) {
  static const std::vector<std::string> strategies{"no_shard", "shard_grad_op", "full_shard"};
  constexpr std::array<std::uint32_t, 3> same_as{0, 2, 3};
  map.read_whole<std::uint32_t>("zero", o.zero, 0, 3);
  std::string fsdp;
  if (!map.read_choice("fsdp", fsdp, strategies)) return;
  if (map.find("zero")) return map.fail("fsdp", "found together with zero; give one of them");
  for (std::size_t i = 0; i < strategies.size(); ++i)
    if (fsdp == strategies[i]) o.zero = same_as[i];
}

void read_lora(map_reader& map, memory_options& o) {
  const auto* v = map.find("lora");
  if (!v) return;
  map_reader lora{map.found(), *v, "lora"};
  lora.read_whole<std::uint32_t>("rank", o.lora_rank, 1, admission::max_lora_rank, need::required);
  lora.read_choice("targets", o.lora_targets, lora_target_names);
  lora.finish();
}

}  // namespace

void read_memory(map_reader& map, job_spec& job) {
  memory_options o;
  map.read("memory_gb", o.gb, positive);
  map.read_choice("optimizer", o.optimizer, optimizers);
  map.read_choice("precision", o.precision, precisions);
  map.read_choice("activation_checkpointing", o.checkpointing, checkpointings);
  map.read_whole<std::uint32_t>("micro_batch", o.micro_batch, 1, admission::max_batch);
  read_sharding(map, o);
  read_lora(map, o);
  for (const auto* key : {"memory_gb", "optimizer", "precision", "activation_checkpointing",
                          "micro_batch", "zero", "fsdp", "lora"})
    if (map.find(key)) job.memory = o;
}

}  // namespace troupe::formats
