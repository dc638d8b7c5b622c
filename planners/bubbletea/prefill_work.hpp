#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "messages/domain/served_bytes.hpp"
#include "messages/domain/serving.hpp"
#include "planners/bubbletea/prefill_groups.hpp"

// The operations of a prompt on the guests of a group, under each packing rule. Rule `whole` is the
// paper's (BubbleTea, section 5: no prefill starts in a bubble that is too small for it); `chunked`
// is its future work. Times are in seconds, sizes in tokens.

namespace troupe::planners {

enum class packing_rule : std::uint8_t {
  whole,       // a guest's part of a prompt runs in one bubble, in the order of the promises
  look_ahead,  // the same, and those that fill a bubble best go first
  chunked,     // chunks of a prompt run each in one bubble
  resumable    // operations (a layer on a tile of rows) run while a bubble lasts
};
std::string_view to_string(packing_rule rule);

struct packing_options {
  packing_rule rule = packing_rule::resumable;
  std::uint32_t look_ahead = 8;    // promised prompts of a group among which a bubble is filled
  std::uint32_t chunk = 512;       // tokens
  double op_s = 1e-3;              // an operation's longest time, where 64 rows allow it
  std::uint32_t per_layer = 1;     // under resumable: operations of a layer on a tile
  std::uint32_t max_promised = 0;  // prompts of a group that have not ended; 0: no limit
  std::uint32_t max_tokens = 0;    // a prompt's longest; 0: no limit
  // Under look-ahead a prompt ends by `patience` times its promised duration and patience_s more,
  // if that is before its deadline. 0: by its deadline.
  double patience = 0, patience_s = 0;
  bool in_order = false;            // promised prompts of a group run as they were promised
  std::uint32_t max_examined = 64;  // groups, once one has been found that keeps the deadline
};

/// The options of a job that lends its bubbles; none: there is no such rule.
std::optional<packing_options> packing_of(const bubble_lending& how);

/// Rows of operations are multiples of this.
inline constexpr std::uint32_t row_multiple = cache_page_positions;

/// Equal operations that follow each other. None is interrupted; a bubble may end between any two.
struct operation_run {
  std::uint32_t count = 0;
  double each_s = 0;

  bool operator==(const operation_run&) const = default;
};

/// By tile: all guests of a group have the same tiles, and each hands a tile's hidden vectors to
/// the next one when it has ended the tile.
struct prefill_work {
  std::vector<std::vector<operation_run>> guests;  // by guest, then tile
  std::vector<std::uint32_t> rows;                 // by tile: tokens
  std::vector<double> hop_s;                       // by tile
  double min_s = 0;               // the longest of the guests' own times: no group ends it sooner
  std::vector<double> longest_s;  // by guest: operation

  bool operator==(const prefill_work&) const = default;
};

/// Precondition: tokens > 0.
prefill_work work_of(const prefill_group& group, std::uint32_t tokens, const packing_options& o);
/// The same for given tiles, by their rows: a prompt in execution keeps its tiles when its guests'
/// times change.
prefill_work work_of_tiles(const prefill_group& group, std::vector<std::uint32_t> rows,
                           const packing_options& o);

}  // namespace troupe::planners
