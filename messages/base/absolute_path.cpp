#include "messages/base/absolute_path.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "messages/base/refuse.hpp"

namespace troupe {

expected<std::string> absolute_path(const std::string& path) {
  if (path.starts_with('/')) return path;
  const std::unique_ptr<char, decltype(&::free)> current{::getcwd(nullptr, 0), &::free};
  // Linux shows a directory that was unmounted, or is outside of a container, without a root.
  if (!current || *current != '/')
    return refuse(reason::kind::invalid, "the current directory has no path{}; change to another",
                  !current && errno == ENOENT ? ": it has been deleted" : "");
  std::string whole{current.get()};
  if (path.empty()) return whole;
  if (whole.back() != '/') whole += '/';
  return whole + path;
}

}  // namespace troupe
