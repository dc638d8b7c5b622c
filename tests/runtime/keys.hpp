#pragma once

#include <catch2/catch.hpp>

#include <functional>
#include <string>

#include "runtime/world.hpp"
#include "runtime/zeromq/keys.hpp"

// A cluster whose connections are encrypted: every host and person has a key of its own.

namespace troupe::test {

using runtime::zeromq_options;
using runtime::zeromq_transport;
using runtime::test::eventually;
using runtime::test::long_s;
using runtime::test::mailbox;
using runtime::test::must_open;
using runtime::test::two_datacenters;

inline constexpr address dc1 = 1, dc2 = 2, a0 = node_address(0), a1 = node_address(1),
                         b0 = node_address(2);
inline constexpr address client_1 = first_client_address + 1;

/// Keys of the hosts, of "client" and "operator", and of two more people.
class key_directory {
 public:
  key_directory() {
    using runtime::key_role;
    REQUIRE(runtime::make_keys(
        directory_.path(), runtime::key_names(two_datacenters()),
        {{"alice", key_role::client}, {"bob", key_role::client}, {"root", key_role::operator_}}));
  }
  std::string path() const { return directory_.path(); }

  /// A host's options; it listens on a port of its own if it ever does.
  zeromq_options host(const std::string& name, const std::string& upstream = {}) const {
    zeromq_options o;
    o.name = name;
    o.cluster = two_datacenters();
    o.incarnation = 1;
    o.keys = path();
    o.upstream = upstream;
    if (name == "controller" || name.ends_with("/gateway")) o.listen = "tcp://127.0.0.1:*";
    return o;
  }
  /// A client with the given user's key.
  zeromq_options client(const std::string& key, const std::string& controller) const {
    zeromq_options o;
    o.name = "client";
    o.client = true;
    o.incarnation = std::hash<std::string>{}(key);
    o.keys = path();
    o.client_key = key;
    o.upstream = controller;
    return o;
  }

 private:
  scratch directory_;
};

}  // namespace troupe::test
