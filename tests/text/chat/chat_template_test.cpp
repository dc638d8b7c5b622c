#include "text/chat/chat_template.hpp"

#include <catch2/catch.hpp>

#include "harness/files.hpp"
#include "text/tokens/open_tokenizer.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

namespace {

namespace fs = std::filesystem;

/// A folder that is empty but for this tokenizer: byte-level, of printable ASCII and newline, whose
/// number is a character's own, with these special tokens from 200 on.
std::unique_ptr<tokenizer> ascii_with(const std::vector<std::string>& specials) {
  fs::remove_all(temporary_folder() / "chat");
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

chat_template here(const tokenizer& t) {
  return chat_template::of(temporary_folder() / "chat", t);
}

/// A prompt as text, with special tokens by their place: {0} is the first.
std::string shown_prompt(const tokenizer& t, const std::vector<chat_message>& messages) {
  const auto chats = here(t);
  const auto prompt = chats.prompt(t, messages);
  if (!prompt) return prompt.error().text;
  std::string out;
  for (const auto token : *prompt)
    out += token >= 200 ? "{" + std::to_string(token - 200) + "}" : t.text_of(token, false);
  return std::string{chats.name()} + ": " + out;
}

std::vector<std::uint32_t> ends_of(const tokenizer& t) {
  return here(t).ends();
}

const std::vector<chat_message> hello{{"user", "Hi"}};
const std::vector<chat_message> longer{
    {"system", "Be kind."}, {"user", "Hi"}, {"assistant", "Hello."}, {"user", "So?"}};
using numbers = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("without a template, special tokens choose the format of a conversation") {
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
  // A tokenizer that lacks some of a format's tokens.
  CHECK(shown_prompt(*ascii_with({"<|start_header_id|>", "<|eot_id|>"}), hello) ==
        "llama3: {0}user\n\nHi{1}{0}assistant\n\n");
}

TEST_CASE("a template in tokenizer_config.json decides, before special tokens") {
  const auto t = ascii_with({"<|im_start|>", "<|im_end|>", "<s>"});
  temporary("chat/tokenizer_config.json",
            R"({"chat_template": "{{ bos_token }}{% for m in messages %}[{{ m.role }}] )"
            R"({{ m.content }} {% endfor %}{% if add_generation_prompt %}>{% endif %}",)"
            R"( "bos_token": {"content": "<s>"}})");
  CHECK(shown_prompt(*t, hello) == "template: {2}[user] Hi >");
}

TEST_CASE("of several templates with names, the one named default counts") {
  const auto t = ascii_with({"<s>"});
  temporary("chat/tokenizer_config.json",
            R"({"chat_template": [{"name": "tool_use", "template": "no"},)"
            R"({"name": "default", "template": "yes {{ messages[0].content }}"}]})");
  CHECK(shown_prompt(*t, hello) == "template: yes Hi");
  temporary("chat/tokenizer_config.json",
            R"({"chat_template": [{"name": "tool_use", "template": "no"}]})");
  CHECK_THAT(here(*t).problem(),
             Catch::EndsWith("tokenizer_config.json: chat_template: the list has "
                             "no template named 'default'"));
}

TEST_CASE("chat_template.jinja counts before tokenizer_config.json") {
  const auto t = ascii_with({"<s>"});
  temporary("chat/tokenizer_config.json", R"({"chat_template": "old", "bos_token": "<s>"})");
  temporary("chat/chat_template.jinja", "{{ bos_token }}new {{ messages[0].content }}\n");
  CHECK(shown_prompt(*t, hello) == "template: {0}new Hi");
}

TEST_CASE("names of tokens come from the configuration, an older map, and the tokenizer's class") {
  const auto t = ascii_with({"<s>", "</s>", "<x>"});
  temporary("chat/chat_template.jinja",
            "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ messages[0].content }}");
  temporary("chat/tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizerFast"})");
  CHECK(shown_prompt(*t, hello) == "template: {0}{1}Hi");
  temporary("chat/special_tokens_map.json",
            R"({"bos_token": "<x>", "pad_token": {"content": "<s>"}})");
  CHECK(shown_prompt(*t, hello) == "template: {2}{1}{0}Hi");
  // With the tokens themselves in the configuration, the map does not count.
  temporary(
      "chat/tokenizer_config.json",
      R"({"tokenizer_class": "LlamaTokenizer", "eos_token": null, "added_tokens_decoder": {}})");
  CHECK(shown_prompt(*t, hello) == "template: {0}Hi");
}

TEST_CASE("names of special tokens in a message are text, those of the template are tokens") {
  const auto t = ascii_with({"<|im_start|>", "<|im_end|>", "<|user|>"});
  CHECK(shown_prompt(*t, {{"user", "a<|im_end|>b"}}) ==
        "chatml: {0}user\na<|im_end|>b{1}\n{0}assistant\n");
  // The role is the API's, so that a template may make a token of it.
  temporary("chat/chat_template.jinja",
            "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}<|im_end|>{% endfor %}");
  CHECK(shown_prompt(*t, {{"user", "<|user|>"}}) == "template: {2}<|user|>{1}");
  CHECK(shown_prompt(*t, {{"user", "<|im_"}}) == "template: {2}<|im_{1}");
  // A name that a message completes is no token either.
  temporary("chat/chat_template.jinja", "<|im_{{ messages[0].content }}");
  CHECK(shown_prompt(*t, {{"user", "end|>"}}) == "template: <|im_end|>");
}

TEST_CASE("what comes from a message stays known through what a template does with it") {
  const auto marked = [](const std::string& source) {
    const auto c = chat_template::of_text("{% set x = messages[0].content %}" + source, "test", {});
    const chat_message m[] = {{"user", "  b<c> D,e "}};
    const auto w = c.write(m, true, {});
    REQUIRE(w);
    std::string out;
    std::size_t at = 0;
    for (const auto& r : w->from_messages) {
      out +=
          w->text.substr(at, r.begin - at) + "(" + w->text.substr(r.begin, r.end - r.begin) + ")";
      at = r.end;
    }
    return out + w->text.substr(at);
  };
  CHECK(marked("a{{ x }}z") == "a(  b<c> D,e )z");
  CHECK(marked("a{{ x | trim }}z") == "a(b<c> D,e)z");
  CHECK(marked("{{ 'a' + x.strip() + 'z' }}") == "a(b<c> D,e)z");
  CHECK(marked("{{ 'a' ~ x[2:5] ~ x[3] }}") == "a(b<c<)");
  CHECK(marked("{{ ('q' + x)[::-1] }}") == "( e,D >c<b  )q");
  CHECK(marked("{{ x.replace('c', '[c]') }}") == "(  b<)[c](> D,e )");
  CHECK(marked("{{ 'x-y' | replace('-', x | trim) }}") == "x(b<c> D,e)y");
  CHECK(marked("{{ x.split(',') | join(' + ') }}") == "(  b<c> D) + (e )");
  CHECK(marked("{{ 'u' + (x | upper | trim) + x.lower() }}") == "u(B<C> D,E  b<c> d,e )");
  CHECK(marked("{{ '%s!' % x }}{{ '{}?'.format(x) }}") == "(  b<c> D,e )!(  b<c> D,e )?");
  CHECK(marked("{% set y %}<{{ x }}>{% endset %}{{ y }}{{ y | length }}") == "<(  b<c> D,e )>13");
  CHECK(marked("{% macro m(t) %}[{{ t }}]{% endmacro %}{{ m(x.strip()) }}") == "[(b<c> D,e)]");
  CHECK(marked("{{ 'a\nb' | indent(x) }}{{ ['p', x] | join }}") ==
        "a\n(  b<c> D,e )bp(  b<c> D,e )");
  CHECK(marked("{{ (x * 2) | trim }}") == "(b<c> D,e   b<c> D,e)");
  // A value that mixes the template's bytes with the message's counts as the message's.
  CHECK(marked("{{ {'k': x} | tojson }}") == "({\"k\": \"  b<c> D,e \"})");
  CHECK(marked("{{ {'k': 1} | tojson }}") == "{\"k\": 1}");
  CHECK(marked("{{ ['a', x] }}") == "['a', '(  b<c> D,e )']");
}

TEST_CASE("an answer ends with the end of text, and with what the template writes behind it") {
  const auto t = ascii_with({"<|im_start|>", "<|im_end|>", "<|eot_id|>", "</s>", "<stop>"});
  CHECK(ends_of(*t) == numbers{201});
  temporary("chat/tokenizer_config.json", R"({"eos_token": "</s>"})");
  CHECK(ends_of(*t) == numbers{203, 201});
  temporary("chat/chat_template.jinja",
            "{% for m in messages %}{{ m.role }}: {{ m.content }} <stop>\n{% endfor %}");
  CHECK(ends_of(*t) == numbers{203, 204});
  temporary("chat/chat_template.jinja", "{{ messages[0].content }}</s>");
  CHECK(ends_of(*t) == numbers{203});
  CHECK(ends_of(*ascii_with({"<|start_header_id|>", "<|eot_id|>"})) == numbers{201});
  CHECK(ends_of(*ascii_with({"<s>", "</s>", "[INST]"})) == numbers{201});
  CHECK(ends_of(*ascii_with({"</s>"})) == numbers{200});
  CHECK(ends_of(*ascii_with({})).empty());
}

TEST_CASE("a template that cannot be evaluated is a problem of chats, with line and construct") {
  const auto t = ascii_with({"<s>"});
  temporary("chat/chat_template.jinja", "a\n{{ messages | xmlattr }}");
  const auto chats = here(*t);
  CHECK_THAT(chats.problem(),
             Catch::EndsWith("chat_template.jinja line 2: the filter 'xmlattr' is not supported"));
  const auto prompt = chats.prompt(*t, hello);
  REQUIRE_FALSE(prompt);
  CHECK(prompt.error().text == chats.problem());
  CHECK(chats.ends().empty());
  temporary("chat/chat_template.jinja", "a\n\n{{ messages[0].content.x.y }}");
  CHECK(here(*t).problem().empty());
  CHECK_THAT(shown_prompt(*t, hello),
             Catch::EndsWith("chat_template.jinja line 3: a str has no attribute 'x'"));
  temporary("chat/chat_template.jinja", "{{ raise_exception('only one ' + messages[0].role) }}");
  CHECK_THAT(shown_prompt(*t, hello),
             Catch::EndsWith("chat_template.jinja refuses the conversation: only one user"));
}

TEST_CASE("a configuration that is not JSON is a problem of chats") {
  const auto t = ascii_with({"<|im_start|>", "<|im_end|>"});
  temporary("chat/tokenizer_config.json", "{");
  CHECK_THAT(here(*t).problem(), Catch::Contains("tokenizer_config.json"));
  temporary("chat/tokenizer_config.json", R"({"chat_template": 5})");
  CHECK_THAT(here(*t).problem(),
             Catch::EndsWith("tokenizer_config.json: chat_template: found neither "
                             "a text nor a list of templates"));
}

TEST_CASE("a template gets texts or parts, whichever it writes, and loses no message") {
  const auto t = ascii_with({"<s>"});
  const auto shown = [&](const std::string& source, const chat_message& m) {
    temporary("chat/chat_template.jinja", source);
    return shown_prompt(*t, {m});
  };
  const chat_message text{"user", "Hi there"}, parts{"user", "Hi there", {"Hi ", "there"}};
  const std::string walks =
      "{% for m in messages %}{% for p in m['content'] %}{% if p['type'] == 'text' %}"
      "[{{ p['text'] }}]{% endif %}{% endfor %}{% endfor %}";
  CHECK(shown(walks, text) == "template: [Hi there]");
  CHECK(shown(walks, parts) == "template: [Hi ][there]");
  CHECK(shown("{{ messages[0].content[0].text }}", text) == "template: Hi there");
  CHECK(shown("{{ messages[0].content }}", parts) == "template: Hi there");
  const std::string both =
      "{% if messages[0].content is string %}{{ messages[0].content }}{% else %}no{% endif %}";
  CHECK(shown(both, parts) == "template: Hi there");
  // Neither form: such a model would answer an empty conversation.
  CHECK_THAT(shown("{% for m in messages %}{{ m.role }}{% endfor %}", text),
             Catch::Contains("chat_template.jinja: found no text of a sample message"));
  // It refuses the sample, which says nothing of its form.
  CHECK(shown("{% if messages[0].content != 'Hi there' %}{{ raise_exception('no') }}{% endif %}"
              "{{ messages[0].content }}",
              text) == "template: Hi there");
}

TEST_CASE("a template gets names, calls of tools, their results and reasoning of messages") {
  const auto t = ascii_with({"<s>"});
  temporary("chat/chat_template.jinja",
            "{% for m in messages %}{{ m.role }}:{{ m.name }}:{{ m.content }}"
            "{% if m.reasoning_content is defined %}({{ m.reasoning_content }}){% endif %}"
            "{% for c in m.tool_calls %}{{ c | tojson }}{{ c.function.arguments.y }}{% endfor %}"
            "{% if m.tool_call_id is defined %}#{{ m.tool_call_id }}{% endif %};{% endfor %}");
  chat_message call{"assistant", ""};
  call.has_content = false;
  call.more =
      R"({"content": null, "reasoning_content": "<s>", "tool_calls": [{"function": {"name": "f",
          "arguments": "{\"y\": 1, \"x\": [true, null, 2.5]}"}}]})";
  chat_message user{"user", "Hi"};
  user.more = R"({"name": "Ann"})";
  chat_message result{"tool", "4"};
  result.more = R"({"tool_call_id": "1"})";
  CHECK(shown_prompt(*t, {user, call, result}) ==
        R"(template: user:Ann:Hi;assistant::None(<s>){"function": {"name": "f", "arguments": )"
        R"({"y": 1, "x": [true, null, 2.5]}}}1;tool::4#1;)");
  for (const char* arguments : {R"("[1]")", R"("{")", R"("3")"}) {
    call.more = std::string{R"({"tool_calls": [{"function": {"name": "f", "arguments": )"} +
                arguments + "}}]}";
    CHECK_THAT(shown_prompt(*t, {call}), Catch::Contains("message 0: expected calls of tools"));
  }
}

TEST_CASE("the last message goes on where it ends, and a template gets names of a request") {
  const auto t = ascii_with({"<|im_start|>", "<|im_end|>", "<s>"});
  const std::string source =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% if thinks is defined and not thinks "
      "%}"
      "-{{ word }}{% endif %}{% endif %}";
  const auto shown = [&](const std::string& text, const chat_options& how) {
    const std::vector<chat_message> all{{"user", "Hi"}, {"assistant", "It is "}};
    temporary("chat/chat_template.jinja", text);
    const auto prompt = here(*t).prompt(*t, all, how);
    if (!prompt) return prompt.error().text;
    std::string out;
    for (const auto token : *prompt)
      out += token >= 200 ? "{" + std::to_string(token - 200) + "}" : t->text_of(token, false);
    return out;
  };
  const std::string turns = "{0}user\nHi{1}\n{0}assistant\nIt is ";
  CHECK(shown(source, {}) == turns + "{1}\n{0}assistant\n");
  CHECK(shown(source, {.asks_for_answer = false}) == turns + "{1}\n");
  CHECK(shown(source, {.asks_for_answer = false, .continues = true}) == turns);
  // transformers removes white space at the end where the template does.
  const std::string trims =
      "{% for m in messages %}<|im_start|>{{ m.content | trim }}<|im_end|>{% endfor %}";
  CHECK(shown(trims, {.asks_for_answer = false, .continues = true}) == "{0}Hi{1}{0}It is");
  CHECK_THAT(shown("{{ messages[0].content }}", {.asks_for_answer = false, .continues = true}),
             Catch::Contains("cannot be continued"));
  const std::string names = R"({"thinks": false, "word": "<s>"})";
  CHECK(shown(source, {.variables = names}) == turns + "{1}\n{0}assistant\n-<s>");  // no token
  CHECK(shown(source, {.variables = R"({"messages": [], "thinks": true})"}) ==
        turns + "{1}\n{0}assistant\n");
  CHECK_THAT(shown(source, {.variables = "[1]"}), Catch::Contains("expected a JSON object"));
}
