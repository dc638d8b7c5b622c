#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/inference/inference_device.hpp"

namespace troupe::bench {

struct decoded_tokens {
  double s = 0;
  std::vector<std::uint32_t> tokens;
};

/// The core's activity between two steps of a prefill. A sleeping core may lose its caches to other
/// programs and has to wake; one that is busy with instructions without memory accesses keeps its
/// caches and stays awake.
enum class pause { none, busy, asleep };

/// The CPU engine as it is, without anything around it, on the calling thread. Ends the program if
/// it cannot.
class engine {
 public:
  /// pages: of the cache, each for tile_positions positions.
  engine(const gpu::inference_spec& s);

  /// Seconds for a prompt, from nothing, with the logits of its last position.
  double prefill(const std::vector<std::uint32_t>& tokens);
  /// The most probable tokens after the prompt of the last prefill(), and the seconds they take.
  decoded_tokens decode(std::size_t count);
  /// Seconds for `count` tokens of each of so many sequences, which are decoded together, behind
  /// prompts of `prompt` tokens.
  double decode_together(std::size_t sequences, std::size_t prompt, std::size_t count);
  /// The same in processor time, sequence s with adapter s of these, counted round.
  double cpu_s_together(std::size_t sequences, std::size_t prompt, std::size_t count,
                        const std::vector<gpu::adapter_ref>& adapters);
  /// Processor time of each of a prompt's steps, with a millisecond's pause after each unless
  /// `none`.
  std::vector<double> step_times_s(const std::vector<std::uint32_t>& tokens, pause after_step);

 private:
  payload hidden_of(gpu::sequence_id s, const std::vector<std::uint32_t>& tokens,
                    const gpu::adapter_ref& adapter = {});
  std::vector<gpu::decode_row> begin_together(std::size_t sequences, std::size_t prompt,
                                              std::size_t count,
                                              const std::vector<gpu::adapter_ref>& adapters);
  void step_together(std::vector<gpu::decode_row>& rows, std::size_t count);
  std::uint32_t most_probable(const payload& hidden);
  std::vector<std::uint32_t> step(const std::vector<gpu::decode_row>& rows);

  std::unique_ptr<gpu::inference_device> device_;
  std::uint32_t last_ = 0, length_ = 0;
};

/// Tokens of the model's vocabulary, the same for the same seed.
std::vector<std::uint32_t> prompt_of(std::size_t tokens, std::uint32_t vocabulary,
                                     std::uint64_t seed);

}  // namespace troupe::bench
