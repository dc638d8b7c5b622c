#include <catch2/catch.hpp>

#include "text/small_tokenizers.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;
using Catch::Contains;

namespace {

using folder_files = std::map<std::string, std::string>;

std::string prompt_of(const folder_files& all, const std::string& text) {
  return shown_tokens(loaded(tokenizer_in(all))->encode_prompt(text));
}

std::string folder_refusal(const folder_files& all) {
  const auto t = tokenizer_in(all);
  return t ? "" : t.error().text;
}

/// A folder with vocab.json and merges.txt of bytes, "<|endoftext|>" 256, "12" 257 and "'S" 258.
folder_files slow_folder(const folder_files& others) {
  folder_files all{
      {"vocab.json", bytes_vocabulary(R"(, "<|endoftext|>": 256, "12": 257, "'S": 258)")},
      {"merges.txt", "#version: 0.2\n1 2\n' S\n"}};
  all.insert(others.begin(), others.end());
  return all;
}

const std::string framed =
    R"(, "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id":)"
    R"( "<s>"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"<s>": {"ids": [300]}}})";

/// A tokenizer.json with <s> 300 and </s> 301, of which post_processor puts the first before texts.
std::string with_ends(bool processed) {
  return bytes_tokenizer(added_json(300, "<s>", "s") + ", " + added_json(301, "</s>", "s"),
                         processed ? framed : "");
}

std::string config_prompt(const std::string& config, bool processed) {
  return prompt_of({{"tokenizer.json", with_ends(processed)}, {"tokenizer_config.json", config}},
                   "a");
}

}  // namespace

TEST_CASE("added_tokens.json beside vocab.json has tokens, special by special_tokens_map.json") {
  const auto t = loaded(tokenizer_in(slow_folder(
      {{"added_tokens.json", R"({"<|user|>": 259, "<note>": 260})"},
       {"special_tokens_map.json", R"({"additional_special_tokens": ["<|user|>"]})"}})));
  CHECK(shown_tokens(t->encode("<|user|>a<note>b<|endoftext|>")) == "{259}a{260}b{256}");
  CHECK(t->special("<|user|>") == 259u);
  CHECK(t->special("<|endoftext|>") == 256u);
  CHECK_FALSE(t->special("<note>"));
  CHECK(t->text_of(260, false) == "<note>");
}

TEST_CASE("added_tokens_decoder has tokens and their flags, with vocab.json and tokenizer.json") {
  const std::string decoder =
      R"({"tokenizer_class": "GPT2Tokenizer", "added_tokens_decoder": {"259": {"content":)"
      R"( "<|user|>", "special": true, "rstrip": true},)"
      R"( "260": {"content": "<note>", "lstrip": true}}})";
  CHECK(prompt_of(slow_folder({{"tokenizer_config.json", decoder}}), "a <|user|> b <note> c") ==
        "a {259}b{260} c");
  CHECK(prompt_of({{"tokenizer.json", bytes_tokenizer(added_json(259, "<|user|>", ""))},
                   {"tokenizer_config.json", decoder}},
                  "a <|user|> b <note> c") == "a {259}b{260} c");
}

TEST_CASE("tokens that a folder names are special ones, whichever file names them") {
  const std::string tokens =
      bytes_tokenizer(added_json(300, "<x>", "") + ", " + added_json(301, "<y>", "s"));
  for (const auto& [name, text] : folder_files{
           {"tokenizer_config.json", R"({"eos_token": "<x>"})"},
           {"special_tokens_map.json", R"({"eos_token": {"content": "<x>", "lstrip": false}})"}}) {
    const auto t = loaded(tokenizer_in({{"tokenizer.json", tokens}, {name, text}}));
    CHECK(t->special("<x>") == 300u);
    CHECK(t->encode("<x>", std::vector<text_range>{{0, 3}}).size() == 3);
  }
  // A name without a number gets the next one, as in transformers.
  const auto t =
      loaded(tokenizer_in({{"tokenizer.json", tokens},
                           {"tokenizer_config.json", R"({"pad_token": "<pad>",)"
                                                     R"( "bos_token": "", "eos_token": null})"}}));
  CHECK(t->encode("<pad>") == token_list{302});
}

TEST_CASE("files of a folder that contradict one another are refused") {
  const auto file = bytes_tokenizer(added_json(300, "<x>", "s"));
  CHECK_THAT(folder_refusal({{"tokenizer.json", file}, {"added_tokens.json", R"({"<x>": 301})"}}),
             Contains("added_tokens.json: token '<x>' has the number 301, in the vocabulary 300"));
  CHECK_THAT(folder_refusal({{"tokenizer.json", file}, {"added_tokens.json", R"({"<y>": 300})"}}),
             Contains("added_tokens.json: number 300 is the token '<y>', in the vocabulary '<x>'"));
  CHECK_THAT(folder_refusal({{"tokenizer.json", file},
                             {"tokenizer_config.json",
                              R"({"added_tokens_decoder": {"301": {"content": "<x>"}}})"}}),
             Contains("tokenizer_config.json: token '<x>' has the number 301"));
  CHECK_THAT(
      folder_refusal({{"tokenizer.json", bytes_tokenizer(added_json(300, "a", ""))}}),
      Contains("tokenizer.json: added_tokens: 'a' has the number 300, the vocabulary has 97"));
}

TEST_CASE("add_bos_token and add_eos_token decide about the tokens around a prompt") {
  CHECK(config_prompt("{}", true) == "{300}a");
  CHECK(config_prompt("{}", false) == "a");
  const auto with = [](const std::string& name, const std::string& value) {
    return R"({"tokenizer_class": ")" + name + R"(", "bos_token": "<s>", "eos_token": "</s>")" +
           value + "}";
  };
  for (const bool processed : {true, false}) {
    for (const auto* name : {"LlamaTokenizer", "LlamaTokenizerFast", "PreTrainedTokenizerFast"}) {
      CHECK(config_prompt(with(name, R"(, "add_bos_token": true)"), processed) == "{300}a");
      CHECK(config_prompt(with(name, R"(, "add_bos_token": false)"), processed) == "a");
      CHECK(config_prompt(with(name, R"(, "add_bos_token": true, "add_eos_token": true)"),
                          processed) == "{300}a{301}");
    }
    CHECK(config_prompt(with("LlamaTokenizer", ""), processed) == "{300}a");
  }
  CHECK(config_prompt(with("PreTrainedTokenizerFast", ""), false) == "a");
  CHECK(config_prompt(R"({"tokenizer_class": "LlamaTokenizer"})", false) == "{300}a");
  // Qwen2 has no such token, and its file has false.
  CHECK(config_prompt(R"({"add_bos_token": false, "bos_token": null})", false) == "a");
}

TEST_CASE("Qwen2's vocab.json splits text and composes characters as Qwen2 does") {
  const std::string accent = "12'Se\u0301";
  CHECK(prompt_of(slow_folder({}), accent) == "{257}'Se\u0301");
  CHECK(prompt_of(slow_folder({{"config.json", R"({"model_type": "gpt2"})"}}), accent) ==
        "{257}'Se\u0301");
  const std::string qwen = "12{258}\u00e9";  // each digit alone, 's in any case, one character
  CHECK(prompt_of(slow_folder({{"config.json", R"({"model_type": "qwen2"})"}}), accent) == qwen);
  for (const auto* name : {"Qwen2Tokenizer", "Qwen2TokenizerFast"})
    CHECK(prompt_of(slow_folder({{"tokenizer_config.json",
                                  std::string{R"({"tokenizer_class": ")"} + name + "\"}"}}),
                    accent) == qwen);
  CHECK(
      prompt_of(slow_folder({{"config.json", R"({"model_type": "llama"})"},
                             {"tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer"})"}}),
                accent) == "{257}'Se\u0301");
}

TEST_CASE("add_prefix_space of a folder puts a space before words") {
  CHECK(prompt_of(slow_folder({{"tokenizer_config.json", R"({"add_prefix_space": true})"}}), "a") ==
        " a");
  CHECK(prompt_of(slow_folder({{"tokenizer_config.json", R"({"add_prefix_space": false})"}}),
                  "a") == "a");
}

TEST_CASE("what a folder says about tokens and is not done is refused by file, key and value") {
  const auto file = bytes_tokenizer("");
  const auto with = [&](const std::string& config) {
    return folder_refusal({{"tokenizer.json", file}, {"tokenizer_config.json", config}});
  };
  CHECK_THAT(with(R"({"do_lower_case": true})"),
             Contains("tokenizer_config.json: do_lower_case is true, which is not supported"));
  CHECK_THAT(with(R"({"add_bos_token": "yes"})"),
             Contains("add_bos_token is \"yes\", which is not supported"));
  CHECK_THAT(
      with(R"({"add_bos_token": true})"),
      Contains("tokenizer_config.json: add_bos_token is true, but bos_token '' is no token"));
  CHECK_THAT(with(R"({"added_tokens_decoder": {"x": {"content": "<x>"}}})"),
             Contains("tokenizer_config.json: added_tokens_decoder: a number is \"x\""));
  CHECK_THAT(with(R"({"added_tokens_decoder": {"300": {}}})"), Contains("tokenizer_config.json"));
  CHECK_THAT(with("[]"), Contains("tokenizer_config.json"));
  CHECK_THAT(folder_refusal(slow_folder(
                 {{"tokenizer_config.json", R"({"tokenizer_class": "BartTokenizer"})"}})),
             Contains("tokenizer_config.json: tokenizer_class 'BartTokenizer' is not supported"));
  CHECK_THAT(folder_refusal(slow_folder({{"config.json", R"({"model_type": "llama"})"}})),
             Contains("config.json: model_type 'llama' does not say how vocab.json splits text"));
  // Keys that change no tokens are passed over.
  CHECK(
      with(
          R"({"do_lower_case": false, "model_max_length": 5, "clean_up_tokenization_spaces": true,)"
          R"( "legacy": true, "padding_side": "left", "sp_model_kwargs": {}, "errors": "replace",)"
          R"( "chat_template": "x", "tokenizer_class": "PreTrainedTokenizerFast"})") == "");
}

TEST_CASE("post-processors put their tokens around those of the ones before") {
  const auto part = [](const std::string& name, int id) {
    return R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": ")" + name +
           R"("}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": ")" + name +
           R"("}}], "special_tokens": {")" + name + R"(": {"ids": [)" + std::to_string(id) + "]}}}";
  };
  const auto sequence = R"(, "post_processor": {"type": "Sequence", "processors": [)" +
                        part("<a>", 300) + ", " + part("<b>", 301) + "]}";
  CHECK(prompt_of({{"tokenizer.json", bytes_tokenizer("", sequence)}}, "x") ==
        "{301}{300}x{300}{301}");
  const std::string twice =
      R"(, "post_processor": {"type": "TemplateProcessing", "special_tokens": {}, "single": [)"
      R"({"Sequence": {"id": "A"}}, {"Sequence": {"id": "A"}}]})";
  CHECK_THAT(folder_refusal({{"tokenizer.json", bytes_tokenizer("", twice)}}),
             Contains("tokenizer.json: post_processor: a template without one text"));
}
