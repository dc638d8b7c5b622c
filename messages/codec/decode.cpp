#include <exception>
#include <string>

#include "messages/base/refuse.hpp"
#include "messages/codec/codec.hpp"
#include "messages/codec/unpack.hpp"

namespace troupe {
namespace {

// One pass over untrusted bytes: decoding needs no tree of values, reserves nothing that the
// remaining bytes could not fill, and ends at the first mistake, whose offset it reports.

tl::unexpected<reason> malformed(const shape::unpacker& in, const std::string& what) {
  return refuse(reason::kind::malformed, "{} is malformed at byte {}: {}.", what, in.position(),
                in.mistake());
}

std::string message_name(std::uint16_t type) {
  return "A message of type " + std::to_string(type);
}

// The version comes first and is read alone: what follows may have another layout.
expected<envelope> read_envelope(shape::unpacker& in) {
  std::uint64_t version = 0;
  envelope e;
  if (!in.array(shape::header_fields) || !in.unpack(version)) return malformed(in, "A header");
  if (version != protocol_version)
    return refuse(reason::kind::refused,
                  "The message is of protocol version {}; this side speaks version {}.", version,
                  protocol_version);
  if (!in.unpack(e.type) || !in.unpack(e.from) || !in.unpack(e.to))
    return malformed(in, "A header");
  return e;
}

using body_reader = void (*)(shape::unpacker& in, message& m);

template <class T>
void read_body(shape::unpacker& in, message& m) {
  static_assert(type_id<T> != 0, "give it a number in message.hpp");
  in.unpack(m.emplace<T>());
}

/// Null: there is no such type.
template <class... T>
body_reader reader_of(std::uint16_t type, const std::variant<T...>*) {
  body_reader found = nullptr;
  (void)((type == type_id<T> && (found = &read_body<T>)) || ...);
  return found;
}

expected<std::pair<envelope, message>> read_message(std::span<const std::byte> header) {
  shape::unpacker in{header};
  const auto e = read_envelope(in);
  if (!e) return refuse(e.error());
  const auto read = reader_of(e->type, static_cast<const message*>(nullptr));
  if (!read) return refuse(reason::kind::unknown, "There is no message of type {}.", e->type);
  expected<std::pair<envelope, message>> result{tl::in_place, *e, message{}};
  read(in, result->second);
  if (in.mistake() || !in.at_end()) return malformed(in, message_name(e->type));
  return result;
}

bool read_entry(shape::unpacker& in, journal_entry& e) {
  std::size_t size = 0;
  if (!in.any_array(size)) return false;
  if (size == 2) {
    in.use_third_format();
    return in.unpack_alternative(e) && in.at_end();
  }
  if (size != 3) return in.refuse("wrong number of fields");
  std::uint64_t version = 0;
  if (!in.unpack(version)) return false;
  if (version != journal_version) return in.refuse("of a version that this program does not know");
  return in.unpack_alternative(e) && in.at_end();
}

// The same rules as for messages: a journal may be of a newer program, or damaged in a way that its
// checksum does not show. Entries of version 4 begin with it; those before had none.
expected<journal_entry> read_entry(std::span<const std::byte> bytes) {
  shape::unpacker in{bytes};
  expected<journal_entry> result;
  if (!read_entry(in, *result)) return malformed(in, "A journal entry");
  return result;
}

// Decoding allocates at most a small multiple of the input, but memory may still run out.
template <class F>
auto without_exceptions(F&& read) -> decltype(read()) {
  try {
    return read();
  } catch (const std::exception& e) {
    return refuse(reason::kind::unavailable, "A message could not be read: {}.", e.what());
  }
}

}  // namespace

// Enough to forward a frame, without decoding its message.
expected<envelope> peek(std::span<const std::byte> header) {
  return without_exceptions([&] {
    shape::unpacker in{header};
    return read_envelope(in);
  });
}

expected<std::uint64_t> peek_request(std::span<const std::byte> header) {
  return without_exceptions([&]() -> expected<std::uint64_t> {
    shape::unpacker in{header};
    if (const auto e = read_envelope(in); !e) return refuse(e.error());
    std::uint64_t request = 0;
    if (!in.any_array() || !in.unpack(request)) return malformed(in, "A request");
    return request;
  });
}

expected<std::pair<envelope, message>> decode(std::span<const std::byte> header) {
  return without_exceptions([&] { return read_message(header); });
}

expected<journal_entry> decode_entry(std::span<const std::byte> bytes) {
  return without_exceptions([&] { return read_entry(bytes); });
}

}  // namespace troupe
