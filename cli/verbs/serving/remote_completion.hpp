#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/output/output.hpp"
#include "messages/domain/completion.hpp"

namespace troupe::cli {

/// One prompt for a running server with OpenAI's API.
struct remote_prompt {
  std::string url, key;
  std::string model;  // empty: the only one that is served
  std::string text;
  std::vector<std::uint32_t> tokens;  // instead of a text
  bool chat = false;
  completion_request what;  // its max_tokens and sampling
  std::vector<std::string> stops;
  /// Which of these the user has given; others are the server's to decide.
  struct options {
    bool max_tokens = false, temperature = false, top_p = false, top_k = false, seed = false;
  } given{};
};

/// Asks the server, and passes the text on as it comes. The document has the keys of `troupe infer
/// --json`. Fails with the server's own sentence where it gives one.
expected<json> complete_remotely(const remote_prompt& p,
                                 const std::function<void(std::string_view)>& show);

/// The URL of a front of the cluster that `troupe up` runs with this state directory; of several,
/// the first by name. Fails if there is none.
expected<std::string> url_of_front(const std::string& state);

}  // namespace troupe::cli
