#include "runtime/log.hpp"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <utility>

namespace troupe::runtime {
namespace {

std::atomic<log_level> least{log_level::info};
std::mutex sink_mutex;
std::function<void(log_level, std::string_view)> sink_in_use;

constexpr std::string_view names[] = {"debug", "info", "warn", "error", "none"};

std::string timestamp() {
  using namespace std::chrono;
  const auto ms = duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
  const auto seconds = static_cast<std::time_t>(ms / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, ms % 1000);
}

bool is_plain(std::string_view s) {
  for (const char ch : s)
    if (ch <= ' ' || ch == '"' || ch == '=' || ch == '\\' || ch == 127) return false;
  return !s.empty();
}

// A value can come from a stranger: quoted, and never a second line.
std::string quoted(std::string_view s) {
  if (is_plain(s)) return std::string{s};
  std::string out = "\"";
  for (const char ch : s) {
    if (ch == '"' || ch == '\\') {
      out += '\\';
      out += ch;
    } else if (static_cast<unsigned char>(ch) < ' ' || ch == 127) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(ch));
    } else {
      out += ch;
    }
  }
  return out + '"';
}

}  // namespace

log_level log_level_from(std::string_view name, log_level otherwise) {
  for (std::size_t i = 0; i < std::size(names); ++i)
    if (names[i] == name) return static_cast<log_level>(i);
  return otherwise;
}

void log(log_level level, std::string_view who, std::string_view text,
         std::initializer_list<log_field> fields) {
  if (level < least.load(std::memory_order_relaxed) || level == log_level::none) return;
  auto line =
      fmt::format("{} {} {}: {}", timestamp(), names[static_cast<std::size_t>(level)], who, text);
  for (const auto& f : fields) line += fmt::format(" {}={}", f.key, quoted(f.value));
  const std::lock_guard guard{sink_mutex};
  if (sink_in_use) return sink_in_use(level, line);
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void set_log_level(log_level level) {
  least = level;
}

void set_log_sink(std::function<void(log_level, std::string_view line)> sink) {
  const std::lock_guard guard{sink_mutex};
  sink_in_use = std::move(sink);
}

}  // namespace troupe::runtime
