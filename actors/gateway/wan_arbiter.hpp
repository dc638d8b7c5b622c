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

/// How many times as long tensors for a datacentre take now (a fault of a simulated link).
using link_slowdown = std::function<double(std::uint32_t datacenter)>;

/// What a link lets through. 0 Gbit/s: no limit.
struct link_rates {
  double node_gbps = 0;        // a pair of nodes
  double connection_gbps = 0;  // each of its connections
  time_ns delay = 0;           // one way
  time_ns jitter = 0;          // up to so much more, but nothing overtakes
  /// Nothing is known: a transfer takes until the caller says ended().
  bool open_ended = false;

  /// A share of the tensor's bytes over one pair; rounded to whole nanoseconds.
  time_ns duration(double bytes, std::uint32_t connections) const;
};

/// When tensors may cross from one datacentre to another (ATLAS, sections 4.2 and 4.3): a
/// datacentre door's timetable, without a clock and without the tensors.
///
/// A pair of nodes, which is (lease, hop, direction, number), passes its transfers one after the
/// other. A transfer over p pairs takes a p-th of the time on each. With `in_turn` the transfers of
/// one cell, which is (lease, hop, direction, first pair), cross one at a time: when one has left,
/// the smallest (iteration, turn) of those that wait goes next, and nothing waits for one that has
/// not come. Those from one stage to one other never change places.
class wan_arbiter {
 public:
  /// `rounds`: how many times the caller looks again at the same time before a turn is decided, so
  /// that transfers that come at one instant take part whatever order they come in; 0 where no two
  /// instants are the same.
  explicit wan_arbiter(std::uint32_t rounds = 0, random_source random = random_source{0})
      : rounds_{rounds}, random_{random} {}

  /// What happens to a transfer, by the number that the caller gave it. Of `parts` equal parts each
  /// is there when its share of the bytes has left and the delay has passed.
  struct event {
    std::uint32_t token = 0, part = 0;
    bool there = false;  // this part
    bool left = false;   // all of it: the pair is free again
    bool last = false;   // nothing more will happen to this transfer
  };

  /// A tensor that wants to cross now. False: its share makes no sense, or too much is waiting.
  bool offer(time_ns now, const tensor& t, const link_rates& r, std::uint32_t token,
             std::uint32_t parts = 1);

  /// Something that waits for nobody, and is there after a time.
  void pass(time_ns now, time_ns duration, std::uint32_t token);

  /// A transfer of an open-ended link has left.
  void ended(time_ns now, std::uint32_t token);

  /// When to look next; never_ns: not before another offer.
  time_ns next(time_ns now) const {
    return !choosing_.empty() ? now : due_.empty() ? never_ns : due_.front().at;
  }

  /// The caller looks, and takes what has happened, in order.
  void look(time_ns now);
  std::optional<event> take(time_ns now);

  /// Forgets what was used last before a time.
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
