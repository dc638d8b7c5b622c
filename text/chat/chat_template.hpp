#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/base/text_range.hpp"
#include "text/chat/chat_message.hpp"
#include "text/tokens/tokenizer.hpp"

namespace troupe::gpu {

/// How a conversation is written.
struct chat_options {
  bool asks_for_answer = true;  // the begin of the assistant's answer comes behind the messages
  /// The last message goes on: what the template writes behind its text is left out.
  bool continues = false;
  bool adds_special = false;  // the tokens that begin and end a text, too
  std::string variables{};    // a JSON object: further names of the template; empty: none
};

/// A conversation as a model's template writes it.
struct written_chat {
  std::string text;
  /// Bytes that come from messages: names of special tokens in them are text.
  std::vector<text_range> from_messages;
};

/// How conversations are written for a model: by the template of its folder, or by one of our own
/// that its special tokens choose. Copies share what they have.
class chat_template {
 public:
  using token_names = std::map<std::string, std::string>;

  /// Plain lines: `user: ...`.
  chat_template();
  /// The template of a folder: chat_template.jinja, else `chat_template` in tokenizer_config.json.
  /// One that cannot be read or is not supported is none: problem() has the reason.
  static chat_template of(const std::filesystem::path& folder, const tokenizer& t);
  /// A template by its text; `name` is for errors, `tokens` are names and texts of special tokens
  /// as tokenizer_config.json has them: bos_token, ...
  static chat_template of_text(std::string_view source, std::string name, token_names tokens);

  /// `template`, or the one of our own: chatml, llama3, instruction, plain.
  std::string_view name() const;
  /// Does it read contents as lists of parts? Found out by a sample.
  bool reads_parts() const;
  /// Why no conversation can be written; empty: it can.
  const std::string& problem() const;

  /// Fails if the template refuses the conversation, or cannot write it.
  expected<written_chat> write(std::span<const chat_message> messages, const chat_options& how,
                               const std::tm& now) const;
  expected<written_chat> write(std::span<const chat_message> messages, bool asks_for_answer,
                               const std::tm& now) const {
    return write(messages, chat_options{.asks_for_answer = asks_for_answer}, now);
  }
  /// The prompt that the assistant's next answer continues, at the present time.
  expected<std::vector<std::uint32_t>> prompt(const tokenizer& t,
                                              std::span<const chat_message> messages,
                                              const chat_options& how = {}) const;
  /// The tokens that end an answer, besides the model's own: the tokenizer's end of text, and what
  /// the template writes behind an answer.
  const std::vector<std::uint32_t>& ends() const;

 private:
  struct content;
  explicit chat_template(std::shared_ptr<const content> c) : content_{std::move(c)} {}
  static chat_template own(const tokenizer& t, const token_names& names);
  static void find_ends(content& c, const tokenizer& t);
  static void find_form(content& c);
  expected<written_chat> written(std::span<const chat_message> messages, const chat_options& how,
                                 const std::tm& now) const;

  std::shared_ptr<const content> content_;
};

}  // namespace troupe::gpu
