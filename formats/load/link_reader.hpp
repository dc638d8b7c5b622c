#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "formats/parse/reader.hpp"
#include "messages/domain/cluster.hpp"

namespace troupe::formats {

/// A link of a node: a name of the table in links.cpp, or numbers. `groups`: it may name rates of
/// all-reduces, as the link inside a node does.
link read_link(map_reader& map, std::string_view key, bool groups);

/// The keys `rates`, and `flow_gbps` or `flow_rates`, of a link between nodes or datacenters.
void read_rates(map_reader& map, std::optional<std::vector<link_rate>>& rates,
                std::optional<std::vector<link_rate>>& flow_rates);

}  // namespace troupe::formats
