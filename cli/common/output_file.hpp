#pragma once

#include <string>

#include "messages/reason.hpp"

namespace troupe::cli {

/// Whether a file can be written there, found out before any work is done for it. What is there
/// stays as it is.
expected<void> can_write(const std::string& file);
/// The same of files in a directory, which is made.
expected<void> can_write_into(const std::string& directory);

/// A directory of this process's own, made when it is first needed, gone with the object.
class temporary_directory {
 public:
  temporary_directory() = default;
  ~temporary_directory();
  temporary_directory(const temporary_directory&) = delete;
  temporary_directory& operator=(const temporary_directory&) = delete;

  /// A path in it; empty: the directory could not be made.
  std::string file(const std::string& name);

 private:
  std::string path_;
};

}  // namespace troupe::cli
