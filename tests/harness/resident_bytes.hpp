#pragma once

#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <string>

namespace troupe::test {

/// What a process holds in memory; 0: there is no such process.
inline std::size_t resident_bytes(const std::string& process = "self") {
  std::ifstream in{"/proc/" + process + "/statm"};
  std::size_t size = 0, resident = 0;
  in >> size >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace troupe::test
