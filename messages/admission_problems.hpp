#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "messages/admission.hpp"

// How admission's checks say what they found. Of admission*.cpp only.

namespace troupe::admission {

/// A sentence without the key; nothing: all is well.
using problem = std::optional<std::string>;

template <class T>
problem out_of_range(T found, std::type_identity_t<T> low, std::type_identity_t<T> high) {
  if (found >= low && found <= high) return {};
  return fmt::format("found {}, expected a {} from {} to {}", found,
                     std::is_floating_point_v<T> ? "number" : "whole number", low, high);
}

inline problem not_above_0(double found, double high) {
  if (found > 0 && found <= high) return {};
  return fmt::format("found {}, expected a number above 0 and at most {}", found, high);
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

/// The problem of a key of the job file.
inline std::optional<objection> at_key(const char* name, problem p) {
  return p ? std::optional<objection>({name, std::move(*p)}) : std::nullopt;
}

/// All sizes of a model.
problem check_model(const model& m);

}  // namespace troupe::admission
