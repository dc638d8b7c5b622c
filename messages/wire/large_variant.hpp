#pragma once

#include <cstddef>
#include <type_traits>
#include <variant>

namespace troupe {

/// The index of an alternative of a std::variant, or the number of its alternatives.
template <class A, class... T>
constexpr std::size_t alternative_index(const std::variant<T...>*) {
  constexpr bool is[] = {std::is_same_v<A, T>...};
  std::size_t i = 0;
  while (i < sizeof...(T) && !is[i]) ++i;
  return i;
}

/// A std::variant of many types. What copies, moves and destroys it is compiled once, where the
/// class is instantiated (large_variant_members.hpp): each is a function for every alternative, in
/// every file that holds a value.
template <class Variant>
class large_variant : public Variant {
 public:
  large_variant();
  large_variant(const large_variant& other);
  large_variant(large_variant&& other) noexcept;
  large_variant& operator=(const large_variant& other);
  large_variant& operator=(large_variant&& other) noexcept;
  ~large_variant();

  template <class A>
  static constexpr bool has =
      alternative_index<A>(static_cast<Variant*>(nullptr)) < std::variant_size_v<Variant>;

  template <class A>
  requires has<A> large_variant(A value)
      : large_variant{alternative_index<A>(static_cast<Variant*>(nullptr)), &value} {}

 private:
  /// The alternative is moved from `value`.
  large_variant(std::size_t index, void* value);
};

}  // namespace troupe

template <class Variant>
struct std::variant_size<troupe::large_variant<Variant>> : std::variant_size<Variant> {};
