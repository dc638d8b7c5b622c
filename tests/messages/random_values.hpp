#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "messages/base/random.hpp"
#include "messages/codec/codec.hpp"
#include "messages/codec/shape.hpp"

namespace troupe::testing {

/// Fills any message with values that are as nasty as its fields allow: limits, NaNs, any bytes in
/// strings, empty and longer containers.
class filler {
 public:
  /// `whole`: no NaN, so that a value equals itself.
  explicit filler(std::uint64_t seed, bool whole = false) : random_{seed}, whole_{whole} {}

  template <class T>
  void fill(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      value = random_.chance(0.5);
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(random_.below(shape::enum_count<T>));
    } else if constexpr (shape::is_integer<T>) {
      value = integer<T>();
    } else if constexpr (std::is_same_v<T, double>) {
      value = number();
    } else if constexpr (std::is_same_v<T, std::string>) {
      value.resize(size(40, 300));
      for (char& c : value) c = static_cast<char>(random_.next());
    } else if constexpr (shape::is_vector<T>) {
      value.resize(size(4, 20));
      for (auto& element : value) fill(element);
    } else if constexpr (shape::is_map<T>) {
      for (auto n = size(4, 20); n > 0; --n) {
        typename T::key_type key{};
        fill(key), fill(value[key]);
      }
    } else if constexpr (shape::is_optional<T>) {
      value.reset();
      if (random_.chance(0.5)) fill(value.emplace());
    } else if constexpr (shape::is_variant<T>) {
      alternative(value, random_.below(std::variant_size_v<T>));
    } else {
      shape::all_fields(value, [this](auto& field) { return fill(field), true; });
    }
  }

  /// The alternative with that index, filled.
  template <class... T>
  void alternative(std::variant<T...>& value, std::size_t index) {
    std::size_t i = 0;
    ((i++ == index ? fill(value.template emplace<T>()) : void()), ...);
  }

  random_source& random() { return random_; }

 private:
  std::size_t size(std::size_t usual, std::size_t rare) {
    return random_.below((random_.chance(0.02) ? rare : usual) + 1);
  }

  template <class T>
  T integer() {
    using limits = std::numeric_limits<T>;
    switch (random_.below(4)) {
      case 0:
        return limits::max();
      case 1:
        return limits::min();
      case 2:
        return static_cast<T>(random_.next());
      default:
        return static_cast<T>(random_.next() >>
                              (64 - sizeof(T) * 8 + random_.below(sizeof(T) * 8)));
    }
  }

  double number() {
    using limits = std::numeric_limits<double>;
    const double known[] = {0.0,
                            -0.0,
                            1.0,
                            -3.0,
                            40e9,
                            limits::infinity(),
                            -limits::infinity(),
                            limits::denorm_min(),
                            limits::max(),
                            limits::lowest(),
                            limits::epsilon()};
    const double value = random_.chance(0.5) ? known[random_.below(std::size(known))]
                                             : std::bit_cast<double>(random_.next());
    return whole_ && std::isnan(value) ? 0.5 : value;
  }

  random_source random_;
  bool whole_;
};

}  // namespace troupe::testing
