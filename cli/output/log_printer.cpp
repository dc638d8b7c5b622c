#include "cli/output/log_printer.hpp"

namespace troupe::cli {

namespace {

constexpr std::size_t longest_line = 1 << 20;  // longer ones are split

std::string escaped_text(std::string_view text) {
  // JSON's escapes without the quotes: one form for people and for programs.
  const auto quoted = json(text).dump(-1, ' ', false, json::error_handler_t::replace);
  return quoted.substr(1, quoted.size() - 2);
}

/// Length of an incomplete UTF-8 character at the end.
std::size_t unfinished_character(std::string_view text) {
  for (std::size_t n = 1; n <= 3 && n <= text.size(); ++n) {
    const auto c = static_cast<unsigned char>(text[text.size() - n]);
    if ((c & 0xc0) == 0x80) continue;
    const std::size_t length = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
    return length > n ? n : 0;
  }
  return 0;
}

}  // namespace

void log_printer::print(std::string_view piece) {
  if (form_ == form::plain) return out_.raw(piece);
  held_ += piece;
  if (form_ == form::text) {
    // Pieces end anywhere. Half a character would be replaced as invalid, so it waits for the rest.
    const auto whole = held_.size() - unfinished_character(held_);
    out_.raw(escaped_text(std::string_view{held_}.substr(0, whole)));
    held_.erase(0, whole);
    return;
  }
  std::size_t from = 0;
  for (;;) {
    auto end = held_.find('\n', from);
    if (end == std::string::npos && held_.size() - from <= longest_line) break;
    // A program that never ends its line must not fill the memory of its reader.
    const bool cut = end == std::string::npos;
    if (cut) end = from + longest_line;
    print_line(std::string_view{held_}.substr(from, end - from));
    from = cut ? end : end + 1;
  }
  held_.erase(0, from);
}

void log_printer::end() {
  if (held_.empty()) return;
  if (form_ == form::text)
    out_.raw(escaped_text(held_));
  else
    print_line(held_);
  held_.clear();
}

void log_printer::print_line(std::string_view line) const {
  if (form_ == form::prefixed)
    return out_.raw(fmt::format("{}.{}| {}\n", which_.attempt, which_.rank, line));
  const json d{{"job", job_},
               {"attempt", which_.attempt},
               {"rank", which_.rank},
               {"lease", which_.lease},
               {"line", line}};
  out_.raw(d.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
}

}  // namespace troupe::cli
