#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <string>

namespace troupe::test {

/// A process's resident memory; 0: there is no such process.
inline std::size_t resident_bytes(const std::string& process = "self") {
  std::ifstream in{"/proc/" + process + "/statm"};
  std::size_t size = 0, resident = 0;
  in >> size >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// The most that this process holds in memory from now on.
class memory_peak {
 public:
  memory_peak() { std::ofstream{"/proc/self/clear_refs"} << "5"; }
  std::size_t grown_by() const { return peak_bytes() - std::min(peak_bytes(), before_); }

 private:
  static std::size_t peak_bytes() {
    std::ifstream in{"/proc/self/status"};
    std::string word;
    while (in >> word && word != "VmHWM:") {
    }
    std::size_t kib = 0;
    in >> kib;
    return kib << 10;
  }

  const std::size_t before_ = resident_bytes();
};

}  // namespace troupe::test
