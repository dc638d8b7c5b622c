#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/domain/cluster.hpp"

// A directory of keys: `authorized` lists every host's and every person's name and public key, a
// line each, people with their role, and goes to every host; NAME.key is a host's or a person's own
// pair (a gateway's is DATACENTER/gateway.key), stays with its owner, and is readable by its owner
// only. Keys are Curve25519 in ZeroMQ's Z85 text, 40 characters.

namespace troupe::runtime {

/// The use of a key: a host of the cluster is that host and nothing else; a client submits
/// jobs and acts on its own; an operator acts on everybody's.
enum class key_role : std::uint8_t { host, client, operator_ };

/// Keys that every cluster has for people with the command line.
inline constexpr const char* client_key_name = "client";
inline constexpr const char* operator_key_name = "operator";

/// A line of the list of public keys.
struct listed_key {
  std::string name;
  std::string public_key;
  key_role role = key_role::host;
};
struct key_ring {
  std::string name;
  std::string public_key;
  std::string secret_key;
  std::vector<listed_key> authorized;

  /// The public key of a name, or the name of a public key; empty: not in the list.
  std::string key_of(const std::string& host) const;
  std::string name_of(const std::string& key) const;
  /// The role of a name in the list; others are hosts.
  key_role role_of(std::string_view who) const;
};

/// Every name that needs a key: the controller, the gateways, the nodes, the fronts, "client" and
/// "operator".
std::vector<std::string> key_names(const cluster& c);

/// Makes a pair for each name that has none yet and rewrites the list; what is there stays. Returns
/// how many pairs were made. `people`: further names with their roles. Refuses names that would
/// leave the directory, names of hosts for people, and what cannot be written.
expected<std::size_t> make_keys(const std::string& directory, const std::vector<std::string>& names,
                                const std::map<std::string, key_role>& people = {});

/// Reads a host's own pair and the list. Refuses a missing or malformed file, and a secret that
/// others can read.
expected<key_ring> load_keys(const std::string& directory, const std::string& name);

/// Which client's or operator's key to take in a directory if none was named: "client" if it is
/// there, else the only one that is; empty: none, or several.
std::string default_client_key(const std::string& directory);

/// Are there keys in this directory? An empty name has none.
bool has_keys(const std::string& directory);

}  // namespace troupe::runtime
