#pragma once

#include <string>
#include <string_view>

namespace troupe::gpu {

/// Makes valid UTF-8 of bytes that come in pieces: a character that is not complete yet is held
/// back, and what can be none becomes U+FFFD.
class utf8_stream {
 public:
  /// The characters that are certain after these bytes.
  std::string add(std::string_view bytes);
  /// U+FFFD if bytes are held back at the end of the text; else nothing.
  std::string end();

 private:
  std::string held_;  // the beginning of a character
};

}  // namespace troupe::gpu
