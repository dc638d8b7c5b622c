#pragma once

#include <string>
#include <vector>

#include "serving/engine.hpp"

namespace troupe::bench {

/// An engine in a process of its own, which computes while others do. Made before this process has
/// threads.
class engine_process {
 public:
  explicit engine_process(const gpu::inference_spec& s);
  ~engine_process();
  engine_process(const engine_process&) = delete;
  engine_process& operator=(const engine_process&) = delete;

  /// Begins; `tokens`: of the prompt, or new ones.
  void begin_prefill(std::size_t tokens) { send('p', tokens); }
  void begin_decode(std::size_t tokens) { send('d', tokens); }
  /// Waits for its end.
  void finish();

 private:
  void send(char what, std::size_t tokens);

  int pid_ = -1, to_ = -1, from_ = -1;
};

/// Seconds for which that number of tokens takes all of these processes, each computing as many.
double prefill_together(const std::vector<engine_process*>& all, std::size_t tokens);
double decode_together(const std::vector<engine_process*>& all, std::size_t tokens);

}  // namespace troupe::bench
