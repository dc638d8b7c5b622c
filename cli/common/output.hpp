#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "messages/reason.hpp"

namespace troupe::cli {

/// Keys stay in the order in which they are written.
using json = nlohmann::ordered_json;

/// What the program ends with.
inline constexpr int exit_done = 0;
inline constexpr int exit_no = 1;   // infeasible, failed, a difference: with the reason
inline constexpr int exit_bad = 2;  // bad usage or a bad file

/// Where a verb says things. For people: lines on standard output. With --json: one document on
/// standard output, and nothing else there. Notes and complaints go to standard error either way.
class output {
 public:
  explicit output(bool as_json) : json_{as_json} {}

  bool as_json() const { return json_; }

  /// A line for people. Job names and the like come from others: control characters are escaped.
  template <class... T>
  void line(fmt::format_string<T...> format, T&&... arguments) const {
    if (!json_) write_lines(stdout, fmt::format(format, std::forward<T>(arguments)...));
  }
  /// A text for people, as it is.
  void text(std::string_view text) const {
    if (!json_) write(stdout, text);
  }
  /// A line on standard error.
  template <class... T>
  void note(fmt::format_string<T...> format, T&&... arguments) const {
    write_lines(stderr, fmt::format(format, std::forward<T>(arguments)...));
  }

  /// The document for programs.
  void document(const json& d) const;
  /// For what is too long to be held: bytes on standard output as they are, for people and for
  /// programs. documented() says that they were a document.
  void raw(std::string_view bytes) const { write(stdout, bytes); }
  void documented() const { documented_ = true; }

  /// The answer is "no", and why; returns exit_no. The document, if any, has been printed.
  /// With --json, and unless there has been a document, {"error": why, "code": ...} is one.
  int no(const reason& why) const;
  int no(std::string_view why) const { return no({reason::kind::refused, std::string{why}}); }
  /// The usage or a file is bad; returns exit_bad. The document is as above.
  int bad(const reason& why) const;
  int bad(std::string_view why) const { return bad({reason::kind::invalid, std::string{why}}); }

 private:
  static void write(std::FILE* to, std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), to);
  }

  void complain(const reason& why) const;
  static void write_lines(std::FILE* to, std::string_view text);

  bool json_;
  mutable bool documented_ = false;  // there is one document, whatever happens after it
};

/// Does the sentence complain about a file: "FILE:LINE: ..."?
bool is_bad_file(const reason& why);

/// Are there eyes on standard error? Progress is shown only then.
bool on_terminal();
/// Columns of the terminal that standard output is; 0: it is none.
std::size_t terminal_columns();

}  // namespace troupe::cli
