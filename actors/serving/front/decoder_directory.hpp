#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "messages/domain/cluster.hpp"
#include "messages/wire/generation.hpp"
#include "messages/wire/serving_leases.hpp"
#include "runtime/host/shared_cluster.hpp"

namespace troupe::actors {

/// A decoder: a lease on a node.
struct decoder_name {
  address node = 0;
  lease_id lease = 0;
  auto operator<=>(const decoder_name&) const = default;
};

struct known_decoder {
  decoder_state state;
  std::uint32_t datacenter = 0;
  double last_seen_s = 0;  // when its last message came
  // Given to it by this front since that statement.
  std::uint32_t given_sequences = 0, given_pages = 0;

  std::uint32_t free_pages() const {
    return state.free_pages > given_pages ? state.free_pages - given_pages : 0;
  }
  std::uint32_t sequences() const { return state.running + state.waiting + given_sequences; }
};
using decoder_table = std::map<decoder_name, known_decoder>;

/// Counts of a model's decoders, those that are over included, since a front knows them.
struct decoder_counts {
  std::uint64_t set_back = 0;                            // sequences, each time
  std::uint64_t computed_prompt = 0, cached_prompt = 0;  // positions of prompts
};

/// A request that needs a decoder.
struct decoder_need {
  std::string model;
  std::uint32_t positions = 0;  // prompt and completion, at most
  std::uint32_t datacenter = 0;
  std::set<decoder_name> without;  // those that have failed this request
  // Pages of the prompt's beginning that decoders have computed; 0 for others.
  std::map<decoder_name, std::uint32_t> known{};
  std::string adapter{};  // that it is to be computed with; empty: none
};

/// Chooses among the decoders that can take the request now: those of its datacenter first, then
/// the one with the longest known beginning of the prompt, unless it has more than twice as many
/// sequences, and four, as the best by load; by load: the one with the largest number of free
/// pages, the fewest sequences, the smaller lease. Fails with
/// `unavailable`: no decoder serves this model; `invalid`: too many positions for all of them;
/// `insufficient`: they have as many sequences as they allow.
expected<decoder_name> choose_decoder(const decoder_table& all, const decoder_need& need);

/// The decoders of a cluster: those that the controller states, as they describe themselves. Other
/// senders are refused. A decoder is lost once it has been silent for a lease's duration, or the
/// controller no longer states it.
class decoder_directory {
 public:
  decoder_directory() = default;
  explicit decoder_directory(shared_cluster c) : cluster_{std::move(c)} {}

  /// The controller's statement. False: it is older than the last one; nothing changes.
  bool state(const serving_leases& s);
  /// A node's description of its decoder. False: it is older than the known one. An error: the
  /// controller states no such decoder, or the description contradicts itself; nothing changes.
  expected<bool> receive(address from, const decoder_state& s, double now_s);
  /// Another message of a decoder.
  void refresh(const decoder_name& d, double now_s);
  /// Forgets those that have been silent for too long.
  void forget_silent(double now_s);
  /// A request goes to this decoder, which takes pages for its prompt, and further ones as its
  /// completion comes to them.
  void give(const decoder_name& d, std::uint32_t prompt_tokens);

  const decoder_table& all() const { return all_; }
  decoder_counts counts_of(const std::string& model) const;
  bool has(const decoder_name& d) const { return all_.contains(d); }
  /// There is a statement of the controller: before it every description is refused.
  bool has_statement() const { return statement_.epoch > 0; }
  /// Its last statement.
  const serving_leases& statement() const { return statement_; }

 private:
  expected<void> check(address from, const decoder_state& s) const;
  void count(const decoder_name& d, const decoder_state& s);

  shared_cluster cluster_;
  serving_leases statement_;
  std::map<decoder_name, decoder_lease> leases_;  // of the statement
  decoder_table all_;
  std::map<std::string, decoder_counts> counts_;    // by model
  std::map<decoder_name, decoder_counts> counted_;  // of these, by those of the statement
};

}  // namespace troupe::actors
