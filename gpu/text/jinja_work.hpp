#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace troupe::gpu::jinja {

/// A template that cannot be read or evaluated. It never leaves the functions of template.hpp.
class error : public std::runtime_error {
 public:
  explicit error(const std::string& text) : std::runtime_error{text} {}
};

/// Throws an error with a text for fmt::format and its values.
template <class... Values>
[[noreturn]] void fail(fmt::format_string<Values...> text, Values&&... values) {
  throw error{fmt::format(text, std::forward<Values>(values)...)};
}

/// The work of one evaluation. A template comes from outside, so its steps and what they write into
/// memory are limited.
class work {
 public:
  static constexpr std::uint64_t max_steps = 2'000'000;
  static constexpr std::uint64_t max_bytes = 256u << 20;  // written, not held at a time

  void steps(std::uint64_t n) {
    steps_ += n;
    if (steps_ > max_steps) fail("takes more than 2000000 steps, expected fewer");
  }
  void bytes(std::uint64_t n) {
    if (n > max_bytes || (bytes_ += n) > max_bytes)
      fail("writes more than 256 MiB of values, expected less");
  }

  /// `times` is not negative.
  void bytes_times(std::uint64_t n, std::int64_t times) {
    std::uint64_t all = 0;
    bytes(__builtin_mul_overflow(n, static_cast<std::uint64_t>(times), &all) ? UINT64_MAX : all);
  }

 private:
  std::uint64_t steps_ = 0, bytes_ = 0;
};

}  // namespace troupe::gpu::jinja
