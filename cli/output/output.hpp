#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "cli/output/exit_status.hpp"
#include "cli/output/standard_output.hpp"
#include "messages/base/reason.hpp"

namespace troupe::cli {

/// Keys stay in order of insertion.
using json = nlohmann::ordered_json;

/// The output of a verb. For people: lines on standard output. With --json: one document on
/// standard output, and nothing else there. Notes and errors go to standard error in both cases.
class output {
 public:
  explicit output(bool as_json) : json_{as_json} {}

  bool as_json() const { return json_; }

  /// A line for people. Control characters are escaped: job names and the like are untrusted.
  template <class... T>
  void line(fmt::format_string<T...> format, T&&... arguments) const {
    if (!json_) write_output(as_lines(fmt::format(format, std::forward<T>(arguments)...)));
  }
  /// Text for people, unchanged.
  void text(std::string_view text) const {
    if (!json_) write_output(text);
  }
  /// A line on standard error.
  template <class... T>
  void note(fmt::format_string<T...> format, T&&... arguments) const {
    write_note(as_lines(fmt::format(format, std::forward<T>(arguments)...)));
  }

  /// The document for programs.
  void document(const json& d) const;
  /// For output that is too long to be held in memory: bytes on standard output. documented()
  /// declares that they were a document.
  void raw(std::string_view bytes) const { write_output(bytes); }
  void documented() const { documented_ = true; }

  /// The result is "no", with the reason; returns exit_no. A document, if any, has been printed;
  /// with --json and without one, {"error": why, "code": ...} is printed.
  int failure(const reason& why) const;
  int failure(std::string_view why) const {
    return failure({reason::kind::refused, std::string{why}});
  }
  /// Bad usage or a bad file; returns exit_bad. The document is as above.
  int bad(const reason& why) const;
  int bad(std::string_view why) const { return bad({reason::kind::invalid, std::string{why}}); }

 private:
  void complain(const reason& why) const;
  static std::string as_lines(std::string_view text);

  bool json_;
  mutable bool documented_ = false;  // at most one document
};

/// The `code` of an error's document.
std::string_view code_of(const reason& why);

/// Does the sentence complain about a file: "FILE:LINE: ..."?
bool is_bad_file(const reason& why);

/// Is standard error a terminal? Progress is shown only then.
bool on_terminal();
/// Columns of the terminal on standard output; 0: not a terminal.
std::size_t terminal_columns();

}  // namespace troupe::cli
