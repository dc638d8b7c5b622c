#include <catch2/catch.hpp>

#include "cli/program.hpp"

using namespace troupe::test;
using Catch::Contains;

// `troupe infer --alone` on random weights; what it computes is tested in tests/gpu/inference.

namespace {

/// A model folder without weights: a vocabulary of 256 is bytes.
std::string model_in(const scratch& dir, const std::string& vocabulary = "256") {
  dir.write("config.json", R"({"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4,
    "n_positions": 192, "vocab_size": )" +
                               vocabulary + "}");
  return dir.path();
}

std::vector<std::string> infer(const std::string& model, std::vector<std::string> more) {
  more.insert(more.begin(), {"infer", "--alone", "--model", model, "--random-weights", "7"});
  return more;
}

void refused(const std::vector<std::string>& words, const std::string& what) {
  const auto r = troupe::test::troupe(words);
  INFO(r.err);
  CHECK(r.status == 2);
  CHECK(r.out.empty());
  CHECK_THAT(r.err, Contains(what));
  CHECK(r.err.find('\n') == r.err.size() - 1);
}

}  // namespace

TEST_CASE("infer completes a text, and its document has the tokens and where they were computed") {
  const scratch dir;
  const auto model = model_in(dir);
  const auto r = troupe::test::troupe(infer(model, {"To be", "--max-tokens", "9", "--json"}));
  INFO(r.err);
  REQUIRE(r.status == 0);
  const auto d = r.document();
  CHECK(d.at("tokens").size() == 9);
  CHECK(d.at("logprobs").size() == 9);
  CHECK(d.at("prompt_tokens") == 5);
  CHECK(d.at("completion_tokens") == 9);
  CHECK(d.at("finish_reason") == "length");
  CHECK(d.at("ttft_ms").get<double>() > 0);
  CHECK(d.at("where").at("chunks") == 1);
  CHECK(d.at("where").at("steps") == 4);
  const auto plain = troupe::test::troupe(infer(model, {"To be", "--max-tokens", "9"}));
  CHECK(plain.out == d.at("text").get<std::string>() + "\n");
  CHECK_THAT(plain.err, Contains("5 prompt tokens, 9 generated, finish reason length"));
}

TEST_CASE("infer gives the same tokens for a text and its tokens, and for any chunk") {
  const scratch dir;
  const auto model = model_in(dir);
  const std::string text(150, 'x');
  std::string numbers = "120";
  for (int i = 1; i < 150; ++i) numbers += ",120";
  const std::vector<std::string> sampled{"--temperature", "0.9", "--seed", "4", "--json"};
  const auto run = [&](std::vector<std::string> words) {
    words.insert(words.end(), sampled.begin(), sampled.end());
    const auto d = troupe::test::troupe(infer(model, words)).document();
    return std::pair{d.at("tokens"), d.at("logprobs")};
  };
  const auto first = run({text});
  CHECK(run({"--prompt-tokens", numbers}) == first);
  CHECK(run({text, "--chunk", "64"}) == first);
}

TEST_CASE("infer --chat says when it knows no format for the model, and writes plain lines") {
  const scratch dir;
  const auto r =
      troupe::test::troupe(infer(model_in(dir), {"Hi", "--chat", "--max-tokens", "1", "--json"}));
  CHECK(r.status == 0);
  CHECK(r.document().at("chat_format") == "plain");
  CHECK(r.document().at("prompt_tokens") == std::string{"user: Hi\nassistant:"}.size());
  CHECK_THAT(r.err,
             Contains("it has no chat template, and its special tokens are those of no known "
                      "format"));
}

TEST_CASE(
    "infer --chat writes the message by the folder's template, and says what is wrong with it") {
  const scratch dir;
  const auto model = model_in(dir);
  auto words = infer(model, {"Hi", "--chat", "--max-tokens", "1", "--json"});
  dir.write("chat_template.jinja",
            "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}");
  const auto r = troupe::test::troupe(words);
  CHECK(r.status == 0);
  CHECK(r.document().at("chat_format") == "template");
  CHECK(r.document().at("prompt_tokens") == std::string{"<user>Hi"}.size());
  CHECK(r.err.find("no chat template") == std::string::npos);
  words.pop_back();
  dir.write("chat_template.jinja", "\n{{ messages | xmlattr }}");
  refused(words, "chat_template.jinja line 2: the filter 'xmlattr' is not supported");
  dir.write("chat_template.jinja", "{{ raise_exception('not today') }}");
  refused(words, "chat_template.jinja refuses the conversation: not today");
}

TEST_CASE("infer writes the logits of every position") {
  const scratch dir;
  const auto model = model_in(dir);
  const auto file = dir / "logits.safetensors";
  const auto r =
      troupe::test::troupe(infer(model, {"abc", "--max-tokens", "2", "--dump-logits", file}));
  CHECK(r.status == 0);
  CHECK(std::filesystem::file_size(file) > 4 * 256 * sizeof(float));
  CHECK(std::filesystem::file_size(file) < 4 * 256 * sizeof(float) + 200);
}

TEST_CASE("infer refuses what it cannot do with one sentence and exit status 2") {
  const scratch dir;
  const auto model = model_in(dir);
  refused(infer(model, {}), "give either a PROMPT or --prompt-tokens");
  refused(infer(model, {"a", "--prompt-tokens", "1"}), "give either a PROMPT or --prompt-tokens");
  refused(infer(model, {"--chat", "--prompt-tokens", "1"}), "--chat needs a PROMPT");
  refused(infer(model, {"a", "--chunk", "65"}), "--chunk: found 65, expected a multiple of 64");
  refused(infer(model, {"a", "--threads", "0"}), "--threads: found 0, expected 1 to ");
  refused({"infer", "a", "--url", "http://127.0.0.1:1", "--threads", "2"},
          "--dump-logits, --random-weights and --threads need --alone");
  refused(infer(model, {"a", "--stop", ""}), "--stop: found an empty text");
  refused(infer(model, {"a", "--max-tokens", "192"}),
          "1 prompt tokens and 192 new ones are more than the 192 positions");
  refused(infer(model, {"--prompt-tokens", "256"}), "token 256 is beyond the vocabulary of 256");
  refused({"infer", "a", "--alone", "--model", model}, "has no *.safetensors");
  refused({"infer", "a", "--alone", "--model", dir / "gone"}, "gone/config.json");
  const scratch other;
  const auto wordless = model_in(other, "300");
  refused(infer(wordless, {"a"}), "has no tokenizer");
  CHECK(troupe::test::troupe(infer(wordless, {"--prompt-tokens", "299"})).status == 0);
}

TEST_CASE("an error that begins with a server's URL names no file and no line") {
  for (const std::string url : {"http://127.0.0.1:1", "http://localhost:1/v1"}) {
    const auto r = troupe::test::troupe({"infer", "a", "--url", url, "--json"});
    CHECK(r.status != 0);
    const auto d = r.document();
    CHECK_THAT(d.at("error").get<std::string>(), Contains("http://"));
    CHECK_FALSE(d.contains("file"));
    CHECK_FALSE(d.contains("line"));
  }
}
