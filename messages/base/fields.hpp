#pragma once

#include <tuple>

/// The fields of a record in wire order, for everything that goes through a record: packing,
/// unpacking, admission's limits and the tables of docs/wire.md. Also gives a record equality.
#define TROUPE_FIELDS(record, ...) \
  auto fields() {                  \
    return std::tie(__VA_ARGS__);  \
  }                                \
  auto fields() const {            \
    return std::tie(__VA_ARGS__);  \
  }                                \
  bool operator==(const record&) const = default
