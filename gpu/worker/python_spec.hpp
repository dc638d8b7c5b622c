#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/worker/worker_protocol.hpp"

namespace troupe::gpu {

/// A stage of a program: layers in Python, computed by a process of their own.
struct python_spec {
  python::layer_file_setup program;
  python::worker_stage stage;
  std::uint64_t lease = 0;  // part of file names
  std::vector<std::string> command = {"python3", "-m", "troupe.worker"};
  std::string socket_directory;                         // this user's alone
  std::string token;                                    // random: by it the worker is known
  std::uint64_t buffer_bytes = std::uint64_t{1} << 30;  // shared memory for tensors, at most
  double connect_limit_s = 120;
  double emulate_speed = 1;  // operations take 1 / this times as long
  std::uint64_t max_gradients =
      0;  // that its layers may have, by the program's description; 0: any
};

}  // namespace troupe::gpu
