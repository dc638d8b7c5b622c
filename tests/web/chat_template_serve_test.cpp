#include <algorithm>
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/program.hpp"
#include "runtime/host/wait.hpp"
#include "runtime/process/process.hpp"
#include "web/raw_client.hpp"

using namespace troupe;
using namespace troupe::test;
using Catch::Contains;
using nlohmann::json;

// A real `troupe serve` of a small model of bytes with random weights and a chat template.

namespace {

/// A `troupe serve` that ends with this.
class chat_server {
 public:
  explicit chat_server(const std::string& source) {
    const auto model = dir_ / "m";
    std::filesystem::create_directory(model);
    dir_.write("m/config.json", R"({"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4,
      "n_positions": 192, "vocab_size": 256})");
    dir_.write("m/chat_template.jinja", source);
    auto started = runtime::process::start(
        {{TROUPE_PROGRAM, "serve", model, "--port", "0", "--random-weights", "7", "--json"},
         {},
         {},
         dir_ / "out"});
    REQUIRE(started);
    process_ = std::move(*started);
    constexpr double long_s = 60;
    REQUIRE(runtime::wait_until([&] { return json::accept(said()) || process_->poll(); }, long_s));
    INFO(said());
    REQUIRE(json::accept(said()));
    start = json::parse(said());
    const auto url = start.at("url").get<std::string>();
    port_ = static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
  }

  raw_answer chat(const json& messages) const {
    return ask("/v1/chat/completions", {{"messages", messages}});
  }
  raw_answer ask(const std::string& path, json body) const {
    body["model"] = "m";
    body["max_tokens"] = 1;
    raw_client c{port_};
    c.send(post(path, body.dump()));
    return c.answer();
  }

  json start;  // the line that it prints once it answers

 private:
  /// The document, without notes before it.
  std::string said() const {
    std::ifstream in{dir_ / "out", std::ios::binary};
    const std::string all{std::istreambuf_iterator<char>{in}, {}};
    return all.substr(std::min(all.find('{'), all.size()));
  }

  const scratch dir_;
  std::unique_ptr<runtime::process> process_;
  std::uint16_t port_ = 0;
};

json user(const std::string& text) {
  return {{"role", "user"}, {"content", text}};
}

}  // namespace

TEST_CASE("a served chat's prompt is what the folder's template writes") {
  const chat_server s{
      "{% if messages[0].content == 'no' %}{{ raise_exception('not that') }}{% endif %}"
      "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}{% endfor %}"};
  CHECK(s.start.at("chat_format") == "template");
  CHECK(s.start.at("chat_problem").is_null());
  const auto a = s.chat({user("  Hi "), {{"role", "assistant"}, {"content", "Yes"}}, user("So")});
  REQUIRE(a.status == 200);
  CHECK(a.document().at("usage").at("prompt_tokens") ==
        std::string{"<user>Hi<assistant>Yes<user>So"}.size());
  const auto refused = s.chat(json::array({user("no")}));
  CHECK(refused.status == 400);
  CHECK_THAT(refused.document().at("error").at("message").get<std::string>(),
             Contains("chat_template.jinja refuses the conversation: not that"));
  CHECK(refused.document().at("error").at("param") == "messages");
}

TEST_CASE("a template that is not supported is said at the start, and refuses chats alone") {
  const chat_server s{"\n{{ messages | xmlattr }}"};
  const std::string why = "chat_template.jinja line 2: the filter 'xmlattr' is not supported";
  CHECK(s.start.at("chat_format").is_null());
  CHECK_THAT(s.start.at("chat_problem").get<std::string>(), Contains(why));
  const auto refused = s.chat(json::array({user("Hi")}));
  CHECK(refused.status == 400);
  CHECK_THAT(refused.document().at("error").at("message").get<std::string>(), Contains(why));
  CHECK(s.ask("/v1/completions", {{"prompt", "Hi"}}).status == 200);
}

TEST_CASE("keys of a chat reach the template of a real server, and its parts their texts") {
  const chat_server s{
      "{% for m in messages %}<{{ m.role }}{% if m.name is defined %} {{ m.name }}{% endif %}>"
      "{% for p in m['content'] %}{% if p['type'] == 'text' %}{{ p['text'] }}{% endif %}{% endfor "
      "%}"
      "{% if m.reasoning_content is defined %}({{ m.reasoning_content }}){% endif %}"
      "{% for c in m.tool_calls %}[{{ c.function.name }}]{% endfor %}</>{% endfor %}"
      "{% if add_generation_prompt %}<assistant>"
      "{% if enable_thinking is defined and not enable_thinking %}<no>{% endif %}{% endif %}"};
  REQUIRE(s.start.at("chat_problem").is_null());
  const auto written = [&](json body) {
    const auto a = s.ask("/tokenize", body);
    INFO(a.body);
    REQUIRE(a.status == 200);
    std::string text;
    for (const auto t : a.document().at("tokens").get<std::vector<int>>())
      text += static_cast<char>(t);
    // Its answer's prompt has as many.
    const auto chat = s.ask("/v1/chat/completions", body);
    CHECK(chat.document().at("usage").at("prompt_tokens") == text.size());
    return text;
  };
  const json said{{"role", "assistant"}, {"content", "It is"}};
  const json both{{"messages", {user("Hi"), said}}};
  const auto with = [&](const json& more) {
    auto body = both;
    body.update(more);
    return written(body);
  };
  const std::string turns = "<user>Hi</><assistant>It is";
  CHECK(written(both) == turns + "</><assistant>");
  CHECK(with({{"add_generation_prompt", false}}) == turns + "</>");
  CHECK(with({{"continue_final_message", true}}) == turns);
  CHECK(with({{"chat_template_kwargs", {{"enable_thinking", false}}}}) ==
        turns + "</><assistant><no>");
  CHECK(with({{"chat_template_kwargs", {{"enable_thinking", true}}}}) == turns + "</><assistant>");
  const json parts{{{"type", "text"}, {"text", "Hi "}}, {{"type", "text"}, {"text", "you"}}};
  CHECK(written({{"messages",
                  {{{"role", "user"}, {"content", parts}, {"name", "Ann"}},
                   {{"role", "assistant"},
                    {"content", ""},
                    {"reasoning_content", "hm"},
                    {"tool_calls", {{{"type", "function"}, {"function", {{"name", "f"}}}}}}},
                   {{"role", "tool"}, {"content", "4"}}}}}) ==
        "<user Ann>Hi you</><assistant>(hm)[f]</><tool>4</><assistant>");
}
