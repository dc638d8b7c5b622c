#include "cli/options/lookup_option.hpp"

#include <utility>

#include "formats/load/lookup_table.hpp"

namespace troupe::cli {

expected<std::shared_ptr<const planners::lookup_table>> load_lookup_option(
    const std::string& file, std::span<const gpu_type> catalogue) {
  if (file.empty()) return nullptr;
  auto rows = formats::load_lookup_table(file, catalogue);
  if (!rows) return refuse(rows.error());
  auto table = std::make_shared<planners::lookup_table>();
  for (auto& row : *rows) table->add(std::move(row));
  return table;
}

}  // namespace troupe::cli
