#pragma once

#include <fmt/core.h>
#include <time.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace troupe::gpu::jinja {

/// A template that cannot be read or evaluated. It never leaves the functions of
/// template.hpp.
class error : public std::runtime_error {
 public:
  explicit error(const std::string& text) : std::runtime_error{text} {}
};

/// Throws an error with a text for fmt::format and its values.
template <class... Values>
[[noreturn]] void fail(fmt::format_string<Values...> text, Values&&... values) {
  throw error{fmt::format(text, std::forward<Values>(values)...)};
}

/// The work of one evaluation. A template comes from outside, so its steps, what they read and
/// write, and their processor time are limited. The time is the last guard: what the other two
/// allow takes less on any machine.
class work {
 public:
  static constexpr std::uint64_t max_steps = 2'000'000;
  static constexpr double max_cpu_s = 2;
  static constexpr std::uint64_t max_bytes = 256u << 20;  // written, not held at a time

  void steps(std::uint64_t n) {
    steps_ += n;
    if (steps_ > max_steps) fail("takes more than {} steps, expected fewer", max_steps);
    constexpr std::uint64_t between_looks = 4096;
    if (steps_ < next_look_) return;
    next_look_ = steps_ + between_looks;
    if (thread_cpu_s() - began_s_ > max_cpu_s)
      fail("takes more than {:g} s of processor time, expected less", max_cpu_s);
  }
  /// For a text that is searched or compared.
  void reads(std::uint64_t bytes) { steps(bytes / 32); }
  /// For a text whose characters are looked up or changed one by one.
  void maps(std::uint64_t bytes) { steps(bytes / 8); }
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
  static double thread_cpu_s() {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }

  std::uint64_t steps_ = 0, bytes_ = 0, next_look_ = 0;
  double began_s_ = thread_cpu_s();
};

}  // namespace troupe::gpu::jinja
