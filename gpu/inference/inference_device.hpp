#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "gpu/inference/adapter.hpp"
#include "gpu/inference/inference_model.hpp"
#include "gpu/inference/prefix_index.hpp"
#include "messages/base/reason.hpp"
#include "messages/domain/served_bytes.hpp"
#include "messages/wire/frame.hpp"

// A device that serves a contiguous part of a model: prompts (prefill), then token after token
// (decode), over a cache of keys and values. Work is done in short steps, which the caller asks for
// one at a time: it may do other work on the device between any two, or give up the rest.
//
// Every value is the same to the last bit, however a prompt is cut into chunks and steps, over how
// many devices the layers are divided, and whichever other sequences share a decode: a prefill's
// products have always tile_positions rows, filled up with zeros; a decode's and a head's sum in an
// order that does not depend on the number of rows; and attention goes over pages of tile_positions
// absolute positions in order. Threads of a device share a step in pieces whose results do not
// depend on the number of threads. A sequence may be computed with an adapter, which sequences
// beside it need not have: its products are of few rows, and depend on no other row.

namespace troupe::gpu {

/// Positions of a page of the cache, and of a step of a prefill.
inline constexpr std::uint32_t tile_positions = cache_page_positions;
/// Sequences of a step of a decode, and rows of a step of a head.
inline constexpr std::uint32_t decode_rows = 8;
/// Threads of a device.
inline constexpr std::uint32_t max_inference_threads = 1024;

struct inference_spec {
  inference_model model;
  std::filesystem::path weights{};      // a model folder
  std::optional<std::uint64_t> seed{};  // instead of it: random weights
  // Sublayers [first_sublayer, first_sublayer + sublayers): 2i is the attention of layer i, 2i + 1
  // its MLP.
  std::uint32_t first_sublayer = 0, sublayers = 0;
  bool embeds = false;      // begins with tokens; else with hidden states
  bool predicts = false;    // has the last norm and the head
  std::uint32_t pages = 0;  // of the cache; each for all attention layers of this part
  // That compute a step together, at least 1. The bits of results do not depend on it.
  std::uint32_t threads = 1;
};
/// All of a model on one device.
inference_spec whole_model(const inference_model& m, std::uint32_t pages);

/// A caller's number of a sequence.
using sequence_id = std::uint64_t;

/// Work in steps. It is given up by its destruction; what it wrote into the cache remains. It must
/// not outlive its device, nor its sequences.
class inference_work {
 public:
  virtual ~inference_work() = default;

  virtual std::uint32_t steps_left() const = 0;
  /// Executes the next one; steps_left() > 0.
  virtual void step() = 0;
  /// f32 values row by row; only once no steps are left.
  virtual payload result() = 0;
};

/// A token, or a hidden state, that enters a sequence.
struct decode_row {
  sequence_id sequence = 0;
  std::uint32_t position = 0;  // what is before it is in the cache
  std::uint32_t token = 0;     // used by a part that embeds
  adapter_ref adapter{};       // of the sequence, whose prompt was computed with it, too
};

/// Not thread-safe: one call at a time, steps of its works included. Steps may be executed on any
/// thread; that thread then flushes denormals to zero.
class inference_device {
 public:
  virtual ~inference_device() = default;

  virtual const inference_spec& spec() const = 0;

  /// Takes pages for the positions below this, and their memory; keeps those that the sequence has.
  /// Callers ask for a page when they compute its first position. Fails and changes nothing if
  /// there are too few free ones (insufficient), or if the host has no memory for them
  /// (out_of_memory).
  virtual expected<void> reserve(sequence_id s, std::uint32_t positions) = 0;
  /// Frees its pages, but those that have a name or are another sequence's, too. Unknown sequences
  /// have none.
  virtual void release(sequence_id s) = 0;
  virtual std::uint32_t free_pages() const = 0;

  /// Gives a page of a sequence, all of whose positions are computed, a name, by which it stays
  /// until drop(). If a page has that name, which must have the same values, the sequence gets it
  /// in place of its own.
  virtual expected<void> keep(sequence_id s, std::uint32_t page, page_name name) = 0;
  /// Adds pages with names behind those that the sequence has: they are not computed again.
  virtual expected<void> share(sequence_id s, std::span<const page_name> names) = 0;
  /// Sequences that have the page keep it.
  virtual void drop(page_name name) = 0;

  /// A chunk of a prompt, at positions [first, first + n); `first` is a multiple of tile_positions
  /// and what is before it is in the cache. Input: n tokens, or hidden states [n, hidden]. Result:
  /// hidden states [n, hidden]. A step is one sublayer on at most tile_positions positions.
  /// `adapter`: of the sequence, in all its chunks; fails for one of another model.
  virtual expected<std::unique_ptr<inference_work>> prefill(sequence_id s, std::uint32_t first,
                                                            const payload& in,
                                                            const adapter_ref& adapter) = 0;
  /// The same with the base alone.
  expected<std::unique_ptr<inference_work>> prefill(sequence_id s, std::uint32_t first,
                                                    const payload& in) {
    return prefill(s, first, in, {});
  }
  /// One row for each of these sequences, all different. Input: nothing for a part that embeds,
  /// else hidden states [rows, hidden]. Result: hidden states [rows, hidden]. A step is one
  /// sublayer on at most decode_rows rows.
  virtual expected<std::unique_ptr<inference_work>> decode(const std::vector<decode_row>& rows,
                                                           const payload& in) = 0;
  /// From hidden states [n, hidden] of the last sublayer to logits [n, vocabulary]. A step is
  /// decode_rows rows.
  virtual expected<std::unique_ptr<inference_work>> head(const payload& in) = 0;

  /// Keys and values of a sequence's pages [first_page, first_page + pages) in the layers
  /// [first_layer, first_layer + layers): for each layer and page keys, then values, each
  /// [kv_heads, tile_positions, head_width]; positions that were not computed are 0.
  virtual expected<payload> take_kv(sequence_id s, std::uint32_t first_layer, std::uint32_t layers,
                                    std::uint32_t first_page, std::uint32_t pages) const = 0;
  /// The inverse, of what a device with these layers returned.
  virtual expected<void> put_kv(sequence_id s, std::uint32_t first_layer, std::uint32_t layers,
                                std::uint32_t first_page, std::uint32_t pages,
                                const payload& in) = 0;
};

/// Bytes of one page in one layer.
std::uint64_t page_bytes(const inference_model& m);
/// Pages that hold these positions.
constexpr std::uint32_t pages_for(std::uint32_t positions) {
  return cache_pages_of(positions);
}

/// fp32, computing on the caller's thread and spec.threads - 1 others. Fails for sublayers that do
/// not exist, for weights that are not this model's, and if this host does not have the memory.
expected<std::unique_ptr<inference_device>> make_cpu_inference_device(const inference_spec& s);

/// Executes all steps of a work.
payload finish(inference_work& w);
/// A result's values.
inline std::span<const float> float_values(const payload& p) {
  return {reinterpret_cast<const float*>(p.bytes().data()), p.bytes().size() / sizeof(float)};
}

}  // namespace troupe::gpu
