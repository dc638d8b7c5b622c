#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/text/chat_template.hpp"
#include "gpu/text/tokenizer.hpp"

namespace troupe::gpu {

/// How a conversation is written for a model. A model's own template (Jinja) is not evaluated: the
/// format follows from its special tokens.
enum class chat_format : std::uint8_t {
  chatml,       // <|im_start|>user ... <|im_end|>: Qwen2, SmolLM2
  llama3,       // <|start_header_id|>user<|end_header_id|> ... <|eot_id|>
  instruction,  // [INST] ... [/INST]: Llama 2, Mistral
  plain         // user: ...
};
std::string_view name_of(chat_format f);

/// The format of a model folder: by its tokenizer's special tokens; `instruction` also if the
/// folder's template mentions [INST]; else `plain`.
chat_format chat_format_of(const tokenizer& t, const std::filesystem::path& folder);

/// A conversation as a prompt that the assistant's next answer continues. Names of special tokens
/// in the messages are text. `instruction` has no system: it is put before the first user's text.
std::vector<std::uint32_t> chat_prompt(const tokenizer& t, chat_format f,
                                       std::span<const chat_message> messages);

/// The tokens that end an answer, besides the model's own.
std::vector<std::uint32_t> chat_ends(const tokenizer& t, chat_format f);

}  // namespace troupe::gpu
