#include "text/tokens/tokenizer.hpp"

namespace troupe::gpu {

std::string tokenizer::decode(std::span<const std::uint32_t> tokens) const {
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) text += text_of(tokens[i], i == 0);
  return text;
}

}  // namespace troupe::gpu
