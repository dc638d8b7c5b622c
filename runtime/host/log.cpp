#include "runtime/host/log.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <utility>

#include "messages/base/utf8.hpp"

namespace troupe::runtime {
namespace {

std::atomic<log_level> min{log_level::info};
std::mutex sink_mutex;
std::function<void(log_level, std::string_view)> sink_in_use;

constexpr std::array<std::string_view, 5> names{"debug", "info", "warn", "error", "none"};

std::string timestamp() {
  using namespace std::chrono;
  const auto ms = duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
  const auto seconds = static_cast<std::time_t>(ms / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, ms % 1000);
}

/// Bytes of the printable UTF-8 character at the beginning of `s`; 0 if there is none. Control
/// characters do not count: those below space, DEL, and U+0080 to U+009F, which some terminals
/// obey.
std::size_t shown_character(std::string_view s) {
  const auto c = first_character(s);
  return c.valid && c.point >= ' ' && (c.point < 0x7f || c.point > 0x9f) ? c.bytes : 0;
}

/// Escapes text from untrusted peers: one line of valid UTF-8 without terminal controls.
std::string escaped(std::string_view s, std::string_view also) {
  std::string out;
  while (!s.empty()) {
    const auto size = shown_character(s);
    if (size == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(s[0]));
    } else {
      if (size == 1 && also.find(s[0]) != std::string_view::npos) out += '\\';
      out += s.substr(0, size);
    }
    s.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return out;
}

// Values without quotes can be cut out by grep and awk.
bool is_plain(std::string_view s) {
  for (const char ch : s)
    if (ch <= ' ' || ch == '"' || ch == '=' || ch == '\\' || ch == 127) return false;
  return !s.empty();
}

std::string quoted(std::string_view s) {
  return is_plain(s) ? std::string{s} : '"' + escaped(s, "\"\\") + '"';
}

}  // namespace

// The line is formatted outside of the lock, which only keeps lines whole.
void log(log_level level, std::string_view who, std::string_view text,
         std::initializer_list<log_field> fields) {
  if (level < min.load(std::memory_order_relaxed) || level == log_level::none) return;
  auto line = fmt::format("{} {} {}: {}", timestamp(), names[static_cast<std::size_t>(level)],
                          escaped(who, ""), escaped(text, ""));
  for (const auto& f : fields) line += fmt::format(" {}={}", f.key, quoted(f.value));
  const std::lock_guard guard{sink_mutex};
  if (sink_in_use) return sink_in_use(level, line);
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void set_log_level(log_level level) {
  min = level;
}

void set_log_sink(std::function<void(log_level, std::string_view line)> sink) {
  const std::lock_guard guard{sink_mutex};
  sink_in_use = std::move(sink);
}

}  // namespace troupe::runtime
