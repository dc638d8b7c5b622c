#include <algorithm>
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/program.hpp"
#include "runtime/host/wait.hpp"
#include "runtime/process/process.hpp"
#include "web/raw_client.hpp"

using namespace troupe;
using namespace troupe::test;
using Catch::Contains;
using nlohmann::json;

// A real `troupe serve` of folders that ask for more than it does.

namespace {

/// A `troupe serve` of a folder `m` with these files, which ends with this.
class folder_server {
 public:
  explicit folder_server(const std::map<std::string, std::string>& files) {
    const auto model = dir_ / "m";
    std::filesystem::create_directory(model);
    for (const auto& [name, text] : files) dir_.write("m/" + name, text);
    auto started = runtime::process::start(
        {{TROUPE_PROGRAM, "serve", model, "--port", "0", "--random-weights", "7", "--json"},
         {},
         {},
         dir_ / "out"});
    REQUIRE(started);
    process_ = std::move(*started);
    constexpr double long_s = 60;
    const auto document = [&] {
      return output().substr(std::min(output().find('{'), output().size()));
    };
    REQUIRE(
        runtime::wait_until([&] { return json::accept(document()) || process_->poll(); }, long_s));
    INFO(output());
    REQUIRE(json::accept(document()));
    start = json::parse(document());
  }

  raw_answer complete(const json& prompt) const {
    const auto url = start.at("url").get<std::string>();
    raw_client c{static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)))};
    c.send(post("/v1/completions",
                json{{"model", "m"}, {"prompt", prompt}, {"max_tokens", 2}}.dump()));
    return c.answer();
  }
  /// Notices, then the document.
  std::string output() const {
    std::ifstream in{dir_ / "out", std::ios::binary};
    return {std::istreambuf_iterator<char>{in}, {}};
  }

  json start;  // the document that it prints once it answers

 private:
  const scratch dir_;
  std::unique_ptr<runtime::process> process_;
};

std::string llama(const std::string& keys) {
  return R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": true, )" +
         keys + "}";
}

}  // namespace

TEST_CASE("the start names each setting of generation_config.json that is not applied") {
  const folder_server s{
      {{"config.json", llama("\"vocab_size\": 256, \"eos_token_id\": 50256, \"loss\": NaN")},
       {"generation_config.json",
        R"({"forced_eos_token_id": 66, "suppress_tokens": [65], "temperature": 0.5})"}}};
  for (const std::string key : {"forced_eos_token_id", "suppress_tokens"})
    CHECK_THAT(s.output(), Contains("generation_config.json: " + key + " is not applied"));
  CHECK(s.output().find("temperature") == std::string::npos);
  CHECK(s.output().find("no tokenizer") == std::string::npos);
  CHECK(s.complete("abc").status == 200);
}

TEST_CASE("linear scaling multiplies the context that is served") {
  const folder_server s{
      {{"config.json",
        llama("\"vocab_size\": 256, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 4.0}")}}};
  CHECK(s.start.at("context") == 256);
  CHECK(s.complete(std::string(200, 'a')).status == 200);
}

TEST_CASE(
    "the start says that a tokenizer.model alone is not read, and texts are refused with it") {
  const folder_server s{{{"config.json", llama("\"vocab_size\": 300")}, {"tokenizer.model", "x"}}};
  CHECK_THAT(s.output(), Contains("only tokenizer.model, which is not read"));
  const auto refused = s.complete("abc");
  CHECK(refused.status == 400);
  CHECK_THAT(refused.document().at("error").at("message").get<std::string>(),
             Contains("only tokenizer.model") && Contains("give 'prompt' as token numbers"));
  CHECK(s.complete({1, 2, 299}).status == 200);
}
