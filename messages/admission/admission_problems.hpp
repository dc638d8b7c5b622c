#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "messages/admission/job_keys.hpp"
#include "messages/admission/objection.hpp"
#include "messages/codec/shape.hpp"

// Findings of admission's checks. For admission*.cpp only.

namespace troupe::admission {

/// A sentence without the key; nothing: all is well.
using problem = std::optional<std::string>;

template <class T>
problem out_of_range(T found, range valid) {
  if (valid.contains(static_cast<double>(found))) return {};
  return fmt::format(
      "found {}, expected {}", found,
      expected_number(valid, std::is_floating_point_v<T> ? "a number" : "a whole number"));
}

template <class Words>
problem not_one_of(std::string_view found, const Words& known) {
  if (std::ranges::find(known, found) != known.end()) return {};
  return fmt::format("found '{}', expected one of {}", shown(found), fmt::join(known, ", "));
}

inline problem inside(std::string_view place, problem p) {
  if (p) *p = fmt::format("{}: {}", place, *p);
  return p;
}

/// The first of several problems, evaluated in order.
template <class... F>
auto first_of(F&&... ask) {
  std::common_type_t<std::invoke_result_t<F>...> found;
  static_cast<void>(((found = ask()).has_value() || ...));
  return found;
}

/// An objection to a key of the job file: a text for fmt::format and its values.
template <class... Values>
objection failure(const char* key, fmt::format_string<Values...> text, Values&&... values) {
  return {key, fmt::format(text, std::forward<Values>(values)...)};
}

/// The problem of a key of the job file.
inline std::optional<objection> at_key(const char* name, problem p) {
  return p ? std::optional<objection>({name, std::move(*p)}) : std::nullopt;
}

/// The problem of a value of a key.
template <class T, class Value>
problem invalid(const key<T>& k, const Value& found) {
  if constexpr (shape::is_optional<Value>) {
    return found ? invalid(k, *found) : problem{};
  } else if constexpr (std::is_same_v<Value, std::string>) {
    return k.words.empty() ? problem{} : not_one_of(found, k.words);
  } else if constexpr (std::is_arithmetic_v<Value> && !std::is_same_v<Value, bool>) {
    return out_of_range(found, k.valid);
  } else {
    return {};
  }
}

/// f(field, initial) with a key's field in an object and its initial value, or `otherwise` if the
/// key has none.
template <class T, class F, class R>
R with_field(const key<T>& k, const T& object, F&& f, R otherwise) {
  static const T initial{};
  return std::visit(
      [&](const auto& field) -> R {
        if constexpr (std::is_same_v<std::decay_t<decltype(field)>, std::monostate>)
          return otherwise;
        else
          return f(std::as_const(field(const_cast<T&>(object))),
                   std::as_const(field(const_cast<T&>(initial))));
      },
      k.field);
}

/// Does a key's field differ from its initial value?
template <class T>
bool is_given(const key<T>& k, const T& object) {
  return with_field(
      k, object, [](const auto& found, const auto& initial) { return found != initial; }, false);
}

/// The first invalid field of a map's keys. A field that has its initial value, as without the key,
/// is valid unless the key is required.
template <class T>
std::optional<objection> first_invalid(const key_table<T>& keys, const T& object) {
  for (const auto& k : keys) {
    auto p = with_field(
        k, object,
        [&](const auto& found, const auto& initial) {
          return !k.use.required && found == initial ? problem{} : invalid(k, found);
        },
        problem{});
    if (p) return objection{std::string{k.name}, std::move(*p)};
  }
  return {};
}

/// The same as the problem of the key that holds the map.
template <class T>
problem first_invalid_inside(const key_table<T>& keys, const T& object) {
  const auto bad = first_invalid(keys, object);
  return bad ? inside(bad->key, bad->problem) : problem{};
}

/// All sizes of a model.
problem check_model(const model& m);

/// A cut of the model into stages, in pieces; empty: only their number is given.
problem check_cut(const model& m, const std::vector<std::uint32_t>& cut, std::uint32_t stages);
/// The GPUs that share a stage.
problem check_tensor(const model& m, std::uint32_t gpus);
/// The groups of pipelines that a job's user chose. REQUIRES: it has them.
problem check_groups(const job_spec& job);

}  // namespace troupe::admission
