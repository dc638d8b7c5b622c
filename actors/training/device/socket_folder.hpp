#pragma once

#include <string>

#include "messages/base/descriptor.hpp"
#include "messages/base/reason.hpp"

namespace troupe::actors {

/// A folder for one socket, of this user alone, and with a short name: a socket's is limited. While
/// it is in use its file `lock` is locked.
class socket_folder {
 public:
  static expected<socket_folder> make();
  /// The same for files that are soon gone: in memory (/dev/shm), where the host has that.
  static expected<socket_folder> make_in_memory();
  socket_folder(socket_folder&& other) noexcept;
  ~socket_folder();

  const std::string& path() const { return path_; }

 private:
  socket_folder(std::string path, descriptor lock);
  static expected<socket_folder> make_in(const std::string& folder);

  std::string path_;  // empty: moved from
  descriptor lock_;
};

/// Removes this user's folders whose processes were killed.
void remove_left_socket_folders();

}  // namespace troupe::actors
