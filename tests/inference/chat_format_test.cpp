#include "gpu/text/chat_format.hpp"

#include <catch2/catch.hpp>

#include "harness/files.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

namespace {

/// A byte-level tokenizer of printable ASCII and newline, whose number is a character's own, with
/// these special tokens from 200 on.
std::unique_ptr<tokenizer> ascii_with(const std::vector<std::string>& specials) {
  std::string vocabulary = R"("\u010a": 10, "\u0120": 32)", added;
  for (int c = 33; c < 127; ++c) {
    const std::string one(1, static_cast<char>(c));
    vocabulary += ", \"" + (c == '"' || c == '\\' ? "\\" + one : one) + "\": " + std::to_string(c);
  }
  int number = 200;
  for (const auto& s : specials)
    added += std::string{added.empty() ? "" : ", "} + "{\"id\": " + std::to_string(number++) +
             ", \"content\": \"" + s + "\", \"special\": true}";
  const auto file = temporary(
      "chat/tokenizer.json",
      R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "added_tokens": [)" +
          added + R"(], "model": {"vocab": {)" + vocabulary + R"(}, "merges": []}})");
  return loaded(open_tokenizer(file.parent_path(), 300));
}

/// A prompt as text, with special tokens by their place: {0} is the first.
std::string shown_prompt(const tokenizer& t, const std::vector<chat_message>& messages) {
  std::string out;
  const auto format = chat_format_of(t, temporary_folder() / "chat");
  for (const auto token : chat_prompt(t, format, messages))
    out += token >= 200 ? "{" + std::to_string(token - 200) + "}" : t.text_of(token, false);
  return std::string{name_of(format)} + ": " + out;
}

const std::vector<chat_message> hello{{"user", "Hi"}};
const std::vector<chat_message> longer{
    {"system", "Be kind."}, {"user", "Hi"}, {"assistant", "Hello."}, {"user", "So?"}};

}  // namespace

TEST_CASE("special tokens choose the format of a conversation") {
  const auto chatml = ascii_with({"<|im_start|>", "<|im_end|>"});
  CHECK(shown_prompt(*chatml, hello) == "chatml: {0}user\nHi{1}\n{0}assistant\n");
  CHECK(shown_prompt(*chatml, longer) ==
        "chatml: {0}system\nBe kind.{1}\n{0}user\nHi{1}\n{0}assistant\nHello.{1}\n{0}user\nSo?{1}\n"
        "{0}assistant\n");
  const auto llama3 =
      ascii_with({"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"});
  CHECK(shown_prompt(*llama3, hello) == "llama3: {0}{1}user{2}\n\nHi{3}{1}assistant{2}\n\n");
  const auto mistral = ascii_with({"<s>", "</s>", "[INST]", "[/INST]"});
  CHECK(shown_prompt(*mistral, longer) ==
        "instruction: {0}{2} Be kind.\n\nHi {3} Hello.{1}{2} So? {3}");
  CHECK(shown_prompt(*ascii_with({}), longer) ==
        "plain: system: Be kind.\nuser: Hi\nassistant: Hello.\nuser: So?\nassistant:");
}

TEST_CASE("a template that mentions [INST] chooses the format without a special token") {
  const auto t = ascii_with({"<s>", "</s>"});
  temporary("chat/tokenizer_config.json", R"({"chat_template": "{{ bos_token }}[INST] ..."})");
  CHECK(shown_prompt(*t, hello) == "instruction: {0}[INST] Hi [/INST]");
  std::filesystem::remove(temporary_folder() / "chat/tokenizer_config.json");
}

TEST_CASE("names of special tokens in a message are text") {
  const auto t = ascii_with({"<|im_start|>", "<|im_end|>"});
  CHECK(shown_prompt(*t, {{"user", "a<|im_end|>b"}}) ==
        "chatml: {0}user\na<|im_end|>b{1}\n{0}assistant\n");
}

TEST_CASE("an answer ends with the end token of its format") {
  const auto t = ascii_with({"<|im_start|>", "<|im_end|>", "<|eot_id|>", "</s>"});
  CHECK(chat_ends(*t, chat_format::chatml) == std::vector<std::uint32_t>{201});
  CHECK(chat_ends(*t, chat_format::llama3) == std::vector<std::uint32_t>{202});
  CHECK(chat_ends(*t, chat_format::instruction) == std::vector<std::uint32_t>{203});
  CHECK(chat_ends(*ascii_with({}), chat_format::plain).empty());
}
