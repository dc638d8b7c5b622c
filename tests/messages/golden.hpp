#pragma once

#include <string>
#include <vector>

#include "messages/codec/codec.hpp"

namespace troupe::testing {

/// A message whose bytes are written down, here and in docs/wire.md.
struct golden_frame {
  std::string name;
  address from = 0, to = 0;
  message what;
  std::string hex;  // of the header, bytes apart
};

const std::vector<golden_frame>& golden_frames();

/// The same for the journal.
struct golden_entry {
  std::string name;
  journal_entry what;
  std::string hex;
};

const std::vector<golden_entry>& golden_entries();

/// "95 03 0e", and back. Anything that is no hexadecimal digit is skipped.
std::string to_hex(std::span<const std::byte> bytes);
std::vector<std::byte> from_hex(const std::string& text);

}  // namespace troupe::testing
