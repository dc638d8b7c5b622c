#pragma once

#include <string>
#include <vector>

namespace troupe::cli {

/// Names of a list of nodes, datacenters, ...: the known ones for formats::hint.
template <class List>
std::vector<std::string> names_of(const List& all) {
  std::vector<std::string> names;
  for (const auto& one : all) names.push_back(one.name);
  return names;
}

}  // namespace troupe::cli
