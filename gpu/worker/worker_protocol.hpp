#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/device/stage_device.hpp"
#include "gpu/worker/buffer_place.hpp"
#include "messages/base/reason.hpp"

// The messages between a node and a worker, the process that computes a stage of a program. Each is
// a datagram: a header of 64 bytes and a body (docs/worker_protocol.md). For the node a worker is a
// hostile peer: whatever it sends is checked before it is used, and a violation ends the stage.

namespace troupe::gpu::python {

static_assert(std::endian::native == std::endian::little, "headers are sent as they are in memory");

inline constexpr std::uint32_t protocol_version = 2;
inline constexpr std::size_t max_message_bytes = 128 * 1024;  // what socket buffers hold by default

enum class message_kind : std::uint8_t {
  // from the worker alone
  hello = 1,
  done = 2,
  error = 3,
  // from the node
  setup = 16,
  start = 17,
  region = 18,
  forward = 32,
  recompute = 33,
  backward = 34,
  gradients = 35,
  norms = 36,
  update = 37,
  save = 38,
  load = 39,
  group = 40,
  join = 41,
  sum = 42,
  weights = 43,
  peak = 44,
  output = 45,
  reset = 46,
  zero = 47,
  stop = 63,
};
/// For errors.
std::string_view name_of(message_kind k);

namespace request_flag {
inline constexpr std::uint8_t keep = 1, evaluate = 2, copy_input = 4, last_backward = 8,
                              with_norm = 16, with_tied = 32, gradient_memory = 64, numbered = 128;
}
namespace reply_flag {
/// more: another reply to the same request follows. larger: the output needs a buffer of `out`'s
/// bytes; request `output` with one. skipped: an update changed nothing. moved: passes since the
/// last update have changed buffers of layers.
inline constexpr std::uint8_t more = 1, larger = 2, skipped = 4, moved = 8, all = 15;
}  // namespace reply_flag

/// A node's message. `in`, `out`: packed buffer_places; 0: none.
struct request_header {
  std::uint32_t sequence = 0;
  message_kind kind = message_kind::stop;
  std::uint8_t flags = 0;
  std::uint16_t stage = 0;
  std::uint64_t iteration = 0;
  std::uint32_t microbatch = 0;
  std::uint32_t body_bytes = 0;
  std::uint64_t in = 0, out = 0;
  // region: its bytes; group, join: rank << 32 | size; numbered forward: the micro-batch's number.
  std::uint64_t value = 0;
  double scale = 1;         // update: of the gradients, unless the program weighs its samples
  double squared_norm = 0;  // update: of all stages' gradients, not scaled
};

/// A worker's message.
struct reply_header {
  std::uint32_t sequence = 0;  // of the request
  message_kind kind = message_kind::done;
  std::uint8_t flags = 0;
  std::uint16_t stage = 0;
  std::uint32_t body_bytes = 0;
  std::uint32_t cpu_us = 0;  // processor time of the operation
  std::uint64_t out = 0;
  std::uint64_t begin_ns = 0, end_ns = 0;  // on CLOCK_MONOTONIC
  double loss = 0, squared_norm = 0;
  std::uint64_t peak_bytes = 0;
};

inline constexpr std::size_t header_bytes = 64;
static_assert(sizeof(request_header) == header_bytes && sizeof(reply_header) == header_bytes);

/// The number of a place in a header: 8 bits of region, 28 of offset / 64, 28 of bytes / 64.
std::uint64_t packed(const buffer_place& p);
buffer_place unpacked(std::uint64_t n);

struct reply {
  reply_header header;
  std::string body;
};

/// Header and body as one datagram. Sets the header's `body_bytes`.
std::string encode(request_header h, std::string_view body);
std::string encode(reply_header h, std::string_view body);

/// Fails (`malformed`) for a datagram that is no reply.
expected<reply> decode_reply(std::string_view datagram);
/// The checks that need no more than the two: is it a reply to this request, with an output only if
/// the request has a buffer for one, and within that buffer? An `error` is none.
expected<void> check_reply(const reply& r, const request_header& to);

// -- bodies

struct worker_hello {
  std::uint32_t protocol = 0;
  std::string token;                               // of its environment
  std::string package, python, torch, cuda, blas;  // versions; the name of the BLAS library
  std::uint64_t pid = 0;
};
expected<worker_hello> read_hello(std::string_view body);

/// A program.
struct layer_file_setup {
  std::string file, sha256;
  std::string arguments = "{}";  // a JSON object, for the program's functions
  std::string device = "cpu";    // or cuda
  std::uint32_t threads = 1;
  bool deterministic = true;
};

/// A stage's part of the program's layers.
struct worker_stage {
  enum class recompute : std::uint8_t { none, stage, layers };
  std::uint32_t first_layer = 0, layers = 0;
  std::uint32_t stage = 0, stages = 1;
  std::uint32_t pipeline = 0, pipelines = 1;
  std::uint32_t rows = 1, microbatches = 1;
  std::uint64_t seed = 1;
  recompute how = recompute::none;
  /// The first of its micro-batches among all pipelines', and the number of these; none: all
  /// pipelines have as many as this one.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> share{};
};

/// For `setup`, which needs no lease.
std::string setup_body(const layer_file_setup& p, const std::vector<worker_stage>& members);
/// For `start`. `lease`: part of file names.
std::string start_body(std::uint64_t lease);

struct layer_facts {
  std::string name;
  std::uint64_t parameter_bytes = 0, buffer_bytes = 0;
};
/// The answer to `setup`, for a member.
struct worker_stage_ready {
  std::vector<layer_facts> layers;
  std::uint64_t own_parameters = 0, tied_parameters = 0;  // that have gradients
  std::uint64_t optimizer_state_bytes = 0;
  bool needs_norm = false;  // update needs the norm of all stages' gradients
};
/// Fails unless it has these members, with their layers, and sizes that memory may have.
expected<std::vector<worker_stage_ready>> read_ready(std::string_view body,
                                                     const std::vector<worker_stage>& members);

/// The reason that an `error` gives, as one sentence: `layer 3 (Block): ValueError: ...
/// (gpt.py:41)`.
reason read_error(std::string_view body);

/// {"path": ...}
std::string path_body(const std::string& path, bool whole = false);
/// The values beside a loss; an empty body has none.
expected<std::vector<named_value>> read_values(std::string_view body);
/// The numbers of `norms`.
expected<std::vector<double>> read_numbers(std::string_view body, std::size_t count);

}  // namespace troupe::gpu::python
