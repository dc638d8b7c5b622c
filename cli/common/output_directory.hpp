#pragma once

#include <string>

#include "messages/reason.hpp"
#include "runtime/host/file_lock.hpp"

namespace troupe::cli {

/// A directory that a verb makes, fills, and empties when it runs again. It bears a mark, and what
/// does not is never emptied: it is not this program's.
class output_directory {
 public:
  /// Makes the directory, or empties the one that an earlier run has made. Refuses one that holds
  /// files and has no mark, and one that another process is filling.
  static expected<output_directory> claim(const std::string& path);

 private:
  explicit output_directory(runtime::file_lock lock) : lock_{std::move(lock)} {}
  runtime::file_lock lock_;  // of the mark
};

}  // namespace troupe::cli
