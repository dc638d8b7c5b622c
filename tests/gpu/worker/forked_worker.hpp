#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gpu/worker/python_device.hpp"

namespace troupe::test {

using variables = std::vector<std::pair<std::string, std::string>>;

/// Starts workers as children of this process, with the package's folder in their path. `pid`: is
/// set to the child's.
gpu::worker_starter forked(variables more = {}, int* pid = nullptr);

/// Is there such a process? A child that has ended and was not waited for is one.
bool is_alive(int pid);

/// Submits an operation and waits for its result.
expected<gpu::outcome> run(gpu::stage_device& d, gpu::operation o);
expected<gpu::outcome> run(gpu::program_device& d, gpu::operations::norms n);
template <class What>
expected<gpu::outcome> run(gpu::stage_device& d, What what) {
  return run(d, gpu::operation{std::move(what)});
}

}  // namespace troupe::test
