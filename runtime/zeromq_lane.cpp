#include "runtime/zeromq_lane.hpp"

#include <cstring>
#include <utility>

namespace troupe::runtime {
namespace {

// Below this a copy costs less than sharing.
constexpr std::size_t share_from_bytes = 1024;

struct received_messages {
  zmq::message_t header, body;
};

// The deleter of what a frame owns: it tells our frames from others', and where they came from.
struct received_deleter {
  std::shared_ptr<inbox> from;
  void operator()(const received_messages* m) const { delete m; }
};

std::span<const std::byte> view(const zmq::message_t& m) {
  return {static_cast<const std::byte*>(m.data()), m.size()};
}

}  // namespace

frame received_frame(zmq::message_t header, zmq::message_t body, std::shared_ptr<inbox> from) {
  auto* both = new received_messages{std::move(header), std::move(body)};
  const std::shared_ptr<const received_messages> owner{both, received_deleter{std::move(from)}};
  return frame{payload{owner, view(both->header)},
               both->body.size() == 0 ? payload{} : payload{owner, view(both->body)}};
}

std::shared_ptr<inbox> inbox_of(const frame& f) {
  const auto* deleter = std::get_deleter<received_deleter>(f.header.owner());
  return deleter == nullptr ? nullptr : deleter->from;
}

zmq::message_t outgoing_message(const payload& p) {
  const auto bytes = p.bytes();
  if (bytes.size() < share_from_bytes || !p.owner())
    return zmq::message_t{bytes.data(), bytes.size()};
  auto* owner = new std::shared_ptr<const void>{p.owner()};
  const auto release = [](void*, void* hint) {
    delete static_cast<std::shared_ptr<const void>*>(hint);
  };
  // ZeroMQ takes a pointer to mutable bytes and does not write through it.
  return zmq::message_t{const_cast<std::byte*>(bytes.data()), bytes.size(), release, owner};
}

}  // namespace troupe::runtime
