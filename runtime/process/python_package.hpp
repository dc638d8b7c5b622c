#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::runtime {

/// The package `troupe` for Python programs, as programs of jobs get it.
struct python_package {
  std::filesystem::path folder;  // for PYTHONPATH
  std::string version;           // empty: the package does not say
};

/// The package that is installed with this program, or that of the source tree where it was built.
std::optional<python_package> find_python_package();

/// The interpreter of a training's program: as its job names it, else this machine's
/// ($TROUPE_PYTHON), else python3.
std::string python_interpreter(const std::string& named);

/// PyTorch's version by the interpreter's packages, which does not import it; empty: it has none,
/// or the interpreter cannot be run. None: it has not answered within `limit_s`. Waits for a
/// process of some hundredths of a second, whose output goes to `file`.
std::optional<std::string> find_torch(const std::string& interpreter, const std::string& file,
                                      double limit_s);

/// Puts it before the folders that PYTHONPATH has in the environment of a process, or else in this
/// one's.
void add_python_package(std::vector<std::pair<std::string, std::string>>& environment);

}  // namespace troupe::runtime
