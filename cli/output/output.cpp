#include "cli/output/output.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <system_error>

#include "cli/output/human.hpp"

namespace troupe::cli {

namespace {

/// The beginning of an error about a file: "FILE:LINE: ..." or "FILE: ...".
struct file_place {
  std::string file;  // empty: not about a file
  int line = 0;      // 0: the whole file
};

file_place place_in(const std::string& sentence) {
  const auto end = sentence.find(": ");
  if (end == std::string::npos) return {};
  auto name = sentence.substr(0, end);
  // A URL has a port where a file has its line.
  if (name.find("://") != std::string::npos) return {};
  const auto colon = name.rfind(':');
  if (colon != std::string::npos && colon + 1 < name.size() && name.size() - colon <= 8 &&
      name.find_first_not_of("0123456789", colon + 1) == std::string::npos)
    return {name.substr(0, colon), std::stoi(name.substr(colon + 1))};
  std::error_code error;
  // Without a line number, the first word counts if it is a file or looks like one.
  // An error may begin with other words and a colon ("--policy: ...").
  const bool missing = sentence.compare(end + 2, 12, "no such file") == 0;
  return missing || std::filesystem::exists(name, error) ? file_place{name, 0} : file_place{};
}

/// The found text of a sentence "found X, expected Y"; empty: it is no such sentence.
std::string found_in(const std::string& sentence) {
  constexpr std::string_view before = "found ", after = ", expected ";
  const auto from = sentence.find(before);
  const auto to = sentence.find(after, from);
  if (from == std::string::npos || to == std::string::npos) return {};
  return sentence.substr(from + before.size(), to - from - before.size());
}

}  // namespace

std::string_view code_of(const reason& why) {
  constexpr std::array names{"invalid",     "infeasible",    "insufficient", "stale",
                             "unknown",     "refused",       "malformed",    "unavailable",
                             "device_lost", "out_of_memory", "worker_lost"};
  static_assert(names.size() == 1 + static_cast<std::size_t>(reason::kind::worker_lost));
  return names[static_cast<std::size_t>(why.code)];
}

void output::document(const json& d) const {
  // Invalid UTF-8 in a name must not invalidate the whole document.
  if (json_) write_output(d.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
  documented_ = true;
}

std::string output::as_lines(std::string_view text) {
  return printable(text, true) + "\n";
}

void output::complain(const reason& why) const {
  note("troupe: {}", why.text);
  // Standard output has one document at most: what reads it parses the whole.
  if (documented_) return;
  json d{{"error", why.text}, {"code", code_of(why)}};
  // Editors and CI jump to the place, so the parts of the sentence are fields of their own.
  if (const auto at = place_in(why.text); !at.file.empty()) {
    d["file"] = at.file;
    if (at.line > 0) d["line"] = at.line;
    if (const auto found = found_in(why.text); !found.empty()) d["found"] = found;
  }
  document(d);
}

int output::failure(const reason& why) const {
  complain(why);
  return exit_no;
}

int output::bad(const reason& why) const {
  complain(why);
  return exit_bad;
}

bool is_bad_file(const reason& why) {
  return !place_in(why.text).file.empty();
}

bool on_terminal() {
  return isatty(STDERR_FILENO) != 0;
}

std::size_t terminal_columns() {
  winsize size{};
  // 0, which means no limit, for files and pipes: their readers expect a row per line.
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

}  // namespace troupe::cli
