#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "actors/serving/decoder/block_receiver.hpp"
#include "actors/serving/decoder/recent_map.hpp"
#include "actors/serving/prefill/block_sender.hpp"
#include "actors/serving/prefill/guest_engine.hpp"
#include "messages/wire/message.hpp"
#include "messages/wire/stage.hpp"
#include "planners/bubbletea/prefill_work.hpp"

namespace troupe::actors {

/// A guest's setup and the sizes of its messages.
struct guest_shape {
  guest_setup setup;
  address node = 0;              // this one
  bool simulated = true;         // blocks have no bodies
  std::uint64_t row_bytes = 0;   // of a hidden state
  std::uint64_t page_bytes = 0;  // of one page in one layer
  std::uint32_t max_tokens = 0;  // of a prompt whose cache fits; 0: any
};
/// Fails for a setup that no guest can follow.
expected<guest_shape> shape_of(const guest_setup& s, address node);

/// The prompts of one guest: which tiles are next, and what it has computed, on its way to the next
/// guest and to the decoder. Prompts go in the order of their `sequence`, tiles in that of the
/// prompt, and none passes another. Pure: times are arguments, in seconds.
class guest_prompts {
 public:
  explicit guest_prompts(guest_shape s) : shape_{std::move(s)} {}

  struct outgoing {
    address to = 0;
    message what;
    payload body;
  };
  /// Effects of a call: messages to send, and orders to the engine.
  struct changes {
    std::vector<outgoing> send;
    std::vector<guest_tile> compute;
    std::vector<prefill_name> forget;  // the engine's tiles of these
  };

  /// From the gateway. `refusal`: the reason to decline it; empty: the guest takes prompts.
  void on_order(address gateway, const prefill_order& o, const payload& body, const reason& refusal,
                double now_s, changes& out);
  /// Hidden states of the guest before this one.
  void on_block(address from, const prefill_block& b, const payload& body, changes& out);
  void on_received(address from, const blocks_received& r, double now_s, changes& out);
  void on_cancel(address gateway, const prefill_name& n, changes& out);
  void on_result(guest_tile_result r, double now_s, changes& out);
  /// Blocks that are to be sent again, and prompts whose time is over.
  void on_time(double now_s, changes& out);
  /// When on_time() has something to do.
  double next_s() const;

  std::size_t held() const { return prompts_.size(); }
  std::uint64_t rejected() const { return rejected_; }  // messages that their sender may not send

 private:
  struct prompt {
    prefill_order order;
    address gateway = 0;
    planners::prefill_work work;
    std::vector<std::uint32_t> first;            // by tile
    std::vector<std::optional<payload>> inputs;  // by tile, until it is computed
    std::optional<block_receiver> from_before;
    std::optional<block_sender> to_next;
    block_sender to_decoder;
    std::uint32_t given = 0, done = 0;  // tiles: to the engine, computed
    std::uint32_t blocks = 0;           // to the decoder, in all
    std::uint32_t layers_a_block = 1;   // of its cache
    double latest_at_s = 0;
    double begun_s = 0;  // the first operation
    prefill_progress progress;
  };
  using prompt_map = std::map<prefill_name, prompt>;

  expected<void> check(const prefill_order& o, const payload& body) const;
  std::uint32_t layers_a_block(std::uint32_t layers, std::uint32_t rows) const;
  prompt begin(address gateway, const prefill_order& o, const payload& body, double now_s) const;
  void give_tiles(changes& out);
  void add_hidden(prompt& p, const guest_tile_result& r, double now_s);
  void add_cache(prompt& p, guest_tile_result& r, double now_s);
  void add_last(prompt& p, const guest_tile_result& r, double now_s);
  void add(prompt& p, block_sender& to, prefill_block b, payload body, double now_s) const;
  void send_due(prompt& p, double now_s, changes& out) const;
  void end_if_done(prompt_map::iterator at);
  void end(prompt_map::iterator at, changes& out);
  void report_gone(const prompt& p, const reason& why, changes& out) const;

  guest_shape shape_;
  prompt_map prompts_;
  recent_map<prefill_name, std::uint32_t, 4096> over_;  // this guest's number in their groups
  std::uint64_t rejected_ = 0;
};

}  // namespace troupe::actors
