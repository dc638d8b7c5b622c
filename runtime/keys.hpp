#pragma once

#include <string>
#include <utility>
#include <vector>

#include "messages/cluster.hpp"
#include "messages/reason.hpp"

// A directory of keys: `authorized` lists every host's name and public key, a line each, and goes
// to every host; NAME.key is a host's own pair (a gateway's is DATACENTER/gateway.key), stays with
// that host, and is readable by its owner only. Keys are Curve25519 in ZeroMQ's Z85 text, 40
// characters.

namespace troupe::runtime {

/// The name whose key is for people with the command line.
inline constexpr const char* client_key_name = "client";

/// What one host knows: its own pair, and whom it lets in.
struct key_ring {
  std::string name;
  std::string public_key;
  std::string secret_key;
  std::vector<std::pair<std::string, std::string>> authorized;  // name, public key

  /// The public key of a name, or the name of a public key; empty: not in the list.
  std::string key_of(const std::string& host) const;
  std::string name_of(const std::string& key) const;
};

/// Every name that needs a key: the controller, the gateways, the nodes and "client".
std::vector<std::string> key_names(const cluster& c);

/// Makes a pair for each name that has none yet and rewrites the list; what is there stays. Returns
/// how many pairs were made. Refuses names that would leave the directory, and what cannot be
/// written.
expected<std::size_t> make_keys(const std::string& directory,
                                const std::vector<std::string>& names);

/// Reads a host's own pair and the list. Refuses a missing or malformed file, and a secret that
/// others can read.
expected<key_ring> load_keys(const std::string& directory, const std::string& name);

/// Are there keys in this directory? An empty name has none.
bool has_keys(const std::string& directory);

}  // namespace troupe::runtime
