#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/wire/frame.hpp"
#include "messages/wire/journal.hpp"
#include "messages/wire/message.hpp"

// docs/wire.md describes the format.

namespace troupe {

/// The two frames of a message. Never fails.
frame encode(address from, address to, const message& m, payload body = {});

/// Decodes only the envelope: enough for forwarding a frame. Rejects other protocol versions.
expected<envelope> peek(std::span<const std::byte> header);

/// Decodes only the request number of a client's message, which is its first field.
expected<std::uint64_t> peek_request(std::span<const std::byte> header);

/// Decodes a whole header. Rejects, with a reason: other versions, unknown types, truncated data,
/// trailing data, fields of the wrong type, invalid lengths, too deep nesting. Never reads outside
/// `header`, and never allocates more than a small multiple of its size.
expected<std::pair<envelope, message>> decode(std::span<const std::byte> header);

/// The same for journal entries.
std::vector<std::byte> encode(const journal_entry& e);
expected<journal_entry> decode_entry(std::span<const std::byte> bytes);

/// A cluster's encoding, for its fingerprint.
std::uint64_t fingerprint(const cluster& c);

}  // namespace troupe
