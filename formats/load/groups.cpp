#include "formats/load/groups.hpp"

#include <string>

#include "formats/load/key_reader.hpp"
#include "messages/admission/admission.hpp"

namespace troupe::formats {
namespace {

using admission::max_batch;

/// Stages follow each other: what is before a stage is where it begins.
std::vector<chosen_stage> read_group_stages(map_reader& map, const cluster* c) {
  std::vector<chosen_stage> stages;
  std::uint32_t next = 0;
  const auto add = [&](map_reader& item) {
    auto& s = stages.emplace_back();
    read_keys(item, admission::group_stage_keys(), s);
    if (c) {
      item.read_choice("gpu", s.gpu, names_of(c->gpus));
      std::string datacenter;
      item.read_choice("datacenter", datacenter, names_of(c->datacenters));
    }
    std::uint32_t first = next;
    item.read_whole("first_piece", first, 0u, std::uint32_t{admission::max_operators});
    if (first != next)
      item.fail("first_piece", "found {}, expected {}: the stages before have as many pieces",
                first, next);
    // A printed plan has it: it is computed from the others.
    item.skip("bytes_per_gpu");
    item.finish();
    next += s.pieces;
  };
  map.each("stages", add, 1, need::required);
  return stages;
}

chosen_groups read_groups(findings& found, const value& tree, const cluster& c) {
  chosen_groups all;
  map_reader map{found, tree, ""};
  map.read_whole("rows_per_microbatch", all.rows, 1u, max_batch, need::required);
  if (map.find("groups") == nullptr) {
    auto& g = all.groups.emplace_back();
    map.read_whole("data_parallel", g.pipelines, 1u, admission::max_pipelines, need::required);
    map.read_whole("microbatches", g.microbatches, 1u, admission::max_pipeline_microbatches,
                   need::required);
    g.stages = read_group_stages(map, &c);
  } else {
    all.groups = read_chosen_groups(map, &c);
    for (const auto* key : {"data_parallel", "microbatches", "stages"}) map.skip(key);
  }
  for (const auto* key :
       {"tensor_parallel", "pipeline_parallel", "gpus", "bytes_per_gpu", "marp_bytes_per_gpu",
        "samples_per_s", "cost_per_hour", "traffic_per_iteration", "gpu_types"})
    map.skip(key);
  map.finish();
  return all;
}

}  // namespace

std::vector<chosen_group> read_chosen_groups(map_reader& map, const cluster* c) {
  std::vector<chosen_group> groups;
  const auto add = [&](map_reader& item) {
    auto& g = groups.emplace_back();
    read_keys(item, admission::group_keys(), g);
    g.stages = read_group_stages(item, c);
    item.finish();
  };
  map.each("groups", add, 1, need::required);
  return groups;
}

expected<chosen_groups> load_groups(const std::filesystem::path& file, const cluster& c) {
  return read_file(file,
                   [&](findings& found, const value& tree) { return read_groups(found, tree, c); });
}

}  // namespace troupe::formats
