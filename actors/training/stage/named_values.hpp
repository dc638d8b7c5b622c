#pragma once

#include <algorithm>
#include <vector>

#include "messages/domain/layer_file.hpp"

namespace troupe::actors {

/// Adds sums and weights by name.
inline void add_values(std::vector<named_value>& all, const std::vector<named_value>& more) {
  for (const auto& v : more) {
    const auto known = std::ranges::find(all, v.name, &named_value::name);
    if (known == all.end()) {
      all.push_back(v);
    } else {
      known->sum += v.sum;
      known->weight += v.weight;
    }
  }
}

}  // namespace troupe::actors
