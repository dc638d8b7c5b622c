#pragma once

// The sites in instrumented sources; the compiler includes this header before each of them. All
// mutants of a module are compiled at once, and each asks whether it is the chosen one:
//     a < b     becomes     a < ::mutation::site<17>{} < b
// which has the same precedence, so that no expression needs to be parsed.

#include <algorithm>
#include <initializer_list>
#include <type_traits>
#include <utility>

namespace mutation {

inline constexpr int max_sites = 1 << 17;

extern int chosen;               // the mutant that this process runs; 0: none
extern unsigned char* executed;  // by mutant; shared with the processes that this one starts
extern unsigned char impossible[max_sites];

/// Expressions that the compiler evaluates are never mutated.
template <int Id>
constexpr bool on() noexcept {
  if (std::is_constant_evaluated()) return false;
  executed[Id] = 1;
  return chosen == Id;
}

/// Exists where the mutated operator does not compile for the operands' types.
template <int Id>
struct not_compiled {
  static bool note() { return impossible[Id] = 1; }
  static inline const bool noted = note();
};

// Scalars are passed by value: a constant that is only read needs no address.
template <class T>
concept scalar = std::is_scalar_v<std::decay_t<T>>;

template <int Id>
struct site {};
template <int Id, class L>
struct left_operand {
  L value;
};
template <int Id, class R>
struct right_operand {
  R value;
};

#define MUTATION_LEFT(OP)                                                                        \
  template <scalar L, int Id>                                                                    \
  constexpr left_operand<Id, L> operator OP(L l, site<Id>&&) noexcept {                          \
    return {l};                                                                                  \
  }                                                                                              \
  template <class L, int Id>                                                                     \
  requires(!scalar<L>) constexpr left_operand<Id, L&&> operator OP(L&& l, site<Id>&&) noexcept { \
    return {std::forward<L>(l)};                                                                 \
  }

// The result has the type that the original operator's has.
#define MUTATION_RIGHT(OP, MUTATED, CONSTRAINT, R_PARAMETER)                              \
  template <int Id, class L, class R>                                                     \
  requires(CONSTRAINT) constexpr auto operator OP(left_operand<Id, L>&& l, R_PARAMETER r) \
      ->decltype(std::declval<L>() OP std::declval<R>()) {                                \
    using result = decltype(std::declval<L>() OP std::declval<R>());                      \
    if constexpr (requires {                                                              \
                    static_cast<result>(std::declval<L>() MUTATED std::declval<R>());     \
                  }) {                                                                    \
      if (on<Id>())                                                                       \
        return static_cast<result>(std::forward<L>(l.value) MUTATED std::forward<R>(r));  \
    } else if (!std::is_constant_evaluated()) {                                           \
      executed[Id] = 1;                                                                   \
      static_cast<void>(&not_compiled<Id>::noted);                                        \
    }                                                                                     \
    return std::forward<L>(l.value) OP std::forward<R>(r);                                \
  }

#define MUTATION_BINARY(OP, MUTATED)        \
  MUTATION_LEFT(OP)                         \
  MUTATION_RIGHT(OP, MUTATED, scalar<R>, R) \
  MUTATION_RIGHT(OP, MUTATED, !scalar<R>, R &&)

MUTATION_BINARY(<, <=)
MUTATION_BINARY(<=, <)
MUTATION_BINARY(>, >=)
MUTATION_BINARY(>=, >)
MUTATION_BINARY(==, !=)
MUTATION_BINARY(!=, ==)
MUTATION_BINARY(+, -)
MUTATION_BINARY(-, +)
MUTATION_BINARY(*, /)
MUTATION_BINARY(/, *)

// Assignments group to the right: a += b becomes a += ::mutation::site<17>{} += b.
#define MUTATION_ASSIGNMENT(OP, MUTATED)                                     \
  template <int Id, class R>                                                 \
  constexpr right_operand<Id, R&&> operator OP(site<Id>&&, R&& r) noexcept { \
    return {std::forward<R>(r)};                                             \
  }                                                                          \
  template <class L, int Id, class R>                                        \
  constexpr decltype(auto) operator OP(L& l, right_operand<Id, R>&& r) {     \
    if constexpr (requires { l MUTATED std::declval<R>(); }) {               \
      if (on<Id>()) return l MUTATED std::forward<R>(r.value);               \
    } else if (!std::is_constant_evaluated()) {                              \
      executed[Id] = 1;                                                      \
      static_cast<void>(&not_compiled<Id>::noted);                           \
    }                                                                        \
    return l OP std::forward<R>(r.value);                                    \
  }

MUTATION_ASSIGNMENT(+=, -=)
MUTATION_ASSIGNMENT(-=, +=)
MUTATION_ASSIGNMENT(*=, /=)
MUTATION_ASSIGNMENT(/=, *=)

// !a becomes ::mutation::negation<17>{} ->* !a, and so do ++a and --a: they bind closer than ->*.
template <int Id>
struct negation {};
template <int Id>
constexpr bool operator->*(negation<Id>&&, bool negated) noexcept {
  return on<Id>() ? !negated : negated;
}

template <int Id>
struct increment {};
template <int Id, class T>
constexpr T& operator->*(increment<Id>&&, T& incremented) {
  if constexpr (requires { --incremented; }) {
    if (on<Id>()) --incremented, --incremented;
  } else if (!std::is_constant_evaluated()) {
    executed[Id] = 1;
    static_cast<void>(&not_compiled<Id>::noted);
  }
  return incremented;
}

template <int Id>
struct decrement {};
template <int Id, class T>
constexpr T& operator->*(decrement<Id>&&, T& decremented) {
  if (on<Id>()) ++decremented, ++decremented;
  return decremented;
}

template <int Id>
constexpr bool constant(bool value) noexcept {
  return on<Id>() ? !value : value;
}

template <int Id>
struct min {
  template <class T>
  static constexpr const T& of(const T& a, const T& b) {
    return on<Id>() ? std::max(a, b) : std::min(a, b);
  }
  template <class T, class Less>
  static constexpr const T& of(const T& a, const T& b, Less less) {
    return on<Id>() ? std::max(a, b, less) : std::min(a, b, less);
  }
  template <class T>
  static constexpr T of(std::initializer_list<T> all) {
    return on<Id>() ? std::max(all) : std::min(all);
  }
};

template <int Id>
struct max {
  template <class T>
  static constexpr const T& of(const T& a, const T& b) {
    return on<Id>() ? std::min(a, b) : std::max(a, b);
  }
  template <class T, class Less>
  static constexpr const T& of(const T& a, const T& b, Less less) {
    return on<Id>() ? std::min(a, b, less) : std::max(a, b, less);
  }
  template <class T>
  static constexpr T of(std::initializer_list<T> all) {
    return on<Id>() ? std::min(all) : std::max(all);
  }
};

}  // namespace mutation
