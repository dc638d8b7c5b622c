#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "messages/base/reason.hpp"
#include "text/chat/chat_message.hpp"

namespace troupe::gpu {

/// A line of a file of examples, which is a JSON object.
struct example_line {
  enum class form { chat, completion, text };
  form what = form::text;
  std::string key;  // that shows the form: messages, conversations, prompt or text
  std::vector<chat_message> messages;
  std::vector<bool> trained;        // of each message: it is an answer that counts
  std::string prompt, text;         // a completion is in `text`
  std::set<std::string> more_keys;  // that nothing reads: "source", "messages.id"
};

/// Reads a line. Fails (invalid, malformed) with what was found and what is expected; `place`
/// begins the sentence, as FILE:LINE. Calls of tools and images are refused.
expected<example_line> read_example_line(std::string_view line, const std::string& place);

}  // namespace troupe::gpu
