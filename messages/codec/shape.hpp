#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "messages/base/boxed.hpp"
#include "messages/base/reason.hpp"
#include "messages/wire/generation.hpp"
#include "messages/wire/journal.hpp"
#include "messages/wire/prefill.hpp"
#include "messages/wire/stage.hpp"
#include "messages/wire/work.hpp"

// The kinds of fields. Packer, unpacker and their tests are generic over these.

namespace troupe::shape {

inline constexpr std::size_t header_fields = 5;  // version, type, from, to, the message

/// The number of enumerators of an enum, which are numbered from 0 without gaps. An enum that is
/// sent must be listed here.
template <class E>
inline constexpr std::uint64_t enum_count = 0;
template <>
inline constexpr std::uint64_t enum_count<job_state> = 6;
template <>
inline constexpr std::uint64_t enum_count<merge_kind> = 2;
template <>
inline constexpr std::uint64_t enum_count<generated::ending> = 4;
template <>
inline constexpr std::uint64_t enum_count<prefill_progress::state> = 3;
template <>
inline constexpr std::uint64_t enum_count<prefill_block::kind> = 3;
template <>
inline constexpr std::uint64_t enum_count<end_word> = end_words.size();
template <>
inline constexpr std::uint64_t enum_count<lease_outcome> = 6;
template <>
inline constexpr std::uint64_t enum_count<reason::kind> = 11;
template <>
inline constexpr std::uint64_t enum_count<part_report::state> = 6;
template <>
inline constexpr std::uint64_t enum_count<tensor::kind> = tensor::kinds;
template <>
inline constexpr std::uint64_t enum_count<stage_step::kind> = 3;

template <class T>
concept record = requires(T& value) {
  value.fields();
};

template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;
template <class T>
inline constexpr bool is_map = false;
template <class K, class V>
inline constexpr bool is_map<std::map<K, V>> = true;
template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <class T>
inline constexpr bool is_optional<boxed<T>> = true;
template <class T>
inline constexpr bool is_variant = false;
template <class... T>
inline constexpr bool is_variant<std::variant<T...>> = true;
template <class V>
inline constexpr bool is_variant<large_variant<V>> = true;
template <class T>
inline constexpr bool is_integer = std::is_integral_v<T> && !std::is_same_v<T, bool>;

template <record T>
using field_references = decltype(std::declval<T&>().fields());
template <record T>
inline constexpr std::size_t field_count = std::tuple_size_v<field_references<T>>;

/// The number of fields that a reader requires. Fields are only added at a record's end: a record
/// that has grown since the first release declares with `required` how many it had then; missing
/// fields get their defaults.
template <record T>
inline constexpr std::size_t required_fields = [] {
  if constexpr (requires { T::required; })
    return T::required;
  else
    return field_count<T>;
}();

/// Its order of fields has changed since version 3 of the journal, which is still read.
template <class T>
concept has_third_format = requires(T& value) {
  value.fields_3();
};

template <record T, std::size_t I>
using field_type = std::remove_cvref_t<std::tuple_element_t<I, field_references<T>>>;

/// Calls f with each field of `value` in the wire's order until a call returns false. True if none
/// did.
template <record T, class F>
constexpr bool all_fields(T& value, F&& f) {
  return std::apply([&](auto&... field) { return (f(field) && ...); }, value.fields());
}

/// The minimum encoded size of a T: an array length that cannot fit into the remaining bytes is
/// rejected before memory is reserved.
template <class T>
constexpr std::size_t min_bytes() {
  if constexpr (is_variant<T>) {
    return 3;
  } else if constexpr (record<T>) {
    return []<std::size_t... I>(std::index_sequence<I...>) {
      return (sizeof...(I) < 16 ? 1 : 3) + (std::size_t{0} + ... + min_bytes<field_type<T, I>>());
    }
    (std::make_index_sequence<required_fields<T>>());
  } else {
    return 1;
  }
}

}  // namespace troupe::shape
