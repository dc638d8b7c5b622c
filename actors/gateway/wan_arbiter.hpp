#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "messages/random.hpp"
#include "messages/stage.hpp"
#include "messages/time.hpp"

namespace troupe::actors {

/// Slowdown factor of tensors to a datacenter (a fault of a simulated link).
using link_slowdown = std::function<double(std::uint32_t datacenter)>;

/// Rates of a link. 0 Gbit/s: unlimited.
struct link_rates {
  double node_gbps = 0;        // a pair of nodes
  double connection_gbps = 0;  // each of its connections
  time_ns delay = 0;           // one way
  time_ns jitter = 0;          // up to so much more, but nothing overtakes
  /// No rate is known: a transfer lasts until the caller calls ended().
  bool open_ended = false;

  /// Time for a share of the tensor's bytes over one pair, rounded to whole nanoseconds.
  time_ns duration(double bytes, std::uint32_t connections) const;
};

/// Decides when tensors may cross from one datacenter to another (ATLAS, sections 4.2 and 4.3). It
/// owns neither a clock nor the tensors.
///
/// A pair of nodes, identified by (lease, hop, direction, number), carries its transfers one after
/// the other. A transfer over p pairs takes 1/p of the time on each. With `in_turn`, the transfers
/// of one cell, identified by (lease, hop, direction, first pair), cross one at a time: when one
/// has left, the waiting one with the smallest (iteration, turn) is next, and a free link is never
/// held for a transfer that has not arrived. Transfers from one stage to another are never
/// reordered.
class wan_arbiter {
 public:
  /// `rounds`: how often the caller polls at the same time before a turn is decided, so that
  /// transfers arriving at the same instant compete regardless of their order; 0 where no two
  /// instants are equal.
  explicit wan_arbiter(std::uint32_t rounds = 0, random_source random = random_source{0})
      : rounds_{rounds}, random_{random} {}

  /// An event of a transfer, identified by the caller's number. Each of `parts` equal parts has
  /// arrived when its share of the bytes has left and the delay has passed.
  struct event {
    std::uint32_t token = 0, part = 0;
    bool there = false;  // this part
    bool left = false;   // all of it: the pair is free again
    bool last = false;   // nothing more will happen to this transfer
  };

  /// Offers a tensor for crossing now. False: its share is invalid, or too much is waiting.
  bool offer(time_ns now, const tensor& t, const link_rates& r, std::uint32_t token,
             std::uint32_t parts = 1);

  /// Something that needs no link and arrives after a fixed time.
  void pass(time_ns now, time_ns duration, std::uint32_t token);

  /// A transfer on a link without a rate has left.
  void ended(time_ns now, std::uint32_t token);

  /// Time of the next event; never: none before another offer.
  time_ns next(time_ns now) const {
    return !choosing_.empty() ? now : due_.empty() ? never_ns : due_.front().at;
  }

  /// Returns the events up to now, in order.
  void look(time_ns now);
  std::optional<event> take(time_ns now);

  /// Forgets state last used before a time.
  void forget(time_ns before);

  std::size_t hops() const { return hops_.size() - free_hops_.size(); }

  static constexpr std::uint32_t max_pairs = 4096;
  static constexpr std::uint32_t max_parts = 4096;
  static constexpr std::uint32_t max_hops = 16384;
  static constexpr time_ns longest = 1'000'000'000'000'000;  // of a transfer, and of a queue

 private:
  struct hop_key {
    lease_id lease = 0;
    std::uint32_t from = 0, to = 0;
    auto operator<=>(const hop_key&) const = default;
  };
  struct turn {
    std::uint64_t iteration = 0, number = 0, sequence = 0;
    auto operator<=>(const turn&) const = default;
  };
  struct candidate {
    turn when;
    std::uint32_t token = 0, pipeline = 0;
  };
  struct flow {
    turn latest;  // of those that wait
    std::uint32_t waiting = 0;
  };
  struct cell {
    std::uint32_t first = 0;  // pair
    bool busy = false;
    std::uint32_t rounds = 0;        // until it chooses; 0: it is not choosing
    std::vector<candidate> waiting;  // a heap
    std::vector<flow> flows;         // by pipeline
  };
  struct pair {
    time_ns free = 0;  // when the last of its transfers will have left
    time_ns there = 0;
  };
  struct hop {
    hop_key key;
    bool used = false;
    time_ns last_used = 0;
    std::uint32_t crossing = 0;  // transfers that wait or are under way
    std::vector<pair> pairs;
    std::vector<cell> cells;
  };
  struct transfer {
    link_rates rates;
    std::uint32_t hop = no_hop, cell = no_cell;
    std::uint32_t first = 0, pairs = 1, connections = 1, parts = 1;
    double bytes = 0;
    time_ns start = 0, duration = 0, lag = 0;  // lag: from leaving to being there
  };
  struct entry {
    time_ns at = 0;
    std::uint64_t sequence = 0;
    std::uint32_t token = 0, part = 0;  // part == parts: it leaves
  };
  static constexpr std::uint32_t no_hop = ~0U, no_cell = ~0U;

  static bool later(const entry& a, const entry& b) {
    return a.at != b.at ? a.at > b.at : a.sequence > b.sequence;
  }
  static bool after(const candidate& a, const candidate& b) { return a.when > b.when; }

  std::uint32_t hop_of(time_ns now, const hop_key& k);
  std::uint32_t cell_of(hop& h, std::uint32_t first);
  void wait_in(cell& c, const tensor& t, std::uint32_t token);
  void decide(time_ns now, std::uint32_t hop_index, std::uint32_t cell_index);
  void choose(time_ns now, cell& c);
  void start(time_ns now, std::uint32_t token);
  void schedule(time_ns at, std::uint32_t token, std::uint32_t part);
  void leave(time_ns now, const transfer& t);
  void finish(const transfer& t);

  std::uint32_t rounds_;
  random_source random_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> choosing_;  // hop and cell
  std::uint64_t sequence_ = 0;
  std::vector<entry> due_;           // a heap
  std::vector<transfer> transfers_;  // by token
  std::map<hop_key, std::uint32_t> by_key_;
  std::deque<hop> hops_;
  std::vector<std::uint32_t> free_hops_;
};

}  // namespace troupe::actors
