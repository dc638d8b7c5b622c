#include "runtime/zeromq/transport.hpp"

#include "harness/all_messages.hpp"
#include "runtime/keys.hpp"
#include "runtime/tcp.hpp"

using namespace troupe;
using namespace troupe::test;

// Nodes that listen for tensors of their datacenter's other nodes, and other frames sent there.

namespace {

/// A ZeroMQ peer with a given key that sends arbitrary frames to one host.
class keyed_peer {
 public:
  keyed_peer(const key_directory& keys, const std::string& key, const std::string& server,
             const std::string& endpoint) {
    const auto own = runtime::load_keys(keys.path(), key);
    REQUIRE(own);
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::rcvtimeo, static_cast<int>(1000 * long_s));
    socket_.set(zmq::sockopt::curve_serverkey, own->key_of(server));
    socket_.set(zmq::sockopt::curve_publickey, own->public_key);
    socket_.set(zmq::sockopt::curve_secretkey, own->secret_key);
    socket_.connect(endpoint);
  }
  void send(const frame& f) {
    socket_.send(zmq::buffer(f.header.bytes().data(), f.header.bytes().size()),
                 zmq::send_flags::sndmore);
    socket_.send(zmq::buffer(f.body.bytes().data(), f.body.bytes().size()));
  }
  message receive() {
    zmq::message_t header, body;
    REQUIRE(socket_.recv(header));
    REQUIRE(socket_.recv(body));
    const auto m = decode({static_cast<const std::byte*>(header.data()), header.size()});
    REQUIRE(m);
    return m->second;
  }
  message greet(address from, address to, const std::string& name,
                std::optional<host_entry> entry = entry_of(two_datacenters(), a0)) {
    send(encode(from, to, hello{name, 7, std::move(entry), {}}));
    return receive();
  }

 private:
  zmq::context_t context_;
  zmq::socket_t socket_{context_, zmq::socket_type::dealer};
};

struct datacenter_of_two {
  key_directory keys;
  mailbox controller{must_open(keys.host("controller"))};
  mailbox gateway{must_open(keys.host("dc1/gateway", endpoint_of(controller)))};
  mailbox first{must_open(node("a-0"))}, second{must_open(node("a-1"))};

  datacenter_of_two() {
    for (auto* m : {&first, &second})
      REQUIRE(dynamic_cast<zeromq_transport&>(m->net()).wait_until_greeted(long_s));
  }
  static std::string endpoint_of(mailbox& m) {
    return dynamic_cast<zeromq_transport&>(m.net()).endpoint();
  }
  zeromq_options node(const std::string& name) {
    auto o = keys.host(name, endpoint_of(gateway));
    o.listen = "tcp://127.0.0.1:*";
    o.connections = 2;
    return o;
  }
};

frame a_tensor(address from, address to) {
  tensor t;
  t.from = {1, 0, 0};
  return encode(from, to, t, payload{std::vector<std::byte>(10)});
}

}  // namespace

TEST_CASE("nodes of one datacenter exchange tensors over an encrypted connection of their own") {
  datacenter_of_two d;
  REQUIRE(d.first.net().send(a1, a_tensor(a0, a1), runtime::tensor_lane));
  REQUIRE(d.second.has(1));
  CHECK(d.second.at(0).body.bytes().size() == 10);
  CHECK(d.second.net().caller_of(d.second.at(0)).name == "a-0");
  CHECK_FALSE(d.second.net().caller_of(d.second.at(0)).is_operator);
  CHECK(d.gateway.size() == 0);
}

TEST_CASE("a node welcomes only nodes of its own datacenter, authenticated by their keys") {
  datacenter_of_two d;
  const auto at = datacenter_of_two::endpoint_of(d.second);
  const auto refused = [&](const std::string& key, address claimed, const std::string& name,
                           std::optional<host_entry> entry = entry_of(two_datacenters(), a0)) {
    INFO(name << " with the key of " << key);
    keyed_peer p{d.keys, key, "a-1", at};
    const auto answer = p.greet(claimed, a1, name, std::move(entry));
    CHECK(std::holds_alternative<refusal>(answer));
    p.send(a_tensor(a0, a1));
    CHECK(std::holds_alternative<refusal>(p.receive()));
  };
  refused("b-0", b0, "b-0");                   // of another datacenter
  refused("b-0", a0, "a-0");                   // under another node's name
  refused("dc1/gateway", dc1, "dc1/gateway");  // over the node's own connection only
  refused("controller", controller_address, "controller");
  refused("alice", first_client_address, "alice", std::nullopt);
  refused("operator", a0, "a-0");
  refused("a-1", a1, "a-1");  // itself
  refused("a-0", a0, "a-0", host_entry{"other", "dc1", "V100-32GB", 4});
  CHECK(d.second.size() == 0);
}

TEST_CASE("a connection between two nodes accepts only tensors of the one for the other") {
  datacenter_of_two d;
  keyed_peer p{d.keys, "a-0", "a-1", datacenter_of_two::endpoint_of(d.second)};
  REQUIRE(std::holds_alternative<welcome>(p.greet(a0, a1, "a-0")));
  for (const address from : {controller_address, dc1, dc2, a0, a1, b0, client_1})
    for (const address to : {controller_address, dc1, a0, a1, b0})
      for_each_message([&](const message& m) {
        const bool allowed = type_of(m) == type_id<tensor> && from == a0 && to == a1;
        if (!allowed && type_of(m) != type_id<hello>) p.send(encode(from, to, m));
      });
  p.send(a_tensor(a0, a1));
  REQUIRE(d.second.has(1));
  CHECK(d.second.size() == 1);
  CHECK(peek(d.second.at(0).header.bytes())->type == type_id<tensor>);
}

TEST_CASE("a gateway gives its nodes' endpoints only to nodes of its own datacenter") {
  datacenter_of_two d;
  const auto at_gateway = datacenter_of_two::endpoint_of(d.gateway);
  keyed_peer node{d.keys, "a-0", "dc1/gateway", at_gateway};
  // A newer incarnation of a-0.
  node.send(encode(a0, dc1, hello{"a-0", 7, entry_of(two_datacenters(), a0), {}}));
  REQUIRE(std::holds_alternative<welcome>(node.receive()));
  node.send(encode(a0, dc1, find_node{a1}));
  const auto answer = node.receive();
  REQUIRE(std::holds_alternative<node_endpoint>(answer));
  CHECK(std::get<node_endpoint>(answer) ==
        node_endpoint{a1, datacenter_of_two::endpoint_of(d.second)});
  for (const address other : {b0, dc1, controller_address, a0, client_1, ~address{0}})
    node.send(encode(a0, dc1, find_node{other}));
  node.send(encode(a0, dc1, find_node{a1}));
  CHECK(std::get<node_endpoint>(node.receive()).node == a1);

  keyed_peer gateway{d.keys, "dc2/gateway", "dc1/gateway", at_gateway};
  REQUIRE(std::holds_alternative<welcome>(
      gateway.greet(dc2, dc1, "dc2/gateway", entry_of(two_datacenters(), dc2))));
  gateway.send(encode(b0, dc1, find_node{a1}));
  keyed_peer stranger{d.keys, "b-0", "dc1/gateway", at_gateway};
  stranger.send(encode(b0, dc1, find_node{a1}));
  CHECK(std::holds_alternative<refusal>(stranger.receive()));
}

TEST_CASE("a gateway ignores a truncated question for a node's endpoint, and answers the next") {
  datacenter_of_two d;
  keyed_peer node{d.keys, "a-0", "dc1/gateway", datacenter_of_two::endpoint_of(d.gateway)};
  REQUIRE(std::holds_alternative<welcome>(node.greet(a0, dc1, "a-0")));
  const auto whole = encode(a0, dc1, find_node{a1});
  const auto bytes = whole.header.bytes();
  node.send({payload{std::vector(bytes.begin(), bytes.end() - 1)}, {}});
  node.send(whole);
  const auto answer = node.receive();
  REQUIRE(std::holds_alternative<node_endpoint>(answer));
  CHECK(std::get<node_endpoint>(answer).node == a1);
}

TEST_CASE("tensors take no direct connection that is less protected than the gateway's") {
  datacenter_of_two d;
  scratch directory;
  const auto open = "ipc://" + (directory / "a-1");
  // a-1 starts again, with an endpoint that is not encrypted.
  keyed_peer second{d.keys, "a-1", "dc1/gateway", datacenter_of_two::endpoint_of(d.gateway)};
  second.send(encode(a1, dc1, hello{"a-1", 7, entry_of(two_datacenters(), a1), open}));
  REQUIRE(std::holds_alternative<welcome>(second.receive()));
  zmq::context_t context;
  zmq::socket_t listening{context, zmq::socket_type::router};
  listening.set(zmq::sockopt::linger, 0);
  listening.bind(open);
  REQUIRE(d.first.net().send(a1, a_tensor(a0, a1), runtime::tensor_lane));
  CHECK(d.gateway.has(1));
  zmq::message_t id;
  CHECK_FALSE(listening.recv(id, zmq::recv_flags::dontwait));
}
