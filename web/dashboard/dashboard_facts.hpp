#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "messages/wire/client.hpp"

// Facts that the dashboard's JSON and its metrics both read from the controller's replies: pure
// functions.

namespace troupe::web {

/// Index into r.gateways; beyond its end: unknown.
std::uint32_t datacenter_of(const query_reply& r, node_index n);
std::string name_of_node(const query_reply& r, node_index n);
std::string name_of_datacenter(const query_reply& r, std::uint32_t datacenter);

bool holds_gpus(const job_status& j);
/// Is it the first of the jobs that it is merged with, or merged with none?
bool stands_for_others(const job_status& j);

/// Counts jobs as they end, from replies about all of them; those of the first had ended before.
class ended_jobs {
 public:
  void look_at(const query_reply& r);
  const std::map<end_word, std::uint64_t>& by_why() const { return by_why_; }

 private:
  std::optional<std::set<job_id>>
      known_;  // that had ended by the last reply; none: it is the first
  std::map<end_word, std::uint64_t> by_why_;
};

/// The decoders that present fronts know, each with its newest state.
std::vector<reported_decoder> decoders_of(const query_reply& r);

/// One direction between two datacenters.
struct wan_direction {
  std::uint32_t from = 0, to = 0;
  std::optional<wan_link> in_file;     // none: the cluster file does not list it
  std::optional<std::uint64_t> bytes;  // of tensors, since the sending gateway started
};
/// Both directions of every link of the cluster file, and all others that were used.
std::vector<wan_direction> wan_directions(const query_reply& r);

/// Nothing: the gateway is absent.
std::optional<std::uint64_t> bytes_between(const query_reply& r, std::uint32_t from,
                                           std::uint32_t to);

}  // namespace troupe::web
