#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::gpu::jinja {

struct token {
  enum class kind : std::uint8_t {
    data,         // text outside of tags
    print_begin,  // {{
    print_end,
    block_begin,  // {%
    block_end,
    name,
    string,   // its value, not as it is written
    integer,  // as it is written
    real,
    sign,  // an operator, a bracket, ...
    end
  };
  kind what = kind::end;
  std::string text;
  unsigned line = 0;

  bool is_sign(std::string_view s) const { return what == kind::sign && text == s; }
  bool is_name(std::string_view s) const { return what == kind::name && text == s; }
};

/// Splits a template into tokens, with the newline after a tag and the white space between the
/// beginning of a line and a tag removed, as templates of chats expect. The last is `end`. Throws
/// `located_error`.
std::vector<token> tokens_of(std::string_view source);

/// An error at a line of the template.
struct located_error {
  unsigned line = 0;
  std::string text;
};

}  // namespace troupe::gpu::jinja
