#pragma once

#include <string>
#include <vector>

namespace troupe::gpu {

struct chat_message {
  std::string role;                  // system, user, assistant or tool
  std::string text;                  // of its content; if that was given as parts, of all of them
  std::vector<std::string> parts{};  // those
  bool has_content = true;
  /// A JSON object: the further keys that a template gets: name, tool_calls, reasoning_content, ...
  std::string more{};
};

}  // namespace troupe::gpu
