#include <catch2/catch.hpp>

#include "web/openai/openai.hpp"

using namespace troupe::web::openai;
using Catch::Contains;

// The bodies of POST /v1/completions and /v1/chat/completions.

namespace {

request good(const std::string& body, bool chat = false) {
  const auto r = parse(body, chat);
  INFO(body);
  INFO((r ? std::string{} : r.error().message));
  REQUIRE(r);
  return *r;
}

problem bad(const std::string& body, bool chat = false) {
  const auto r = parse(body, chat);
  INFO(body);
  REQUIRE_FALSE(r);
  CHECK(r.error().status == 400);
  CHECK_FALSE(r.error().message.empty());
  return r.error();
}

/// A completion with these further keys.
std::string with(const std::string& keys) {
  return R"({"model": "m", "prompt": "a", )" + keys + "}";
}
std::string chat_with(const std::string& keys) {
  return R"({"model": "m", "messages": [{"role": "user", "content": "a"}], )" + keys + "}";
}

}  // namespace

TEST_CASE("a completion's parameters are read, and the others have OpenAI's defaults") {
  const auto r = good(with(
      R"("max_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": 3, "seed": 11, "n": 2,
         "stop": ["x", "yy"], "stream": true, "stream_options": {"include_usage": true},
         "logprobs": 4, "user": "me", "unknown": {}, "tools": null)"));
  CHECK(r.model == "m");
  CHECK(std::get<std::string>(r.prompts.at(0)) == "a");
  CHECK(r.max_tokens == 7u);
  CHECK(r.how.temperature == 0.5);
  CHECK(r.how.top_p == 0.9);
  CHECK(r.how.top_k == 3);
  CHECK(r.seed == 11u);
  CHECK(r.n == 2);
  CHECK(r.stops == std::vector<std::string>{"x", "yy"});
  CHECK(r.stream);
  CHECK(r.include_usage);
  CHECK(r.top_logprobs == 4u);
  const auto d = good(R"({"model": "m", "prompt": "a"})");
  CHECK_FALSE(d.how.temperature);
  CHECK_FALSE(d.how.top_p);
  CHECK(d.n == 1);
  CHECK_FALSE(d.stream);
  CHECK_FALSE(d.max_tokens);
  CHECK_FALSE(d.seed);
  CHECK_FALSE(d.top_logprobs);
}

TEST_CASE("a prompt is a text, tokens, or a list of these") {
  using all = std::vector<prompt>;
  const auto of = [](const std::string& p) {
    return good(R"({"model": "m", "prompt": )" + p + "}").prompts;
  };
  CHECK(of(R"("a")") == all{"a"});
  CHECK(of(R"(["a", "b"])") == all{"a", "b"});
  CHECK(of("[1, 2]") == all{tokens{1, 2}});
  CHECK(of("[[1], [2, 3]]") == all{tokens{1}, tokens{2, 3}});
  for (const char* p : {"[]", "[[]]", "3", "[-1]", "[1.5]", "{}", "[4294967296]"})
    CHECK(bad(R"({"model": "m", "prompt": )" + std::string{p} + "}").param == "prompt");
  CHECK(bad(R"({"model": "m"})").param == "prompt");
}

TEST_CASE("messages are texts or lists of text parts, and a developer is the system") {
  const auto r = good(R"({"model": "m", "messages": [
    {"role": "developer", "content": "be short"},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]})",
                      true);
  REQUIRE(r.messages.size() == 2);
  CHECK(r.messages[0].role == "system");
  CHECK(r.messages[1].text == "ab");
  const auto of = [](const std::string& m) {
    return bad(R"({"model": "m", "messages": )" + m + "}", true).param;
  };
  CHECK(of("[]") == "messages");
  CHECK(of("[3]") == "messages[0]");
  CHECK(of(R"([{"role": "function", "content": "a"}])") == "messages[0].role");
  CHECK(of(R"([{"role": 3, "content": "a"}])") == "messages[0].role");
  CHECK(of(R"([{"role": "user"}])") == "messages[0].content");
  CHECK(of(R"([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}])") ==
        "messages[0].content");
}

TEST_CASE("a value of a wrong type or out of range is refused by its name") {
  for (const char* pair :
       {R"("max_tokens": "4")", R"("max_tokens": 1.5)", R"("max_tokens": -1)",
        R"("max_tokens": 99999999999)", R"("max_completion_tokens": [])", R"("temperature": 2.1)",
        R"("temperature": "hot")", R"("top_p": -0.1)", R"("seed": "x")", R"("n": 0)",
        R"("n": 1000)", R"("stop": [""])", R"("stream": 1)", R"("logprobs": 6)",
        R"("logprobs": true)", R"("echo": "yes")", R"("model": 3)"}) {
    const std::string key = std::string{pair}.substr(1, std::string{pair}.find('"', 1) - 1);
    CHECK(bad(with(pair)).param == key);
  }
  CHECK(bad(with(R"("stream_options": {"include_usage": true})")).param == "stream_options");
  good(with(R"("echo": true, "logprobs": 1)"));
  CHECK(bad(chat_with(R"("top_logprobs": 2)"), true).param == "top_logprobs");
  CHECK(bad(chat_with(R"("logprobs": true, "top_logprobs": 21)"), true).param == "top_logprobs");
  CHECK(bad(R"({"model": "m", "prompt": ["a", "b"], "n": 65})").param == "n");
  CHECK(good(R"({"model": "m", "prompt": ["a", "b"], "n": 64})").n == 64);
  CHECK(bad(with(R"("n": 129)")).param == "n");
}

TEST_CASE("a parameter that would change the answer and is not supported is refused by its name") {
  for (const char* pair : {R"("tools": [{}])", R"("suffix": "x")", R"("best_of": 2)",
                           R"("response_format": {"type": "json_object"})",
                           R"("tool_choice": "auto")", R"("modalities": ["text", "audio"])"}) {
    const std::string key = std::string{pair}.substr(1, std::string{pair}.find('"', 1) - 1);
    const auto p = bad(with(pair));
    CHECK(p.param == key);
    CHECK_THAT(p.message, Contains("not supported"));
  }
  good(with(R"("tools": [], "suffix": "", "logit_bias": {}, "best_of": 1, "frequency_penalty": 0,
    "response_format": {"type": "text"}, "tool_choice": "none", "modalities": ["text"])"));
}

TEST_CASE("best_of may be n, and tools may be listed that may not be called") {
  good(with(R"("n": 3, "best_of": 3)"));
  for (const char* pair : {R"("n": 1, "best_of": 2)", R"("n": 3, "best_of": 2)", R"("best_of": 0)",
                           R"("best_of": "1")"})
    CHECK(bad(with(pair)).param == "best_of");
  good(chat_with(R"("tools": [{"type": "function"}], "tool_choice": "none")"), true);
  good(chat_with(R"("functions": [{}], "function_call": "none")"), true);
  CHECK(bad(chat_with(R"("tools": [{}], "tool_choice": "auto")"), true).param == "tools");
}

TEST_CASE("a completion may have no new tokens, and a chat may not") {
  CHECK(good(with(R"("max_tokens": 0, "echo": true, "logprobs": 0)")).max_tokens == 0u);
  CHECK(bad(chat_with(R"("max_tokens": 0)"), true).param == "max_tokens");
}

TEST_CASE("what is no JSON object in UTF-8, or is nested too deeply, is refused") {
  CHECK_THAT(bad("").message, Contains("not JSON"));
  CHECK_THAT(bad("{").message, Contains("not JSON"));
  CHECK_THAT(bad(R"({"model": "m", "prompt": "a)").message, Contains("not JSON"));
  CHECK_THAT(bad(with("\"user\": \"\xff\"")).message, Contains("UTF-8"));
  CHECK_THAT(bad("[1]").message, Contains("not a JSON object"));
  const auto nested = [](std::size_t n) {
    return with("\"user\": " + std::string(n, '[') + std::string(n, ']'));
  };
  good(nested(63));
  CHECK_THAT(bad(nested(64)).message, Contains("deeper than 64"));
  CHECK_THAT(bad(nested(100'000)).message, Contains("deeper than 64"));
  CHECK_THAT(bad(with("\"user\": " + std::string(100'000, '['))).message, Contains("deeper"));
}

TEST_CASE("penalties, biases and the extensions are read, and checked") {
  const auto r = good(with(R"("min_p": 0.1, "frequency_penalty": -2, "presence_penalty": 1.5,
    "logit_bias": {"3": 1, "50256": -100}, "return_token_ids": true, "ignore_eos": true,
    "ttft_ms": 250, "priority": -3)"));
  CHECK(r.how.min_p == 0.1);
  CHECK(r.frequency_penalty == -2);
  CHECK(r.presence_penalty == 1.5);
  REQUIRE(r.bias.size() == 2);
  CHECK(r.bias[0].token + r.bias[1].token == 50259);
  CHECK(r.token_numbers);
  CHECK(r.ignores_end);
  CHECK(r.ttft_s == 0.25);
  CHECK(r.priority == -3);
  for (const char* pair :
       {R"("min_p": 1.5)", R"("frequency_penalty": 2.1)", R"("presence_penalty": "1")",
        R"("logit_bias": {"a": 1})", R"("logit_bias": {"-1": 1})", R"("logit_bias": {"1": 101})",
        R"("logit_bias": [])", R"("ignore_eos": 1)", R"("ttft_ms": -1)", R"("priority": 1.5)",
        R"("priority": 1001)"}) {
    const std::string key = std::string{pair}.substr(1, std::string{pair}.find('"', 1) - 1);
    CHECK(bad(with(pair)).param == key);
  }
}

TEST_CASE("a key of another server that would change the answer is refused by its name") {
  for (const char* pair : {R"("bad_words": ["x"])",
                           R"("allowed_token_ids": [1])",
                           R"("use_beam_search": true)",
                           R"("length_penalty": 0.5)",
                           R"("guided_json": {"type": "object"})",
                           R"("regex": "a+")",
                           R"("skip_special_tokens": false)",
                           R"("include_stop_str_in_output": true)",
                           R"("prompt_logprobs": 1)",
                           R"("truncate_prompt_tokens": 5)",
                           R"("mirostat": 2)",
                           R"("typical_p": 0.5)",
                           R"("grammar": "root ::= a")",
                           R"("repeat_penalty": 1.1)",
                           R"("dry_multiplier": 0.8)",
                           R"("n_predict": 5)",
                           R"("samplers": ["top_k"])",
                           R"("no_repeat_ngram_size": 2)",
                           R"("do_sample": false)",
                           R"("watermark": true)",
                           R"("max_new_tokens": 5)",
                           R"("lora_path": "x")",
                           R"("structured_outputs": {"regex": "a"})",
                           R"("continue_final_message": true)",
                           R"("chat_template_kwargs": {"a": 1})"}) {
    const std::string key = std::string{pair}.substr(1, std::string{pair}.find('"', 1) - 1);
    INFO(pair);
    const auto p = bad(with(pair));
    CHECK(p.param == key);
    CHECK_THAT(p.message, Contains(key));
    good(with("\"" + key + "\": null"));
  }
  CHECK(bad(chat_with(R"("chat_template": "{{ 1 }}")"), true).param == "chat_template");
  CHECK(bad(chat_with(R"("documents": [{}])"), true).param == "documents");
  CHECK(bad(chat_with(R"("echo": true)"), true).param == "echo");
  good(with(R"("bad_words": [], "use_beam_search": false, "length_penalty": 1.0, "mirostat": 0,
    "skip_special_tokens": true, "typical_p": 1, "repeat_penalty": 1.0, "grammar": "",
    "user": "me", "metadata": {"a": "b"}, "store": true, "cache_salt": "x", "id_slot": 3,
    "repeat_last_n": 64, "unknown": [1])"));
  CHECK(bad(with(R"("repeat_last_n": 64, "presence_penalty": 1)")).param == "repeat_last_n");
}

TEST_CASE("keys of other servers that are done are read, and checked") {
  const auto r = good(with(R"("repetition_penalty": 1.3, "stop_token_ids": [3, 4], "top_k": -1,
    "min_tokens": 5, "max_tokens": 9, "add_special_tokens": false,
    "stop": ["a", "b", "c", "d", "e", "f"])"));
  CHECK(r.how.repetition_penalty == 1.3);
  CHECK(r.stop_tokens == tokens{3, 4});
  CHECK(r.how.top_k == 0u);
  CHECK(r.min_tokens == 5);
  CHECK(r.adds_special == false);
  CHECK(r.stops.size() == 6);
  for (const char* pair :
       {R"("repetition_penalty": 0)", R"("repetition_penalty": "1")", R"("stop_token_ids": 3)",
        R"("stop_token_ids": [-1])", R"("top_k": -2)", R"("top_k": -1.0)", R"("min_tokens": -1)",
        R"("max_tokens": 3, "min_tokens": 4)", R"("add_special_tokens": 1)"}) {
    const std::string key = pair;  // its last one
    const auto end = key.rfind("\":");
    const auto begin = key.rfind('"', end - 1) + 1;
    CHECK(bad(with(pair)).param == key.substr(begin, end - begin));
  }
  CHECK(bad(with("\"stop\": [\"" + std::string(1025, 'a') + "\"]")).param == "stop");
}

TEST_CASE("a body of many values is read in proportion to their number, up to a limit") {
  const auto body_of = [](int values) {
    std::string body = R"({"model": "m", "prompt": "a", "ignored": [{})";
    for (int i = 1; i < values; ++i) body += ",{}";
    return body + "]}";
  };
  CHECK(good(body_of(300'000)).prompts.size() == 1);
  CHECK_THAT(bad(body_of(1'000'001)).message, Contains("more than 2000000 values"));
}

TEST_CASE("what a chat's template gets is read in the order in which it was given") {
  const auto r =
      good(R"({"model": "m", "chat_template_kwargs": {"zeta": 1, "alpha": {"b": 1, "a": 2}},
    "messages": [{"role": "user", "content": "a", "name": "Ann"},
      {"role": "assistant", "content": null, "reasoning_content": "hm",
        "tool_calls": [{"type": "function", "id": "1",
          "function": {"name": "f", "arguments": "{\"y\": 1, \"x\": 2}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "4"}]})",
           true);
  CHECK(r.template_names == R"({"zeta":1,"alpha":{"b":1,"a":2}})");
  REQUIRE(r.messages.size() == 3);
  CHECK(r.messages[0].more == R"({"name":"Ann"})");
  CHECK_FALSE(r.messages[1].has_content);
  CHECK(r.messages[1].more ==
        R"({"content":null,"reasoning_content":"hm","tool_calls":[{"type":"function","id":"1",)"
        R"("function":{"name":"f","arguments":"{\"y\": 1, \"x\": 2}"}}]})");
  CHECK(r.messages[2].more == R"({"tool_call_id":"1"})");
  CHECK(r.asks_for_answer);
  const auto on = good(chat_with(R"("continue_final_message": true)"), true);
  CHECK(on.continues);
  CHECK_FALSE(on.asks_for_answer);
  const auto of = [](const std::string& keys) { return bad(chat_with(keys), true).param; };
  CHECK(of(R"("continue_final_message": true, "add_generation_prompt": true)") ==
        "continue_final_message");
  CHECK(of(R"("chat_template_kwargs": {"messages": []})") == "chat_template_kwargs");
  CHECK(of(R"("chat_template_kwargs": 3)") == "chat_template_kwargs");
  std::string many = "\"a\": 1";
  for (int i = 0; i < 300; ++i) many += ", \"k" + std::to_string(i) + "\": 1";
  CHECK(of("\"chat_template_kwargs\": {" + many + "}") == "chat_template_kwargs");
  // Other objects of the body may have many keys.
  std::string biases;
  for (int i = 0; i < 300; ++i) biases += (i ? ", \"" : "\"") + std::to_string(i) + "\": 1";
  CHECK(good(chat_with(R"("chat_template_kwargs": {"a": 1}, "logit_bias": {)" + biases + "}"), true)
            .template_names == R"({"a":1})");
  const auto message = [](const std::string& m) {
    return bad(R"({"model": "m", "messages": [)" + m + "]}", true).param;
  };
  CHECK(message(R"({"role": "user", "content": "a", "tool_calls": [{}]})") ==
        "messages[0].tool_calls");
  CHECK(message(R"({"role": "assistant", "tool_calls": [{"function": {}}]})") ==
        "messages[0].tool_calls");
  CHECK(message(R"({"role": "user", "content": "a", "name": 3})") == "messages[0].name");
  CHECK(message(R"({"role": "assistant", "content": "a", "prefix": true})") ==
        "messages[0].prefix");
  good(R"({"model": "m", "messages": [{"role": "user", "content": "a", "prefix": false}]})", true);
}
