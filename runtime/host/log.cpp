#include "runtime/host/log.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <utility>

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
// Rejects what Unicode forbids: overlong forms, surrogates, numbers beyond U+10FFFF. A terminal may
// decode these as something else than the reader of the log.
std::size_t shown_character(std::string_view s) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  if (byte(0) < 0x80) return byte(0) >= ' ' && byte(0) != 127 ? 1 : 0;
  const std::size_t size = byte(0) >> 5 == 0x06 ? 2 : byte(0) >> 4 == 0x0e ? 3 : 4;
  if (s.size() < size || (size == 4 && byte(0) >> 3 != 0x1e)) return 0;
  std::uint32_t code = byte(0) & (0xffU >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    if (byte(i) >> 6 != 2) return 0;
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr std::uint32_t smallest[] = {0, 0, 0xa0, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return code >= smallest[size] && code <= 0x10ffff && !surrogate ? size : 0;
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

log_level log_level_from(std::string_view name, log_level otherwise) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return static_cast<log_level>(i);
  return otherwise;
}

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
