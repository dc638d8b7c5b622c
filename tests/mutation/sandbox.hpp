#pragma once

#include <map>
#include <string>
#include <vector>

namespace troupe::mutation_test {

enum class outcome { passed, failed, hung };

/// Runs a program, its output discarded, in namespaces of its own: mutated code may signal any
/// process and remove any file. It sees all files read-only but `writable` and an empty /tmp, has
/// no processes but its own, and is ended with them after `limit_s`.
outcome run_alone(const std::vector<std::string>& command,
                  const std::map<std::string, std::string>& environment,
                  const std::string& writable, double limit_s);

}  // namespace troupe::mutation_test
