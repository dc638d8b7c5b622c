#pragma once

#include <catch2/catch.hpp>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "harness/source_dir.hpp"

namespace troupe::test {

/// A line of them, numbers with six digits.
template <class... T>
std::string values(const T&... all) {
  std::ostringstream out;
  const char* between = "";
  ((out << std::exchange(between, " ") << all), ...);
  return out.str();
}

/// The numbers of a sentence: its facts, whatever its words.
inline std::string numbers_in(const std::string& text) {
  const auto digit = [&](std::size_t i) {
    return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0;
  };
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (digit(i) || (text[i] == '.' && i > 0 && digit(i - 1) && digit(i + 1)))
      out += text[i];
    else if (!out.empty() && out.back() != ',')
      out += ',';
  return out;
}

/// A fingerprint of the results of each seeded case. A different one is a change of behaviour, by
/// mistake or on purpose; after the latter, TROUPE_RECORD=1 rewrites the file.
/// TROUPE_RECORD_TEXT=FOLDER writes the results in full, to compare two versions.
class recording {
 public:
  /// In tests/MODULE/recorded/.
  recording(const std::string& module, const std::string& name)
      : name_{name},
        path_{troupe::test::source_dir() + "/tests/" + module + "/recorded/" + name + ".txt"} {}

  /// Begins a case: the values added from here on belong to it.
  template <class T>
  void begin(const T& label) {
    cases_.emplace_back(test::values(label), "");
  }
  template <class... T>
  void add(const T&... values) {
    cases_.back().second += test::values(values...) + "\n";
  }

  void check() const {
    std::string all, text;
    for (const auto& [label, lines] : cases_) {
      all += line_of(label, lines) + "\n";
      text += label + "\n" + lines;
    }
    if (const char* folder = std::getenv("TROUPE_RECORD_TEXT"))
      std::ofstream{std::string{folder} + "/" + name_ + ".txt"} << text;
    if (std::getenv("TROUPE_RECORD")) {
      std::ofstream{path_} << all;
      return;
    }
    std::ifstream in{path_};
    INFO(path_);
    for (const auto& [label, lines] : cases_) {
      std::string known;
      std::getline(in, known);
      INFO(lines);
      REQUIRE(line_of(label, lines) == known);
    }
    CHECK(in.peek() == std::ifstream::traits_type::eof());
  }

 private:
  static std::string line_of(const std::string& label, const std::string& lines) {
    std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
    for (const char c : lines) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
    std::ostringstream out;
    out << label << ' ' << std::hex << hash;
    return out.str();
  }

  std::string name_, path_;
  std::vector<std::pair<std::string, std::string>> cases_;
};

}  // namespace troupe::test
