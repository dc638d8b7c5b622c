#pragma once

#include <string>
#include <utility>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "web/openai/openai.hpp"

// The parts of reading a request; for their .cpp files alone.

namespace troupe::web::openai {

inline tl::unexpected<problem> invalid(const std::string& param, const std::string& what) {
  return tl::unexpected<problem>{
      {400, fmt::format("'{}' {}", param, what), "invalid_request_error", param}};
}

/// Refuses keys of other servers (vLLM, SGLang, TGI, llama.cpp) that would change the answer there
/// and are not done here, unless their value asks for nothing.
parsed<void> refuse_known_extensions(const nlohmann::json& body);

/// The messages of a chat. `body`: its text, for what must keep its order.
parsed<std::vector<gpu::chat_message>> read_messages(const nlohmann::json& all,
                                                     std::string_view body);

/// The text of an object of the body with its keys in their order.
parsed<std::string> ordered_object(std::string_view body, const std::string& key);

}  // namespace troupe::web::openai
