#pragma once

#include <memory>

#include "text/tokens/tokenizer.hpp"
#include "text/tokens/tokenizer_document.hpp"

namespace troupe::gpu {

/// A tokenizer with a byte pair encoding: byte-level (GPT-2, Llama 3, Qwen2, ...), or with spaces
/// as a character of their own and bytes for unknown ones (Llama 2, Mistral). Fails, with the
/// file's name, for parts that are not supported.
expected<std::unique_ptr<tokenizer>> make_json_tokenizer(const tokenizer_document& d);

}  // namespace troupe::gpu
