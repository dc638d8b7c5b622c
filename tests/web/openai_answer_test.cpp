#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "web/openai/openai.hpp"

using namespace troupe::web::openai;
using nlohmann::json;

// The shapes of answers, as OpenAI's clients read them.

namespace {

const answer_head completion_head{"cmpl-1", "m", 12, false};
const answer_head chat_head{"chatcmpl-1", "m", 12, true};

json event_document(const std::string& event) {
  REQUIRE(event.starts_with("data: "));
  REQUIRE(event.ends_with("\n\n"));
  return json::parse(event.substr(6));
}

choice one_choice() {
  choice c;
  c.index = 1;
  c.text = "h\xC3\xA9";
  c.finish_reason = "stop";
  c.tokens = {{{{1, "h", -0.5}, {{1, "h", -0.5}, {2, "x", -1.5}}, false},
               {{3, "\xC3", -1}, {}, false},
               {{4, "\xA9", -2}, {}, false}}};
  return c;
}

}  // namespace

TEST_CASE("an error has message, type, param and code") {
  const auto d = json::parse(to_json(problem{400, "no \xff", "t", "", "c"}));
  CHECK(d ==
        json{{"error",
              {{"message", "no \xEF\xBF\xBD"}, {"type", "t"}, {"param", nullptr}, {"code", "c"}}}});
}

TEST_CASE("a whole completion has its choices, log probabilities and usage") {
  const auto d = json::parse(to_json(completion_head, {one_choice()}, {3, 4, 2}));
  CHECK(d.at("object") == "text_completion");
  CHECK(d.at("created") == 12);
  CHECK(d.at("usage") == json{{"prompt_tokens", 3},
                              {"completion_tokens", 4},
                              {"total_tokens", 7},
                              {"prompt_tokens_details", {{"cached_tokens", 2}}}});
  const auto& c = d.at("choices").at(0);
  CHECK(c.at("index") == 1);
  CHECK(c.at("text") == "h\xC3\xA9");
  CHECK(c.at("finish_reason") == "stop");
  CHECK(c.at("logprobs").at("token_logprobs") == json{-0.5, -1, -2});
  CHECK(c.at("logprobs").at("top_logprobs").at(0) == json{{"h", -0.5}, {"x", -1.5}});
  CHECK(c.at("logprobs").at("text_offset") == json{0, 1, 2});
}

TEST_CASE(
    "a chat response that is not streamed has the assistant's message and each token's bytes") {
  const auto d = json::parse(to_json(chat_head, {one_choice()}, {3, 4, 2}));
  CHECK(d.at("object") == "chat.completion");
  const auto& c = d.at("choices").at(0);
  CHECK(c.at("message").at("role") == "assistant");
  CHECK(c.at("message").at("content") == "h\xC3\xA9");
  const auto& tokens = c.at("logprobs").at("content");
  CHECK(tokens.at(1).at("bytes") == json::array({0xC3}));
  CHECK(tokens.at(0).at("top_logprobs").at(1).at("token") == "x");
}

TEST_CASE("a stream's events are chunks with a delta, and the usage comes last if asked for") {
  auto c = one_choice();
  c.tokens.reset();
  c.finish_reason = {};
  const auto role = event_document(role_event(chat_head, 1, false));
  CHECK(role.at("object") == "chat.completion.chunk");
  CHECK(role.at("choices").at(0).at("delta").at("role") == "assistant");
  CHECK_FALSE(role.contains("usage"));
  const auto piece = event_document(choice_event(chat_head, c, true));
  CHECK(piece.at("choices").at(0).at("delta") == json{{"content", "h\xC3\xA9"}});
  CHECK(piece.at("choices").at(0).at("finish_reason").is_null());
  CHECK(piece.at("usage").is_null());
  c.text.clear();
  c.finish_reason = "length";
  const auto last = event_document(choice_event(chat_head, c, false));
  CHECK(last.at("choices").at(0).at("delta") == json::object());
  CHECK(last.at("choices").at(0).at("finish_reason") == "length");
  const auto usage = event_document(usage_event(chat_head, {3, 4}));
  CHECK(usage.at("choices") == json::array());
  CHECK(usage.at("usage").at("total_tokens") == 7);
  CHECK(event_document(choice_event(completion_head, one_choice(), false)).at("object") ==
        "text_completion");
}

TEST_CASE("a list of models has the model") {
  const auto one = json::parse(model_json({"m", 128}, 5));
  CHECK(json::parse(models_json({{"m", 128}}, 5)).at("data").at(0) == one);
  CHECK(one.at("max_model_len") == 128);
  CHECK(one.at("root") == "m");
  CHECK(one.at("parent").is_null());
  const auto adapter = json::parse(model_json({"a", 128, "m"}, 5));
  CHECK(adapter.at("root") == "m");
  CHECK(adapter.at("parent") == "m");
}

TEST_CASE("a choice says where it was computed and which tokens it has, if that is known") {
  const answer_head h{"id", "m", 5, false};
  choice c;
  c.finish_reason = "stop";
  CHECK_FALSE(json::parse(to_json(h, {c}, {}))["choices"][0].contains("where"));
  c.place.emplace();
  c.place->prefill.bubbles = true, c.place->prefill.guests = 2, c.place->prefill.yields = 3;
  c.place->decoder = "n-1", c.place->attempts = 2;
  c.token_numbers = {7, 8};
  const auto d = json::parse(to_json(h, {c}, {}))["choices"][0];
  CHECK(d.at("where") == json{{"prefill", "bubbles"},
                              {"guests", 2},
                              {"yields", 3},
                              {"declined", nullptr},
                              {"decoder", "n-1"},
                              {"attempts", 2}});
  CHECK(d.at("token_ids") == json{7, 8});
}

TEST_CASE("a troupe::reason for which nothing is generated becomes a status") {
  using kind = troupe::reason::kind;
  CHECK(problem_of({kind::invalid, "x"}).status == 400);
  CHECK(problem_of({kind::insufficient, "x"}).status == 429);
  CHECK(problem_of({kind::insufficient, "x"}).code == "rate_limit_exceeded");
  CHECK(problem_of({kind::unavailable, "x"}).status == 503);
  CHECK(problem_of({kind::device_lost, "x"}).status == 503);
  CHECK(problem_of({kind::out_of_memory, "x"}).status == 503);
  CHECK(problem_of({kind::malformed, "x"}).status == 500);
}

TEST_CASE(
    "tokens of the same text, parts of characters and special tokens have keys of their own") {
  choice c;
  c.finish_reason = "length";
  c.tokens = {
      {{{9, "z", -9},
        {{1, "a", -1}, {2, "a", -2}, {3, "\xE2\x98", -3}, {4, "\x97", -4}, {5, "<|end|>", -5}},
        false},
       {{3, "\xE2\x98", -1}, {{3, "\xE2\x98", -1}}, false},
       {{7, "q", -2}, {}, false}}};
  const auto l = json::parse(to_json(completion_head, {c}, {3, 4}))["choices"][0]["logprobs"];
  CHECK(l["top_logprobs"][0] == json{{"a", -1},
                                     {"token_id:2", -2},
                                     {"bytes:\\xe2\\x98", -3},
                                     {"bytes:\\x97", -4},
                                     {"<|end|>", -5},
                                     {"z", -9}});
  CHECK(l["top_logprobs"][1] == json{{"bytes:\\xe2\\x98", -1}});
  CHECK(l["top_logprobs"][2] == json{{"q", -2}});  // 'logprobs' 0: the chosen one alone
}
