#include "formats/load/groups.hpp"

#include <algorithm>
#include <string>

#include "formats/parse/reader.hpp"
#include "messages/admission/admission.hpp"

namespace troupe::formats {
namespace {

using admission::max_batch, admission::max_gpus;
constexpr std::uint32_t max_pieces = 1'000'000;

/// The index of the name that a key has, in an order that `known` keeps.
bool read_named_index(map_reader& map, const char* key, const std::vector<std::string>& known,
                      need n, std::optional<std::uint32_t>& out) {
  std::string name;
  if (!map.read_choice(key, name, known, n)) return false;
  out = static_cast<std::uint32_t>(std::ranges::find(known, name) - known.begin());
  return true;
}

/// Stages follow each other: what is before a stage is where it begins.
std::vector<plan_stage> read_group_stages(map_reader& map, const cluster& c) {
  const auto gpus = names_of(c.gpus), datacenters = names_of(c.datacenters);
  std::vector<plan_stage> stages;
  std::uint32_t next = 0;
  const auto add = [&](map_reader& item) {
    plan_stage s;
    read_named_index(item, "gpu", gpus, need::required, s.gpu);
    item.read_whole("pieces", s.count, 0u, max_pieces, need::required);
    s.first = next;
    item.read_whole("first_piece", s.first, 0u, max_pieces);
    if (s.first != next)
      item.fail("first_piece", "found {}, expected {}: the stages before have as many pieces",
                s.first, next);
    item.read_whole("tensor_parallel", s.tensor_parallel, 1u, max_gpus);
    read_named_index(item, "datacenter", datacenters, need::optional, s.datacenter);
    std::uint32_t held = 0;
    if (item.read_whole("held", held, 1u, max_batch)) s.held = held;
    // A printed plan has it: it is computed from the others.
    item.skip("bytes_per_gpu");
    item.finish();
    next += s.count;
    stages.push_back(s);
  };
  map.each("stages", add, 1, need::required);
  return stages;
}

chosen_groups read_groups(findings& found, const value& tree, const cluster& c) {
  chosen_groups all;
  map_reader map{found, tree, ""};
  map.read_whole("rows_per_microbatch", all.rows, 1u, max_batch, need::required);
  const auto read_group = [&](map_reader& item, const char* pipelines) {
    pipeline_group g;
    item.read_whole(pipelines, g.pipelines, 1u, max_gpus, need::required);
    item.read_whole("microbatches", g.microbatches, 1u, max_batch, need::required);
    g.stages = read_group_stages(item, c);
    all.groups.push_back(std::move(g));
  };
  if (map.find("groups") == nullptr) {
    read_group(map, "data_parallel");
  } else {
    const auto add = [&](map_reader& item) {
      read_group(item, "pipelines");
      item.finish();
    };
    map.each("groups", add, 1, need::required);
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

expected<chosen_groups> load_groups(const std::filesystem::path& file, const cluster& c) {
  return read_file(file,
                   [&](findings& found, const value& tree) { return read_groups(found, tree, c); });
}

}  // namespace troupe::formats
