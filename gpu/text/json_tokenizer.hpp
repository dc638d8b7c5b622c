#pragma once

#include <filesystem>
#include <memory>

#include "gpu/text/tokenizer.hpp"

namespace troupe::gpu {

/// A tokenizer.json of Hugging Face with a byte pair encoding: byte-level (GPT-2, Llama 3, Qwen2,
/// ...), or with spaces as a character of their own and bytes for unknown ones (Llama 2, Mistral).
/// Fails, with the file's name, for parts that are not supported.
expected<std::unique_ptr<tokenizer>> open_json_tokenizer(const std::filesystem::path& file);

}  // namespace troupe::gpu
