#pragma once

#include <tuple>

namespace troupe {

/// How fields() refers to a record's fields. fields() is a template so that only a file that goes
/// through a record makes its tuple: made wherever a record is declared, the tuples of all records
/// took half of the compiler's time.
struct field_ties {
  template <class... T>
  static std::tuple<T&...> of(T&... fields) {
    return {fields...};
  }
};

}  // namespace troupe

/// The fields of a record in wire order, for everything that goes through a record: packing,
/// unpacking, admission's limits and the tables of docs/wire.md. Also gives a record equality.
#define TROUPE_FIELDS(record, ...)                \
  template <class FieldTies = troupe::field_ties> \
  auto fields() {                                 \
    return FieldTies::of(__VA_ARGS__);            \
  }                                               \
  template <class FieldTies = troupe::field_ties> \
  auto fields() const {                           \
    return FieldTies::of(__VA_ARGS__);            \
  }                                               \
  bool operator==(const record&) const = default
