// For libFuzzer: the frames of an untrusted peer to a controller, before its welcome and after.
// Each frame of an input is a length of two bytes, little end first, whose top bit is set if more
// parts of the same message follow, and that number of bytes. After each input an honest client
// must be welcomed.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <unistd.h>
#include <zmq.hpp>

#include "messages/codec/codec.hpp"
#include "runtime/host/log.hpp"
#include "runtime/zeromq/transport.hpp"

using namespace troupe;
using namespace troupe::runtime;

namespace {

cluster one_node() {
  cluster c;
  c.name = "fuzzed";
  c.gpus.push_back({.name = "V100-32GB", .memory_gb = 32, .source = ""});
  c.datacenters = {{"dc1", ""}};
  node n;
  n.name = "a-0";
  n.gpus = 4;
  c.nodes.push_back(n);
  return c;
}

class endpoint {
 public:
  endpoint() {
    set_log_level(log_level::none);
    zeromq_options o;
    o.name = "controller";
    o.cluster = one_node();
    o.listen = "ipc://" + (std::filesystem::temp_directory_path() /
                           ("troupe-fuzz-" + std::to_string(getpid()) + ".ipc"))
                              .string();
    auto opened = zeromq_transport::open(o);
    if (!opened) {
      std::fprintf(stderr, "%s\n", opened.error().text.c_str());
      std::exit(2);
    }
    net_ = *opened;
    net_->listen([this](frame f) { net_->handled(f); });
    connect();
  }

  void send(const void* data, std::size_t size, bool more) {
    stranger_.send(zmq::buffer(data, size),
                   more ? zmq::send_flags::sndmore : zmq::send_flags::none);
  }

  /// An honest greeting over a connection of its own is answered within ten seconds.
  void expect_welcome() {
    const auto f = encode(first_client_address, controller_address, hello{"honest", 0, 1});
    honest_.send(zmq::buffer(f.header.bytes().data(), f.header.bytes().size()),
                 zmq::send_flags::sndmore);
    honest_.send(zmq::message_t{}, zmq::send_flags::none);
    for (;;) {
      zmq::message_t header, body;
      if (!honest_.recv(header)) std::abort();
      if (header.more() && !honest_.recv(body)) std::abort();
      const auto m = decode({static_cast<const std::byte*>(header.data()), header.size()});
      if (m && std::holds_alternative<welcome>(m->second)) return;
    }
  }

  /// The controller's answers to the stranger do not matter, but must not pile up.
  void forget_answers() {
    for (zmq::message_t m; stranger_.recv(m, zmq::recv_flags::dontwait);) continue;
  }

 private:
  void connect() {
    for (auto* s : {&stranger_, &honest_}) {
      s->set(zmq::sockopt::linger, 0);
      s->set(zmq::sockopt::rcvtimeo, 10'000);
      s->connect(net_->endpoint());
    }
  }

  std::shared_ptr<zeromq_transport> net_;
  zmq::context_t context_;
  zmq::socket_t stranger_{context_, zmq::socket_type::dealer};
  zmq::socket_t honest_{context_, zmq::socket_type::dealer};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static endpoint d;
  bool more = false;
  for (std::size_t at = 0; at + 2 <= size;) {
    const std::size_t word = data[at] | data[at + 1] << 8, wanted = word & 0x7FFF;
    at += 2;
    const auto length = std::min(wanted, size - at);
    more = (word & 0x8000) != 0;
    d.send(data + at, length, more);
    at += length;
  }
  if (more) d.send("", 0, false);
  d.expect_welcome();
  d.forget_answers();
  return 0;
}
