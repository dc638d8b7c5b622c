#pragma once

#include <cstdint>
#include <ctime>
#include <span>
#include <string_view>
#include <vector>

#include "text/chat/chat_template.hpp"

// Tokens that a model learns from, made with the pieces of a served prompt: what is trained behind
// a prompt is what the model is to say behind it.

namespace troupe::gpu {

/// trained[i]: token i is a target, which the tokens before it are to predict. The first never is.
struct training_example {
  std::vector<std::uint32_t> tokens;
  std::vector<bool> trained;  // as many
};

struct example_rules {
  bool all = false;                 // every token is a target, not only those of answers
  std::vector<std::uint32_t> ends;  // tokens that end a text, by the model's files
  std::tm now{};                    // that templates write
};

struct made_examples {
  std::vector<training_example> examples;
  /// Each answer is an example of its own: the template writes later prompts in another way than
  /// the answers before them, or writes nothing that ends an answer.
  bool split = false;
  /// Places where tokens do not go on as those of the whole text would, because those before them
  /// are a prompt's.
  std::uint32_t boundary_cuts = 0;
  /// Answers behind which the template writes no token that ends them; it was added if there is
  /// one.
  std::uint32_t added_ends = 0;
};

/// A conversation. Its prompts are those of chat_template::prompt() for the messages before each
/// answer, at `rules.now`; a target is each token from there to the first that ends an answer.
/// trained[i]: the answer of message i counts; others are only written. Messages behind the last
/// answer that counts are left out. Fails (invalid) if the template refuses the conversation, or
/// does not write an answer behind its prompt; messages have at least one answer that counts.
expected<made_examples> examples_of_chat(const chat_template& chats, const tokenizer& t,
                                         std::span<const chat_message> messages,
                                         const std::vector<bool>& trained,
                                         const example_rules& rules);

/// A completion behind a prompt without a template.
expected<made_examples> example_of_completion(const tokenizer& t, std::string_view prompt,
                                              std::string_view completion,
                                              const example_rules& rules);

/// A text, of which every token is a target.
made_examples example_of_text(const tokenizer& t, std::string_view text,
                              const example_rules& rules);

}  // namespace troupe::gpu
