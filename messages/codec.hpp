#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "messages/frame.hpp"
#include "messages/journal.hpp"
#include "messages/message.hpp"
#include "messages/reason.hpp"

// docs/wire.md describes the format for people who write another client.

namespace troupe {

/// The two frames of a message. Never fails.
frame encode(address from, address to, const message& m, payload body = {});

/// Reads the envelope only: enough to pass a frame on. Refuses another protocol version.
expected<envelope> peek(std::span<const std::byte> header);

/// Reads the number of a client's request, which is its first field, and nothing behind it.
expected<std::uint64_t> peek_request(std::span<const std::byte> header);

/// Reads a whole header. Refuses, with the reason: another version, an unknown type, truncated
/// bytes, bytes left over, a field of the wrong type, lengths that lie, nesting deeper than the
/// format has. Never reads outside `header`, never allocates more than a small multiple of its
/// size.
expected<std::pair<envelope, message>> decode(std::span<const std::byte> header);

/// The same for journal entries.
std::vector<std::byte> encode(const journal_entry& e);
expected<journal_entry> decode_entry(std::span<const std::byte> bytes);

/// A cluster as bytes, for its fingerprint.
std::uint64_t fingerprint(const cluster& c);

}  // namespace troupe
