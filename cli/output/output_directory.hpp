#pragma once

#include <string>

#include "messages/base/reason.hpp"
#include "runtime/host/file_lock.hpp"

namespace troupe::cli {

/// A directory that a verb creates and fills, and empties when it runs again. It has a marker file;
/// a directory without one is never emptied.
class output_directory {
 public:
  /// Creates the directory, or empties that of an earlier run. Fails if it has files and no marker,
  /// or if another process is using it.
  static expected<output_directory> claim(const std::string& path);

 private:
  explicit output_directory(runtime::file_lock lock) : lock_{std::move(lock)} {}
  runtime::file_lock lock_;  // on the marker
};

}  // namespace troupe::cli
