#include "runtime/zeromq/zap.hpp"

#include <chrono>
#include <vector>

#include <zmq_addon.hpp>

#include "runtime/host/log.hpp"

namespace troupe::runtime {

zap_handler::zap_handler(zmq::context_t& context, key_ring keys)
    : keys_{std::move(keys)}, socket_{context, zmq::socket_type::rep} {
  socket_.set(zmq::sockopt::linger, 0);
  socket_.bind("inproc://zeromq.zap.01");
}

// A peer that is refused comes back several times a second.
void zap_handler::log_refusal(const std::string& from, const std::string& key) {
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  const auto times = logged_.pass(from, now.count());
  if (times == 0) return;
  log(log_level::warn, "transport", "rejected a peer whose key is not in the list",
      {{"address", from}, {"key", key}, {"times", times}});
}

// ZAP (RFC 27): the handshake of a connection waits for the answer. The user id of a 200 answer is
// the key's name, which every message of the connection then carries.
void zap_handler::answer() {
  for (std::vector<zmq::message_t> ask;; ask.clear()) {
    if (!zmq::recv_multipart(socket_, std::back_inserter(ask), zmq::recv_flags::dontwait)) return;
    // version, request id, domain, peer's address, routing id, mechanism, credentials
    std::string name, key;
    if (ask.size() == 7 && ask[5].to_string_view() == "CURVE" && ask[6].size() == 32) {
      char text[41];
      zmq_z85_encode(text, static_cast<const std::uint8_t*>(ask[6].data()), 32);
      key = text;
      name = keys_.name_of(key);
    }
    const std::string id = ask.size() > 1 ? ask[1].to_string() : "";
    const std::string from = ask.size() > 3 ? ask[3].to_string() : "";
    if (name.empty()) log_refusal(from, key);
    const std::vector<std::string> reply{
        "1.0", id, name.empty() ? "400" : "200", name.empty() ? "key not in the list" : "OK",
        name,  ""};
    std::vector<zmq::const_buffer> parts;
    for (const auto& part : reply) parts.push_back(zmq::buffer(part));
    zmq::send_multipart(socket_, parts);
  }
}

}  // namespace troupe::runtime
