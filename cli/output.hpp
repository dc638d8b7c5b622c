#pragma once

#include <fmt/format.h>

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

  /// A line for people.
  template <class... T>
  void line(fmt::format_string<T...> format, T&&... arguments) const {
    if (!json_) write(stdout, fmt::format(format, std::forward<T>(arguments)...) + "\n");
  }
  /// A text for people, as it is.
  void text(std::string_view text) const {
    if (!json_) write(stdout, text);
  }
  /// A line on standard error.
  template <class... T>
  void note(fmt::format_string<T...> format, T&&... arguments) const {
    write(stderr, fmt::format(format, std::forward<T>(arguments)...) + "\n");
  }

  /// The document for programs.
  void document(const json& d) const;

  /// The answer is "no", and why; returns exit_no. The document, if any, has been printed.
  int no(std::string_view why) const;
  /// The usage or a file is bad; returns exit_bad. With --json, {"error": why} is the document.
  int bad(std::string_view why) const;
  int bad(const reason& why) const { return bad(why.text); }

 private:
  static void write(std::FILE* to, std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), to);
  }

  bool json_;
};

/// Are there eyes on standard error? Progress is shown only then.
bool on_terminal();

}  // namespace troupe::cli
