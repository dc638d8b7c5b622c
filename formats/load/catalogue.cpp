#include <algorithm>

#include "formats/load/load.hpp"
#include "formats/load/part_readers.hpp"
#include "formats/parse/reader.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::formats {

namespace {

// The catalogue is found by its name, gpus.yaml, in folders above a cluster file; a file of that
// name may be something else. The error then says why it was read.
bool looks_like_catalogue(const value& v) {
  return std::ranges::any_of(v.items, [](const value& gpu) { return gpu.has("memory_gb"); });
}

}  // namespace

expected<std::vector<gpu_type>> load_catalogue(const std::filesystem::path& file) {
  const auto tree = load_value(file);
  if (!tree) return refuse(tree.error());
  findings found{file.string()};
  if (tree->what != value::kind::map)
    found.add(tree->line, "", "found {}, expected a map of GPU names", describe(*tree));
  std::vector<gpu_type> types;
  for (std::size_t i = 0; i < tree->keys.size() && found.good(); ++i) {
    gpu_type t;
    t.name = tree->keys[i];
    if (!is_name(t.name))
      found.add(tree->key_lines[i], "", "'{}' is not a valid GPU name", shown(t.name));
    map_reader map{found, tree->items[i], t.name};
    map.read("memory_gb", t.memory_gb, {0, 100'000, true}, need::required);
    map.read("fp16_tflops", t.fp16_tflops, {0, 1e6, true}, need::required);
    map.read("fp32_tflops", t.fp32_tflops, {0, 1e6, true}, need::required);
    map.read("memory_gbytes_s", t.memory_gbytes_s, {0, 1e6, true}, need::required);
    map.read("efficiency", t.efficiency, {0, 1, true});
    map.read("price_per_hour", t.price_per_hour, {0, 1e6});
    map.read("compute_capability", t.compute_capability, {0, 100});
    map.read("tf32_tflops", t.tf32_tflops, {0, 1e6});
    map.read("fp8_tflops", t.fp8_tflops, {0, 1e6, true});
    map.read("fp32_efficiency", t.fp32_efficiency, {0, 1, true});
    // Files have the default; in a struct made by code 0 keeps the plain formula.
    t.kernel_us = default_kernel_us;
    map.read("kernel_us", t.kernel_us, {0, 1e6});
    map.read("source", t.source);
    read_named_profile(map, file.parent_path(), t.profile);
    map.finish();
    types.push_back(std::move(t));
  }
  if (found.good()) return types;
  if (looks_like_catalogue(*tree)) return found.result();
  return refuse(reason::kind::invalid,
                "{}; {} was read as the GPU catalogue of all cluster files in and below "
                "its folder: rename it if it is something else",
                found.result().value().text, file.filename().string());
}

}  // namespace troupe::formats
