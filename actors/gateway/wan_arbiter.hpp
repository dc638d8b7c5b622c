#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "actors/gateway/slot_table.hpp"
#include "messages/base/time.hpp"
#include "messages/wire/stage.hpp"

namespace troupe::actors {

/// The link scheduler of a gateway: decides the order in which tensors cross from one datacenter to
/// another (ATLAS, sections 4.2 and 4.3). It has no notion of a transfer's duration or contents;
/// the caller identifies its transfers by tokens.
///
///   offered -> [waiting] -> started -> left -> finished
///
///   waiting   only serialized transfers (wan_path), in a priority queue for each cell
///   started   take_started() returns it; its cell is busy
///   left      on_left(): its last byte is on the link, so the cell's next transfer may start
///   finished  on_finished(): the token may be reused
///
/// A cell is a DP-cell's link in one direction: (lease, stage it leaves, stage it goes to, first
/// pair). Serialized transfers of a cell cross one at a time, the waiting one with the smallest
/// (iteration, turn, order of arrival) first. A free link is never held for a transfer that has not
/// arrived, and transfers from one stage to another are never reordered. Transfers that are not
/// serialized start at once.
///
/// Preconditions: a token is offered again only after on_finished(); on_left() and on_finished()
/// follow take_started(), each once and in this order. Forgetting drops only idle links.
class wan_arbiter {
 public:
  /// `rounds`: how often the caller polls at one instant before the next transfer is chosen, so
  /// that transfers arriving at the same instant compete regardless of the order of their arrival
  /// (in virtual time); 0: choose at once.
  explicit wan_arbiter(std::uint32_t rounds = 0) : rounds_{rounds} {}

  /// Offers a tensor. False: its path is invalid, or there are too many links (max_hops).
  bool offer(time_ns now, const tensor& t, std::uint32_t token);

  /// The next transfer that may start now, in the order in which they were chosen.
  std::optional<std::uint32_t> take_started();

  /// The last byte of a started transfer has left.
  void on_left(std::uint32_t token);
  /// A transfer that has left is complete.
  void on_finished(std::uint32_t token);

  /// Must poll() be called again at this instant?
  bool is_choosing() const { return !choosing_.empty(); }
  void poll();

  /// Forgets links without transfers that were last used before a time.
  void forget(time_ns before);
  std::size_t hops() const { return hops_.size(); }

  static constexpr std::uint32_t max_pairs = 4096;
  static constexpr std::uint32_t max_hops = 16384;

 private:
  struct hop_key {
    lease_id lease = 0;
    std::uint32_t from = 0, to = 0;
    auto operator<=>(const hop_key&) const = default;
  };
  struct priority {
    std::uint64_t iteration = 0, turn = 0, sequence = 0;
    auto operator<=>(const priority&) const = default;
  };
  struct candidate {
    priority when;
    std::uint32_t token = 0, pipeline = 0;
  };
  struct flow {
    priority latest;  // of its waiting transfers
    std::uint32_t waiting = 0;
  };
  struct cell {
    std::uint32_t first = 0;  // pair
    bool busy = false;
    std::uint32_t rounds = 0;        // until it chooses; 0: it is not choosing
    std::vector<candidate> waiting;  // a heap
    std::vector<flow> flows;         // by pipeline
  };
  struct hop {
    time_ns last_used = 0;
    std::uint32_t unfinished = 0;  // transfers
    std::vector<cell> cells;
  };
  struct cell_index {
    std::uint32_t hop = none, cell = none;  // no cell: not serialized
  };
  static constexpr std::uint32_t none = ~0U;

  static bool after(const candidate& a, const candidate& b) { return a.when > b.when; }

  std::uint32_t hop_of(time_ns now, const hop_key& k);
  static std::uint32_t cell_of(hop& h, std::uint32_t first);
  void enqueue(cell& c, const tensor& t, std::uint32_t token);
  void decide(const cell_index& p);
  void choose(cell& c);

  std::uint32_t rounds_;
  std::vector<cell_index> choosing_;
  std::uint64_t sequence_ = 0;
  std::deque<std::uint32_t> started_;
  std::vector<cell_index> cells_by_token_;  // by token
  std::map<hop_key, std::uint32_t> by_key_;
  slot_table<hop> hops_;
};

}  // namespace troupe::actors
