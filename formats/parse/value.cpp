#include "formats/parse/value.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <system_error>

#include "messages/base/python_numbers.hpp"
#include "messages/base/utf8.hpp"

namespace troupe::formats {

namespace fs = std::filesystem;

reason complaint(std::string_view file, int line, std::string_view place,
                 std::string_view problem) {
  std::string text{file};
  if (line > 0) text += fmt::format(":{}", line);
  text += ": ";
  if (!place.empty()) text += fmt::format("{}: ", place);
  return reason{reason::kind::invalid, text + std::string{problem}};
}

// Files come from users, downloads and pipes. They are read whole, up to a limit, and must be text:
// a parser that meets binary bytes reports a syntax error somewhere, which says nothing about the
// mistake of naming the wrong file.
namespace {

/// Line of the first byte that is invalid in a text file, or 0.
// The line, as a stray control character may be in an otherwise readable file.
int binary_line(std::string_view text) {
  int line = 1;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (u == '\n') ++line;
    if ((u < 0x20 && u != '\n' && u != '\r' && u != '\t') || u == 0x7f) return line;
  }
  return 0;
}

// Parsers copy bytes as they are, so that errors, names and logs would carry invalid ones on.
bool valid_utf8(std::string_view s) {
  while (!s.empty()) {
    const auto c = first_character(s);
    if (!c.valid) return false;
    s.remove_prefix(c.bytes);
  }
  return true;
}

bool is_standard_input(const fs::path& file) {
  return file == "-" || file == "/dev/stdin";
}

/// Standard input, up to the size limit; it can be read more than once.
// Kept in a temporary file, as some commands load a file twice.
std::FILE* standard_input() {
  static std::FILE* copy = [] {
    std::FILE* kept = std::tmpfile();
    char part[65536];
    std::size_t left = file_limit_bytes + 1, n = 0;
    for (; kept && (n = std::fread(part, 1, std::min(left, sizeof part), stdin)) > 0; left -= n)
      std::fwrite(part, 1, n, kept);
    return kept;
  }();
  return copy;
}

/// Opens a readable regular file. The error names the kind of anything else.
// The kind is checked first: opening a fifo would block, and reading a directory fails with a
// useless error.
expected<std::FILE*> open_file(const fs::path& file) {
  const auto failure = [&](std::string_view problem) {
    return refuse(complaint(file.string(), 0, "", problem));
  };
  if (is_standard_input(file)) {
    auto* in = standard_input();
    if (!in) return failure("cannot be read");
    std::rewind(in);
    return in;
  }
  std::error_code error;
  const auto status = fs::status(file, error);
  if (status.type() == fs::file_type::not_found) return failure("no such file");
  if (error) return failure(fmt::format("cannot be read: {}", error.message()));
  if (fs::is_directory(status)) return failure("is a directory; expected a file");
  if (!fs::is_regular_file(status)) return failure("is not a regular file");
  std::FILE* in = std::fopen(file.c_str(), "rb");
  if (!in) return failure("cannot be opened for reading");
  return in;
}

}  // namespace

expected<std::string> read_text(const fs::path& file, std::size_t limit_bytes) {
  const auto name = file.string();
  const auto failure = [&](std::string_view problem) {
    return refuse(complaint(name, 0, "", problem));
  };
  const auto opened = open_file(file);
  if (!opened) return refuse(opened.error());
  std::FILE* in = *opened;
  std::string text;
  char part[65536];
  while (text.size() <= limit_bytes) {
    const auto n = std::fread(part, 1, sizeof part, in);
    if (n == 0) break;
    text.append(part, n);
  }
  const bool failed = std::ferror(in) != 0;
  if (!is_standard_input(file)) std::fclose(in);
  if (failed) return failure("read error");
  if (text.size() > limit_bytes)
    return failure(fmt::format("larger than {} MB; not read", limit_bytes >> 20));
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);  // a byte order mark
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return failure("the file is empty");
  if (const int line = binary_line(text); line > 0 || !valid_utf8(text))
    return refuse(
        complaint(name, line, "", "is not a text file (binary bytes); expected UTF-8 text"));
  return text;
}

// By extension and not by content: a JSON file is also YAML, but the JSON parser has better errors
// for it. Files of models are written by Python, whose numbers need not be JSON's.
expected<value> load_value(const fs::path& file) {
  return read_text(file).and_then([&](const std::string& text) {
    return file.extension() == ".json" ? parse_json(file.string(), with_quoted_python_numbers(text))
                                       : parse_yaml(file.string(), text);
  });
}

}  // namespace troupe::formats
