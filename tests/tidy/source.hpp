#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace troupe::tidy {

/// A file of the checkout. `path` is relative to its root ("planners/plans/has.cpp").
struct source {
  std::string path;
  std::vector<std::string> lines;  // as written
  std::vector<std::string> code;   // the same without comments, and with literals emptied

  std::string module() const { return path.substr(0, path.find('/')); }
  bool is_cpp() const;
  bool is_header() const;
  bool is_code() const;        // in any language that is linted
  bool is_build_file() const;  // of CMake
};

/// Splits a text into lines and strips comments and literals from C++.
source read_source(std::string path, std::string_view text);

}  // namespace troupe::tidy
