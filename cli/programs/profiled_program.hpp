#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/programs/described_program.hpp"
#include "messages/base/reason.hpp"
#include "messages/domain/profile.hpp"

// Times of a program's layers on this machine (docs/profiles.md): of the layers by `python3 -m
// troupe.profile`, and of requests and tensors by a worker of no work.

namespace troupe::cli {

struct program_wish {
  layer_file program;
  std::string device;               // a kind that computes
  int index = 0;                    // of the GPU
  std::vector<std::uint32_t> rows;  // samples per micro-batch
  std::uint32_t rounds = 9, busy = 1;
  std::function<void(const std::string&, double)> progress{};  // as gpu::profile_wish's
};

/// Fails with what the program cannot do, or with the reason why there is no PyTorch here.
expected<layers_profile> profile_program(const program_wish& w);

}  // namespace troupe::cli
