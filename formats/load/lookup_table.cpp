#include "formats/load/lookup_table.hpp"

#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "formats/parse/reader.hpp"
#include "messages/admission/admission.hpp"
#include "messages/base/invariant.hpp"

namespace troupe::formats {
namespace {

constexpr range iteration_range{0, 1e9, true}, memory_range{0, 1e15, true};
using admission::max_batch, admission::max_gpus, admission::max_layers;

/// Identifies a row.
using row_place = std::tuple<std::string, std::string, tuning_shape>;

void read_row_name(map_reader& map, const char* key, std::string& out,
                   std::span<const std::string> known) {
  if (!known.empty()) {
    map.read_choice(key, out, known, need::required);
    return;
  }
  if (map.read(key, out, need::required) && out.empty())
    map.fail(key, "found nothing, expected a name");
}

void read_tuning_shape(map_reader& map, tuning_shape& s) {
  map.read_whole("gpus", s.gpus, 1u, max_gpus, need::required);
  map.read_whole("accumulate", s.accumulate, 1u, max_batch);
  map.read_whole("batch", s.batch, 1u, max_batch, need::required);
  map.read_whole("frozen_layers", s.frozen_layers, 0u, max_layers);
  map.read("amp", s.amp);
  map.read("recompute", s.recompute);
}

/// The split of the row's GPUs, which must use each of them.
void read_gpu_split(map_reader& map, const tuning_shape& s, plan& how) {
  map.read_whole("tensor_parallel", how.tensor_parallel, 1u, max_gpus);
  TROUPE_INVARIANT(how.tensor_parallel > 0, "a split has a GPU at least, whatever the file says");
  how.data_parallel = s.gpus / how.tensor_parallel;
  map.read_whole("data_parallel", how.data_parallel, 1u, max_gpus);
  const auto product = std::uint64_t{how.data_parallel} * how.tensor_parallel;
  if (product != s.gpus)
    map.fail("data_parallel", "found {} x {} (tensor_parallel), expected a product of {} (gpus)",
             how.data_parallel, how.tensor_parallel, s.gpus);
  if (const auto min = std::uint64_t{how.data_parallel} * s.accumulate; s.batch < min)
    map.fail("batch", "found {}, expected at least {}: a sample for each micro-batch", s.batch,
             min);
}

void read_row_source(map_reader& map, row_source& out) {
  static const std::vector<std::string> names(row_source_names.begin(), row_source_names.end());
  std::string name;
  if (map.read_choice("from", name, names))
    out = static_cast<row_source>(std::ranges::find(names, name) - names.begin());
}

lookup_row read_lookup_row(map_reader& map, std::span<const std::string> gpus) {
  lookup_row row;
  read_row_name(map, "gpu", row.gpu, gpus);
  read_row_name(map, "model", row.model, {});
  read_tuning_shape(map, row.shape);
  map.read("iteration_s", row.iteration_s, iteration_range, need::required);
  map.read("bytes_per_gpu", row.bytes_per_gpu, memory_range, need::required);
  read_gpu_split(map, row.shape, row.how);
  read_row_source(map, row.from);
  map.finish();
  row.how.bytes_per_gpu = row.bytes_per_gpu;
  if (row.iteration_s > 0) row.how.samples_per_s = row.shape.batch / row.iteration_s;
  return row;
}

// A second row of a shape would make the answer depend on their order.
std::vector<lookup_row> read_lookup_table(findings& found, const value& tree,
                                          std::span<const std::string> gpus) {
  std::vector<lookup_row> rows;
  std::set<row_place> seen;
  map_reader map{found, tree, ""};
  const auto add = [&](map_reader& item) {
    auto row = read_lookup_row(item, gpus);
    const auto& s = row.shape;
    if (!seen.insert({row.gpu, row.model, s}).second)
      found.add(item.line(), item.place(),
                "duplicate row: {} on {} {}, batch {}, accumulate {}, frozen_layers {}, amp {}, "
                "recompute {}",
                shown(row.model), s.gpus, row.gpu, s.batch, s.accumulate, s.frozen_layers, s.amp,
                s.recompute);
    rows.push_back(std::move(row));
  };
  map.each("rows", add, 1, need::required);
  map.finish();
  return rows;
}

}  // namespace

expected<std::vector<lookup_row>> load_lookup_table(const std::filesystem::path& file,
                                                    std::span<const gpu_type> catalogue) {
  const auto gpus = names_of(catalogue);
  return read_file(file, [&](findings& found, const value& tree) {
    return read_lookup_table(found, tree, gpus);
  });
}

}  // namespace troupe::formats
