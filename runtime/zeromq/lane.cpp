#include "runtime/zeromq/lane.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "messages/base/invariant.hpp"

namespace troupe::runtime {
namespace {

// Below this a copy costs less than sharing.
constexpr std::size_t share_from_bytes = 1024;

// One message with many frames costs ZeroMQ as much as one with a single frame; heartbeats,
// acknowledgements and tokens are cheaper than that cost. Only frames that already wait are
// combined: none is delayed for company.
constexpr std::uint8_t batch_mark = 0xc1;  // the one byte that MessagePack never uses
constexpr std::size_t length_bytes = 4;
constexpr std::size_t largest_batch_bytes = 16 * 1024;

// The deleter of a received frame's owner: it lives in the owner's control block and holds all
// there is, which saves an allocation a frame; it distinguishes this transport's frames from
// others', and has their origin.
struct received_messages {
  zmq::message_t header, body;
  std::shared_ptr<inbox> from;
  void operator()(const void*) const {}
};

std::shared_ptr<const void> own(received_messages m) {
  static const char not_null = 0;
  const void* something = &not_null;
  return {something, std::move(m)};
}

}  // namespace

frame received_frame(zmq::message_t header, zmq::message_t body, std::shared_ptr<inbox> from) {
  const auto owner = own({std::move(header), std::move(body), std::move(from)});
  // Looked at where they stay: short messages hold their bytes inside.
  const auto* all = std::get_deleter<received_messages>(owner);
  return frame{payload{owner, bytes_of(all->header)},
               all->body.size() == 0 ? payload{} : payload{owner, bytes_of(all->body)}};
}

// Frames with bodies travel alone, as do large headers: copying them costs more than a message
// does. The limit keeps a batch within one packet or a few.
std::size_t batchable(const std::deque<frame>& waiting, std::size_t max) {
  std::size_t frames = 0, bytes = 0;
  for (const auto& f : waiting) {
    const auto size = f.header.bytes().size();
    if (frames == max || !f.body.empty() || size >= share_from_bytes) break;
    bytes += length_bytes + size;
    if (bytes > largest_batch_bytes) break;
    ++frames;
  }
  return std::max<std::size_t>(frames, 1);
}

batch make_batch(const std::deque<frame>& waiting, std::size_t frames) {
  std::size_t size = 0;
  for (std::size_t i = 0; i < frames; ++i) size += length_bytes + waiting[i].header.bytes().size();
  TROUPE_INVARIANT(frames <= waiting.size(), "a batch is of frames that wait");
  batch b{zmq::message_t{&batch_mark, 1}, zmq::message_t{size}};
  auto* to = static_cast<std::uint8_t*>(b.body.data());
  for (std::size_t i = 0; i < frames; ++i) {
    const auto bytes = waiting[i].header.bytes();
    for (std::size_t n = 0; n < length_bytes; ++n)
      *to++ = static_cast<std::uint8_t>(bytes.size() >> (8 * n));
    std::memcpy(to, bytes.data(), bytes.size());
    to += bytes.size();
  }
  return b;
}

bool is_batch(const zmq::message_t& header) {
  return header.size() == 1 && *static_cast<const std::uint8_t*>(header.data()) == batch_mark;
}

// Lengths are the peer's and checked against the bytes; the frames share the batch's memory.
std::optional<std::vector<frame>> frames_of(zmq::message_t body, std::shared_ptr<inbox> from) {
  const auto owner = own({zmq::message_t{}, std::move(body), std::move(from)});
  auto rest = bytes_of(std::get_deleter<received_messages>(owner)->body);
  std::vector<frame> frames;
  while (!rest.empty()) {
    if (rest.size() < length_bytes) return {};
    std::size_t size = 0;
    for (std::size_t n = 0; n < length_bytes; ++n)
      size |= std::to_integer<std::size_t>(rest[n]) << (8 * n);
    rest = rest.subspan(length_bytes);
    if (size > rest.size()) return {};
    frames.push_back({payload{owner, rest.first(size)}, payload{}});
    rest = rest.subspan(size);
  }
  return frames;
}

const std::shared_ptr<inbox>* inbox_of(const frame& f) {
  const auto* all = std::get_deleter<received_messages>(f.header.owner());
  return all == nullptr ? nullptr : &all->from;
}

// A shared message keeps its payload alive until ZeroMQ has written it, in ZeroMQ's I/O thread:
// unsent_bytes is atomic for that reason.
zmq::message_t outgoing_message(const payload& p, const std::shared_ptr<unsent_bytes>& unsent,
                                bool all) {
  const auto bytes = p.bytes();
  if (bytes.empty() || !p.owner() || (bytes.size() < share_from_bytes && !all))
    return zmq::message_t{bytes.data(), bytes.size()};
  struct shared {
    std::shared_ptr<const void> owner;
    std::shared_ptr<unsent_bytes> unsent;
    std::size_t bytes;
  };
  unsent->add(bytes.size());
  const auto release = [](void*, void* hint) {
    auto* s = static_cast<shared*>(hint);
    s->unsent->remove(s->bytes);
    delete s;
  };
  // ZeroMQ takes a pointer to mutable bytes and does not write through it.
  return zmq::message_t{const_cast<std::byte*>(bytes.data()), bytes.size(), release,
                        new shared{p.owner(), unsent, bytes.size()}};
}

}  // namespace troupe::runtime
