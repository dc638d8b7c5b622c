#include "runtime/zeromq_lane.hpp"

#include <cstring>
#include <utility>

namespace troupe::runtime {
namespace {

// Below this a copy costs less than sharing.
constexpr std::size_t share_from_bytes = 1024;

// The deleter of a received frame's owner: it lives in the owner's control block and holds all
// there is, which saves an allocation a frame; it tells our frames from others', and where they
// came from.
struct received_messages {
  zmq::message_t header, body;
  std::shared_ptr<inbox> from;
  void operator()(const void*) const {}
};

std::span<const std::byte> view(const zmq::message_t& m) {
  return {static_cast<const std::byte*>(m.data()), m.size()};
}

}  // namespace

frame received_frame(zmq::message_t header, zmq::message_t body, std::shared_ptr<inbox> from) {
  static const char not_null = 0;
  const void* something = &not_null;
  const std::shared_ptr<const void> owner{
      something, received_messages{std::move(header), std::move(body), std::move(from)}};
  // Looked at where they stay: short messages hold their bytes inside.
  const auto* all = std::get_deleter<received_messages>(owner);
  return frame{payload{owner, view(all->header)},
               all->body.size() == 0 ? payload{} : payload{owner, view(all->body)}};
}

const std::shared_ptr<inbox>* inbox_of(const frame& f) {
  const auto* all = std::get_deleter<received_messages>(f.header.owner());
  return all == nullptr ? nullptr : &all->from;
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
