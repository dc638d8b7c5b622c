#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace troupe::runtime {

enum class log_level : std::uint8_t { debug, info, warn, error, none };

/// One key with its value.
struct log_field {
  template <class T>
  log_field(std::string_view k, const T& v) : key{k}, value{fmt::format("{}", v)} {}

  std::string_view key;
  std::string value;
};

/// Writes one line to standard error (or to the sink), whole, from any thread:
///   2026-01-31T12:00:00.000Z warn transport: refused a peer address=10.0.0.7 name="dc1/gateway"
void log(log_level level, std::string_view who, std::string_view text,
         std::initializer_list<log_field> fields = {});

/// Lines below this level are not written. Starts at info.
void set_log_level(log_level level);

/// Where lines go instead of standard error; an empty function: standard error again.
void set_log_sink(std::function<void(log_level, std::string_view line)> sink);

}  // namespace troupe::runtime
