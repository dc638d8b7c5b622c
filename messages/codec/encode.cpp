#include <algorithm>
#include <memory>

#include <xxhash.h>

#include "messages/codec/codec.hpp"
#include "messages/codec/pack.hpp"

namespace troupe {
namespace {

// A header is packed whole and then copied once into memory of its size, which the frame and all
// its copies share.

/// Packs with `write` into this thread's buffer; the result is valid until the next call.
// A buffer of each thread: messages are packed in every actor, and allocating would cost more than
// packing.
template <class F>
const shape::sink& packed(F&& write) {
  thread_local shape::sink buffer;
  buffer.clear();
  shape::packer out{buffer};
  write(out);
  return buffer;
}

payload copy_of(const shape::sink& packed_bytes) {
  auto owner = std::make_shared_for_overwrite<std::byte[]>(packed_bytes.size());
  std::copy_n(packed_bytes.data(), packed_bytes.size(), owner.get());
  const std::span<const std::byte> view{owner.get(), packed_bytes.size()};
  return payload{std::shared_ptr<const void>{owner, owner.get()}, view};
}

}  // namespace

frame encode(address from, address to, const message& m, payload body) {
  const auto& bytes = packed([&](shape::packer& out) {
    out.array(shape::header_fields);
    out.pack(protocol_version);
    std::visit(
        [&]<class T>(const T& value) {
          out.pack(type_id<T>);
          out.pack(from);
          out.pack(to);
          out.pack(value);
        },
        m);
  });
  return frame{copy_of(bytes), std::move(body)};
}

std::vector<std::byte> encode(const journal_entry& e) {
  const auto& bytes = packed([&](shape::packer& out) {
    out.array(3);
    out.pack(journal_version);
    out.pack(std::uint64_t{e.index()});
    std::visit([&](const auto& alternative) { out.pack(alternative); }, e);
  });
  return {bytes.data(), bytes.data() + bytes.size()};
}

// The hash of the packed form, so that it changes with every field and with nothing else.
std::uint64_t fingerprint(const cluster& c) {
  const auto& bytes = packed([&](shape::packer& out) { out.pack(c); });
  return XXH64(bytes.data(), bytes.size(), 0);
}

}  // namespace troupe
