#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "gpu/inference/inference_device.hpp"
#include "gpu/inference/sampling.hpp"
#include "messages/wire/frame.hpp"

namespace troupe::gpu {

/// How a sequence's next token is chosen.
struct next_token {
  sampling how;
  std::uint64_t position = 0;  // of that token in the sequence
  std::uint32_t top = 0;       // most probable tokens whose log probabilities are added
  std::vector<std::uint32_t> completion{};  // so far, if the choice depends on it
  std::shared_ptr<const std::vector<std::uint32_t>> prompt{};  // likewise: prompt_for_penalty()
};

/// The work of a device between two looks at its queue, in the order of these members. A token is
/// chosen after the last known one.
struct batch_round {
  /// A computed page of a prompt that others can begin with: arguments of keep().
  struct kept_page {
    sequence_id sequence = 0;
    std::uint32_t page = 0;
    page_name name = 0;
  };
  std::vector<kept_page> keep;
  std::vector<sequence_id> release;
  std::vector<page_name> drop;

  /// The pages for the positions that this round computes, and those before them.
  struct reservation {
    sequence_id sequence = 0;
    std::uint32_t positions = 0;
    std::vector<page_name> shared{};  // that it gets first, behind those that it has
  };
  std::vector<reservation> reserve;

  /// Pages of a prompt that was computed elsewhere: arguments of put_kv().
  struct cache_part {
    sequence_id sequence = 0;
    std::uint32_t first_layer = 0, layers = 0, first_page = 0, pages = 0;
    payload data;
  };
  std::vector<cache_part> parts;

  struct decoded {
    decode_row row;
    std::optional<next_token> next;
  };
  std::vector<decoded> decode;  // after `prefill`

  /// Positions [first, first + tokens) of a prompt.
  struct chunk {
    sequence_id sequence = 0;
    std::uint32_t first = 0;
    std::vector<std::uint32_t> tokens;
    std::optional<next_token> next;
    // The prompt's tokens after each of these positions, if their log probabilities are asked for;
    // and the number of most probable ones that are added there.
    std::vector<std::uint32_t> scored{};
    std::uint32_t top = 0;
    adapter_ref adapter{};
  };
  std::vector<chunk> prefill;

  /// The hidden state of the last position of a prompt that was computed elsewhere.
  struct last_state {
    sequence_id sequence = 0;
    payload hidden;
    next_token next;
  };
  std::vector<last_state> last;

  bool empty() const {
    return keep.empty() && release.empty() && drop.empty() && reserve.empty() && parts.empty() &&
           decode.empty() && prefill.empty() && last.empty();
  }
};

/// A round's result for one sequence, or the reason why it cannot go on.
struct batch_result {
  sequence_id sequence = 0;
  std::vector<generated_token> scored;  // of a chunk, in order
  std::optional<generated_token> next;
  std::optional<reason> failed;
  page_name unkept = 0;  // a page that the device could not keep: for batch_queue::forget()
};
using batch_listener = std::function<void(batch_result)>;

/// Executes a round; `received` is called with each result at once. A failure concerns one sequence
/// alone: memory that the host does not have, too, and logits that are not finite. A page that
/// cannot be kept for others fails none but those that were to begin with it in this round.
void execute(inference_device& d, const batch_round& r, const batch_listener& received);

}  // namespace troupe::gpu
