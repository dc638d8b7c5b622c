#pragma once

#include <string>

#include "messages/base/reason.hpp"

namespace troupe::cli {

/// Checks whether a file can be written, before any work is done for it. An existing file is not
/// changed.
expected<void> can_write(const std::string& file);
/// The same for files in a directory, which is created.
expected<void> can_write_into(const std::string& directory);

/// A temporary directory of this process, created when it is first needed and removed with the
/// object.
class temporary_directory {
 public:
  temporary_directory() = default;
  ~temporary_directory();
  temporary_directory(const temporary_directory&) = delete;
  temporary_directory& operator=(const temporary_directory&) = delete;

  /// A path in it; empty: the directory could not be created.
  std::string file(const std::string& name);

 private:
  std::string path_;
};

}  // namespace troupe::cli
