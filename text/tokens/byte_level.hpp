#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace troupe::gpu {

/// Byte-level vocabularies write every byte as a printable character: printable bytes as
/// themselves, the others from U+0100 on. The bytes that a token stands for; nothing if it has
/// other characters.
std::optional<std::string> byte_level_bytes(std::string_view characters);

/// The character of a byte.
std::string byte_level_character(unsigned char byte);

}  // namespace troupe::gpu
