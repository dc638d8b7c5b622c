#pragma once

namespace troupe {

/// The value of a key in a map; null: there is none.
template <class Map, class Key>
auto* find_in(Map& map, const Key& key) {
  const auto at = map.find(key);
  return at == map.end() ? nullptr : &at->second;
}

}  // namespace troupe
