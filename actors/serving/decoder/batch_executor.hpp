#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gpu/inference/adapter.hpp"
#include "gpu/inference/batch_round.hpp"
#include "messages/base/reason.hpp"

namespace troupe::actors {

/// A model and its device, as a decoder needs them.
struct decoder_model {
  std::uint32_t positions = 0;  // the longest context
  std::uint32_t vocabulary = 0;
  std::uint32_t layers = 0;
  std::uint32_t pages = 0;         // of the cache
  std::uint64_t page_bytes = 0;    // of one page in one layer
  std::uint64_t hidden_bytes = 0;  // of one position
  bool simulated = false;          // tokens mean nothing, and messages have no bodies
  std::map<std::string, gpu::adapter_ref> adapters{};  // that it serves, too, by name
};

/// Executes a decoder's rounds. Callbacks come later, on any thread, and not after its destruction
/// has ended.
class batch_executor {
 public:
  virtual ~batch_executor() = default;

  /// Called once, before anything else: loads the model. An error: there is no device.
  virtual void open(std::function<void(expected<decoder_model>)> done) = 0;
  /// One round at a time. An error: the device is gone.
  virtual void execute(gpu::batch_round r,
                       std::function<void(expected<std::vector<gpu::batch_result>>)> done) = 0;
};

}  // namespace troupe::actors
