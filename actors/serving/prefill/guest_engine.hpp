#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "gpu/device/device_executor.hpp"
#include "messages/base/reason.hpp"
#include "messages/wire/frame.hpp"
#include "messages/wire/prefill.hpp"

namespace troupe::actors {

/// A tile of a prompt: its tokens [first, first + rows), in a guest's layers.
struct guest_tile {
  std::uint64_t sequence = 0;  // of the prompt; smaller ones go first, then smaller tiles
  std::uint32_t tile = 0;
  prefill_name name;
  std::uint32_t first = 0, rows = 0;
  std::uint32_t all_rows = 0;  // of the prompt
  payload in;                  // tokens, or hidden states
  std::uint32_t operations = 1;
  double each_s = 0;  // predicted
  std::uint32_t layers_a_block = 1;
};

/// The result of a tile.
struct guest_tile_result {
  prefill_name name{};
  std::uint32_t tile = 0;
  payload hidden{};  // [rows, hidden]
  /// By `layers_a_block` layers: the pages that this tile has filled, or ended in.
  std::vector<payload> pages{};
  double computed_s = 0;
  double took_s = 0;  // from the first operation's begin to now
  std::uint32_t steps = 0, yields = 0;
  reason why{};  // the device cannot compute this prompt
};

/// Tiles that can be computed, and how far the present one is. Not thread-safe.
class tile_queue {
 public:
  void add(guest_tile t) { waiting_.insert_or_assign({t.sequence, t.tile}, std::move(t)); }
  /// The prompt's tiles are not needed any more.
  void forget(const prefill_name& n);
  /// The one to be computed now: one that has begun is never put behind another. Null: none.
  const guest_tile* present() const;
  bool begun() const { return begun_.has_value(); }
  /// Precondition: there is one.
  const guest_tile& begin();
  /// The one that has begun has ended.
  guest_tile take();

 private:
  std::map<std::pair<std::uint64_t, std::uint32_t>, guest_tile> waiting_;
  std::optional<guest_tile> begun_;
};

/// A guest's layers on a device. Results are passed to the listener in order, on any thread.
class guest_engine : public gpu::guest_work {
 public:
  using listener = std::function<void(guest_tile_result)>;

  virtual void add(guest_tile t) = 0;
  virtual void forget(const prefill_name& n) = 0;
};

/// Takes the predicted times, on the world's clock. Results have no data.
class simulated_guest final : public guest_engine {
 public:
  simulated_guest(std::function<double()> now_s, listener done)
      : now_s_{std::move(now_s)}, done_{std::move(done)} {}

  void add(guest_tile t) override { tiles_.add(std::move(t)); }
  void forget(const prefill_name& n) override { tiles_.forget(n); }
  run next(double room_s) override;
  void execute(std::uint32_t count) override;

 private:
  std::function<double()> now_s_;
  listener done_;
  tile_queue tiles_;
  std::optional<std::pair<std::uint64_t, std::uint32_t>> offered_;  // whose run next() gave
  std::uint32_t executed_ = 0, yields_ = 0;                         // of the present tile
  double last_end_s_ = 0, tile_began_s_ = 0;
};

}  // namespace troupe::actors
