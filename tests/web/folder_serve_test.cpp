#include <algorithm>
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/program.hpp"
#include "harness/sanitized.hpp"
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
  explicit folder_server(const std::map<std::string, std::string>& files,
                         const std::vector<std::string>& more = {},
                         const std::string& address_space_kb = "unlimited") {
    const auto model = dir_ / "m";
    std::filesystem::create_directory(model);
    for (const auto& [name, text] : files) dir_.write("m/" + name, text);
    std::vector<std::string> command{"sh",
                                     "-c",
                                     "ulimit -v " + address_space_kb + "; exec \"$@\"",
                                     "sh",
                                     TROUPE_PROGRAM,
                                     "serve",
                                     model,
                                     "--port",
                                     "0",
                                     "--random-weights",
                                     "7",
                                     "--json"};
    command.insert(command.end(), more.begin(), more.end());
    auto started = runtime::process::start({command, {}, {}, dir_ / "out"});
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

  std::uint16_t port() const {
    const auto url = start.at("url").get<std::string>();
    return static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
  }
  raw_answer ask(const std::string& request) const {
    raw_client c{port()};
    c.send(request);
    return c.answer();
  }
  raw_answer complete(const json& prompt) const {
    return ask(post("/v1/completions",
                    json{{"model", "m"}, {"prompt", prompt}, {"max_tokens", 2}}.dump()));
  }
  /// The memory that it has had at most.
  std::uint64_t resident_bytes() const {
    std::ifstream in{"/proc/" + std::to_string(start.at("pid").get<int>()) + "/status"};
    const std::string name = "VmHWM:";
    for (std::string line; std::getline(in, line);)
      if (line.starts_with(name)) return 1024 * std::stoull(line.substr(name.size()));
    return 0;
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

TEST_CASE("of a context of 131,072 positions a chat takes the memory that its tokens take") {
  if (harness::sanitized) return;  // they need more address space
  // A cache of 8.6 GB, beside 21 MB of weights, on a host of 3 GB.
  const folder_server s{{{"config.json", R"({"model_type": "llama", "hidden_size": 64,
    "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
    "intermediate_size": 64, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
    "vocab_size": 256, "tie_word_embeddings": true})"}},
                        {},
                        "3000000"};
  const auto before = s.resident_bytes();
  REQUIRE(before > 20'000'000);
  raw_client chat{s.port()};
  const json hi{{"role", "user"}, {"content", "hi"}};
  chat.send(post(
      "/v1/chat/completions",
      json{{"model", "m"}, {"messages", json::array({hi})}, {"stream", true}, {"ignore_eos", true}}
          .dump()));
  const auto generated = [&] {
    const std::string name = "\ntroupe_generation_tokens_total ";
    const auto text = s.ask(get("/metrics")).body;
    const auto at = text.find(name);
    return at == std::string::npos ? 0 : std::stod(text.substr(at + name.size()));
  };
  REQUIRE(runtime::wait_until([&] { return generated() >= 50; }, 60, 0.02));
  CHECK(s.complete("hi").status == 200);  // beside it
  CHECK(s.resident_bytes() - before < (std::uint64_t{64} << 20));
}

TEST_CASE("a batch of 1.15 MB is read, unless the start allows less") {
  const std::map<std::string, std::string> files{
      {"config.json", R"({"model_type": "llama", "hidden_size": 8, "num_hidden_layers": 1,
    "num_attention_heads": 1, "intermediate_size": 8, "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5, "vocab_size": 128000, "tie_word_embeddings": true})"}};
  std::vector<std::vector<int>> prompts(32, std::vector<int>(4500));
  for (int i = 0; i < 32; ++i)
    for (int k = 0; k < 4500; ++k) prompts[i][k] = 100'000 + (7 * i + k) % 20'000;
  const folder_server s{files};
  // Nothing is computed.
  const auto body =
      json{{"model", "m"}, {"prompt", prompts}, {"max_tokens", 0}, {"echo", true}}.dump();
  REQUIRE(body.size() > 1'000'000);
  const auto read = s.ask(post("/v1/completions", body));
  CHECK(read.status == 200);
  CHECK(read.document().at("choices").size() == 32);
  CHECK(read.document().at("usage").at("prompt_tokens") == 32 * 4500);
  const folder_server small{files, {"--max-body-mb", "1"}};
  CHECK(small
            .ask("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                 "application/json\r\nContent-Length: 1000001\r\n\r\n")
            .status == 413);
}
