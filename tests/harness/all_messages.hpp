#pragma once

#include <cstdint>
#include <utility>
#include <variant>

#include "messages/wire/message.hpp"

namespace troupe::test {

/// Calls `f` with a value of every type of message.
template <class F, class... T>
void for_each_message(F&& f, const std::variant<T...>*) {
  (f(message{T{}}), ...);
}
template <class F>
void for_each_message(F&& f) {
  for_each_message(std::forward<F>(f), static_cast<const message*>(nullptr));
}

inline std::uint16_t type_of(const message& m) {
  return std::visit([]<class T>(const T&) { return type_id<T>; }, m);
}

}  // namespace troupe::test
