#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "messages/cluster.hpp"
#include "messages/generation.hpp"

namespace troupe::actors {

/// A decoder: a lease on a node.
struct decoder_name {
  address node = 0;
  lease_id lease = 0;
  auto operator<=>(const decoder_name&) const = default;
};

struct known_decoder {
  decoder_state says;
  std::uint32_t datacenter = 0;
  double heard_s = 0;  // when it was last heard
  // What it has been given since that statement: by this front alone.
  std::uint32_t given_sequences = 0, given_pages = 0;

  std::uint32_t free_pages() const {
    return says.free_pages > given_pages ? says.free_pages - given_pages : 0;
  }
  std::uint32_t sequences() const { return says.running + says.waiting + given_sequences; }
};
using decoder_table = std::map<decoder_name, known_decoder>;

/// A request that needs a decoder.
struct decoder_need {
  std::string model;
  std::uint32_t positions = 0;  // prompt and completion, at most
  std::uint32_t datacenter = 0;
  std::set<decoder_name> without;  // those that have failed this request
};

/// Of the decoders that can take the request now: those of its datacenter first, then the one with
/// the most free pages, the fewest sequences, the smaller lease. Fails with `unavailable`: nobody
/// serves this model; `invalid`: too many positions for all who do; `insufficient`: they have as
/// many sequences as they allow.
expected<decoder_name> choose_decoder(const decoder_table& all, const decoder_need& need);

/// The decoders of a cluster, as they describe themselves. A decoder is lost once it has been
/// silent for a lease's duration, or its node has started again.
class known_decoders {
 public:
  known_decoders() = default;
  explicit known_decoders(std::shared_ptr<const troupe::cluster> c) : cluster_{std::move(c)} {}

  /// A node's statement. False: it is older than what is known, or cannot be true; nothing changes.
  bool hear(address from, const decoder_state& s, double now_s);
  /// Another message of a decoder.
  void hear_of(const decoder_name& d, double now_s);
  /// Forgets those that have been silent for too long.
  void forget_silent(double now_s);
  /// A request for so many positions goes to this decoder.
  void give(const decoder_name& d, std::uint32_t positions);

  const decoder_table& all() const { return all_; }
  bool has(const decoder_name& d) const { return all_.contains(d); }

 private:
  bool is_believable(address from, const decoder_state& s) const;
  std::size_t decoders_of(address node) const;
  void forget_node(address node);

  std::shared_ptr<const troupe::cluster> cluster_;
  decoder_table all_;
  std::map<address, std::uint64_t> incarnations_;  // of nodes
};

}  // namespace troupe::actors
