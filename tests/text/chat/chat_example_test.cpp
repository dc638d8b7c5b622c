#include "text/chat/chat_example.hpp"

#include <sys/wait.h>
#include <catch2/catch.hpp>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/files.hpp"
#include "harness/source_dir.hpp"
#include "messages/base/random.hpp"
#include "text/small_tokenizers.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;
using Catch::Contains;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t first_special = 300;
const std::vector<std::string>& specials() {
  static const std::vector<std::string> all{"<s>",
                                            "</s>",
                                            "<|im_start|>",
                                            "<|im_end|>",
                                            "<|start_header_id|>",
                                            "<|end_header_id|>",
                                            "<|eot_id|>",
                                            "[INST]",
                                            "[/INST]"};
  return all;
}

/// A model of bytes: its tokenizer and one of the templates; no source: our own by its tokens.
struct small_model {
  std::unique_ptr<tokenizer> words;
  chat_template chats;
  std::string source;
};

small_model model_with(const std::string& source, std::vector<std::string> names = specials(),
                       const std::string& merged = "") {
  std::string added;
  for (std::size_t i = 0; i < names.size(); ++i)
    added += (i > 0 ? ", " : "") +
             added_json(first_special + static_cast<std::uint32_t>(i), names[i], "s");
  auto tokens = bytes_tokenizer(added);
  const auto put = [&](const std::string& before, const std::string& by) {
    const auto at = tokens.find(before);
    REQUIRE(at != std::string::npos);
    tokens.replace(at, before.size(), by);
  };
  if (!merged.empty()) {
    put("\"add_prefix_space\": false", R"("add_prefix_space": false, "use_regex": false)");
    put(bytes_vocabulary(), bytes_vocabulary(", \"" + merged + "\": 256"));
    put("\"merges\": []",
        "\"merges\": [[\"" + merged.substr(0, 1) + "\", \"" + merged.substr(1) + "\"]]");
  }
  std::map<std::string, std::string> files{{"tokenizer.json", tokens}};
  if (!source.empty()) {
    files["chat_template.jinja"] = source;
    files["tokenizer_config.json"] = R"({"bos_token": "<s>", "eos_token": "</s>"})";
  }
  small_model m{loaded(tokenizer_in(files)), {}, source};
  m.chats = chat_template::of(temporary_folder() / "small-tokenizer", *m.words);
  REQUIRE(m.chats.problem() == "");
  return m;
}

std::string template_text(const std::string& name) {
  std::ifstream in{std::string{source_dir()} + "/tests/text/templates/" + name + ".jinja",
                   std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

/// The time that template_reference.py has.
example_rules rules_of(const std::vector<std::uint32_t>& ends = {}) {
  example_rules r;
  r.ends = ends;
  r.now.tm_year = 126, r.now.tm_mday = 5, r.now.tm_hour = 16, r.now.tm_min = 7, r.now.tm_sec = 9;
  r.now.tm_wday = 1, r.now.tm_yday = 4;
  return r;
}

struct conversation {
  std::vector<chat_message> messages;
  std::vector<bool> trained;
};

std::string random_text(random_source& random, std::string_view letters) {
  std::string out;
  for (auto n = 1 + random.below(12); n > 0; --n) out += letters[random.below(letters.size())];
  return out;
}

/// Answers that count are of A to Z, others of digits, all other messages of small letters, and
/// names of special tokens.
conversation random_conversation(std::uint64_t seed) {
  random_source random{seed};
  conversation c;
  const auto add = [&](const char* role, std::string text, bool trained) {
    c.messages.push_back({role, std::move(text)});
    c.trained.push_back(trained);
  };
  if (random.below(2) == 0) add("system", random_text(random, "abc .\n"), false);
  for (auto turns = 1 + random.below(4); turns > 0; --turns) {
    auto question = random_text(random, "defgh \n,");
    if (random.below(4) == 0) question += specials()[random.below(7)];
    add("user", std::move(question), false);
    const bool counts = turns == 1 || random.below(4) > 0;
    const auto name = random.below(8) == 0 ? "[INST]" : "";
    add("assistant",
        (counts ? "A" : "0") + random_text(random, counts ? "ABCXYZ \n" : "0123 \n") + name,
        counts);
  }
  return c;
}

bool is_large(std::uint32_t token) {
  return token >= 'A' && token <= 'Z';
}

struct wrong_tokens {
  std::size_t not_a_prefix = 0, trained_prompt = 0, untrained_answer = 0, trained_uncounted = 0,
              begins = 0;
  bool operator==(const wrong_tokens&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const wrong_tokens& w) {
    return out << w.not_a_prefix << ' ' << w.trained_prompt << ' ' << w.untrained_answer << ' '
               << w.trained_uncounted << ' ' << w.begins;
  }
};

/// Found from the letters of the tokens alone, and from prompts as they are served.
wrong_tokens wrong_in(const made_examples& made, const conversation& c, const small_model& m,
                      std::uint32_t begins, const std::tm& now) {
  wrong_tokens w;
  std::vector<std::uint32_t> ends = m.chats.ends();
  std::size_t expected_letters = 0, letters = 0, starts = 0;
  std::vector<token_list> prompts;
  for (std::size_t i = 0; i < c.messages.size(); ++i) {
    if (!c.trained[i]) continue;
    for (const char letter : c.messages[i].text) expected_letters += letter >= 'A' && letter <= 'Z';
    const auto chat = loaded(m.chats.write(std::span{c.messages}.first(i), true, now));
    prompts.push_back(m.words->encode(chat.text, chat.from_messages));
  }
  for (const auto& e : made.examples) {
    REQUIRE(e.tokens.size() == e.trained.size());
    w.begins += static_cast<std::size_t>(std::ranges::count(e.tokens, first_special)) != begins;
    for (std::size_t i = 0; i < e.tokens.size(); ++i) {
      const auto token = e.tokens[i];
      if (!e.trained[i]) continue;
      letters += is_large(token);
      w.trained_prompt += (token >= 'a' && token <= 'z');
      w.trained_uncounted += token >= '0' && token <= '9';
      if (i == 0 || !e.trained[i - 1]) {
        const token_list before{e.tokens.begin(),
                                e.tokens.begin() + static_cast<std::ptrdiff_t>(i)};
        w.not_a_prefix += std::ranges::find(prompts, before) == prompts.end();
        ++starts;
      }
      const bool last = i + 1 == e.tokens.size() || !e.trained[i + 1];
      const bool end = std::ranges::find(ends, token) != ends.end();
      if (last && !ends.empty()) w.untrained_answer += !end;
      if (!last) w.trained_prompt += end;
    }
  }
  w.not_a_prefix += starts != prompts.size();
  w.untrained_answer += expected_letters - std::min(letters, expected_letters);
  return w;
}

std::string shown(const training_example& e) {
  std::string out;
  bool trained = false;
  for (std::size_t i = 0; i < e.tokens.size(); ++i) {
    if (e.trained[i] != trained) out += (trained = e.trained[i]) ? "«" : "»";
    out += shown_tokens({e.tokens[i]});
  }
  return trained ? out + "»" : out;
}

/// Number of lines whose text jinja2 writes in another way; nothing: it is not installed.
std::optional<int> unequal_texts(const std::vector<json>& cases) {
  const auto file = temporary_folder() / "examples.jsonl", out = temporary_folder() / "unequal";
  {
    std::ofstream all{file};
    for (const auto& one : cases) all << one.dump() << '\n';
  }
  const auto command = "python3 " + std::string{source_dir()} +
                       "/tests/text/chat/template_reference.py --check " + file.string() + " >" +
                       out.string();
  const int status = std::system(command.c_str());
  if (WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127)) return {};
  REQUIRE(status == 0);
  int n = -1;
  std::ifstream{out} >> n;
  return n;
}

json messages_json(std::span<const chat_message> messages) {
  auto all = json::array();
  for (const auto& m : messages) all.push_back({{"role", m.role}, {"content", m.text}});
  return all;
}

/// An example's text as jinja2 is to write it: without an end that was added.
std::string text_of(const small_model& m, const made_examples& made, std::size_t k) {
  auto tokens = made.examples[k].tokens;
  if (made.added_ends > 0 && !m.chats.ends().empty()) tokens.pop_back();
  std::string text;
  for (const auto t : tokens) text += m.words->written(t);
  return text;
}

/// Conversations whose answers each template is to write behind its prompts.
struct kind_of_template {
  const char* name;
  std::uint32_t begins;  // <s>
};
constexpr kind_of_template kinds[] = {
    {"chatml", 0}, {"dated", 1}, {"instructions", 1}, {"late_ends", 0}, {"thoughts", 0}};

}  // namespace

TEST_CASE("answers of random conversations are targets, with what ends them, and nothing else is") {
  std::vector<json> cases;
  std::size_t joined = 0, split = 0;
  for (const auto& kind : kinds) {
    const auto m = model_with(template_text(kind.name));
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      const auto c = random_conversation(seed);
      const auto rules = rules_of();
      const auto made = loaded(examples_of_chat(m.chats, *m.words, c.messages, c.trained, rules));
      INFO(kind.name << " " << seed << ": " << shown(made.examples[0]));
      // A name of a special token in a message is text: the begin is the template's alone.
      CHECK(wrong_in(made, c, m, kind.begins, rules.now) == wrong_tokens{});
      CHECK(made.boundary_cuts == 0);
      (made.split ? split : joined) += 1;
      if (made.split) continue;
      auto last = c.messages.size();
      while (!c.trained[last - 1]) --last;
      cases.push_back({{"source", m.source},
                       {"tokens", {{"bos_token", "<s>"}, {"eos_token", "</s>"}}},
                       {"messages", messages_json(std::span{c.messages}.first(last))},
                       {"text", text_of(m, made, 0)}});
    }
  }
  CHECK(joined > 500);
  CHECK(split > 100);
  if (const auto n = unequal_texts(cases))
    CHECK(*n == 0);
  else
    WARN("not compared: python3-jinja2 is not installed");
}

TEST_CASE("our own templates make examples of random conversations, too") {
  for (const auto& names : std::vector<std::vector<std::string>>{
           {"<|im_start|>", "<|im_end|>"},
           {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
           {"<s>", "</s>", "[INST]", "[/INST]"}}) {
    const auto m = model_with("", names);
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      const auto c = random_conversation(seed);
      const auto rules = rules_of();
      const auto made = loaded(examples_of_chat(m.chats, *m.words, c.messages, c.trained, rules));
      INFO(m.chats.name() << " " << seed << ": " << shown(made.examples[0]));
      const auto begins = names[0] == "<s>" || names.size() == 4 ? 1u : 0u;
      auto found = wrong_in(made, c, m, begins, rules.now);
      if (names[0] == "<|im_start|>") found.begins = 0;  // the first token, of every turn
      CHECK(found == wrong_tokens{});
      CHECK_FALSE(made.split);
    }
  }
}

TEST_CASE("wrong targets, begins and dates are found") {
  const auto m = model_with(template_text("dated"));
  const auto c = random_conversation(3);
  const auto rules = rules_of();
  const auto good = loaded(examples_of_chat(m.chats, *m.words, c.messages, c.trained, rules));
  const auto counted = [&](auto change) {
    auto made = good;
    change(made.examples[0]);
    return wrong_in(made, c, m, 1, rules.now);
  };
  const auto shifted = counted([](training_example& e) {
    e.trained.insert(e.trained.begin(), false);
    e.trained.pop_back();
  });
  CHECK(shifted.not_a_prefix > 0);
  CHECK(shifted.untrained_answer > 0);
  CHECK(
      counted([](training_example& e) {
        e.trained[static_cast<std::size_t>(std::ranges::find(e.trained, true) - e.trained.begin()) -
                  1] = true;
      }).not_a_prefix > 0);
  CHECK(counted([](training_example& e) {
          for (std::size_t i = 0; i < e.tokens.size(); ++i)
            if (e.tokens[i] == first_special + 6) e.trained[i] = false;
        }).untrained_answer > 0);
  CHECK(counted([](training_example& e) {
          e.tokens.insert(e.tokens.begin(), first_special);
          e.trained.insert(e.trained.begin(), false);
        }).begins > 0);
  CHECK(counted([](training_example& e) {
          e.trained.assign(e.trained.size(), true);
        }).trained_prompt > 0);
  auto today = rules;
  today.now.tm_mday = 6;
  const auto other = loaded(examples_of_chat(m.chats, *m.words, c.messages, c.trained, today));
  CHECK(text_of(m, other, 0) != text_of(m, good, 0));
}

TEST_CASE("an answer that a template does not end is ended, each in an example of its own") {
  const auto m = model_with(template_text("late_ends"));
  const std::vector<chat_message> messages{
      {"user", "a"}, {"assistant", "B"}, {"user", "c"}, {"assistant", "D"}};
  const auto made =
      loaded(examples_of_chat(m.chats, *m.words, messages, {false, true, false, true}, rules_of()));
  REQUIRE(made.examples.size() == 2);
  CHECK(made.split);
  CHECK(made.added_ends == 2);
  CHECK(shown(made.examples[0]) == "{302}user\na{303}{302}assistant\n«B{301}»");
  CHECK(shown(made.examples[1]) ==
        "{302}user\na{303}{302}assistant\nB{303}{302}user\nc{303}{302}assistant\n«D{301}»");
}

TEST_CASE("a template that drops earlier thoughts makes an example of each answer") {
  const auto m = model_with(template_text("thoughts"));
  const std::vector<chat_message> messages{{"user", "a"},
                                           {"assistant", "<think>\nx\n</think>\n\nB"},
                                           {"user", "c"},
                                           {"assistant", "<think>\ny\n</think>\n\nD"}};
  const auto made =
      loaded(examples_of_chat(m.chats, *m.words, messages, {false, true, false, true}, rules_of()));
  REQUIRE(made.examples.size() == 2);
  CHECK(made.split);
  CHECK(shown(made.examples[0]) ==
        "{302}user\na{303}\n{302}assistant\n«<think>\nx\n</think>\n\nB{303}»\n");
  CHECK(shown(made.examples[1]) ==
        "{302}user\na{303}\n{302}assistant\nB{303}\n{302}user\nc{303}\n{302}assistant\n"
        "«<think>\ny\n</think>\n\nD{303}»\n");
}

TEST_CASE("answers that a prompt's last token would swallow are encoded by themselves") {
  // ":" and " " are one token where they meet.
  const auto m = model_with("", {"</s>"}, ":Ġ");
  CHECK(m.chats.name() == "plain");
  CHECK(shown_tokens(m.words->encode("a: b")) == "a{256}b");
  const std::vector<chat_message> messages{{"user", "a"}, {"assistant", "B"}};
  const auto made =
      loaded(examples_of_chat(m.chats, *m.words, messages, {false, true}, rules_of()));
  CHECK(made.boundary_cuts == 1);
  CHECK(shown(made.examples[0]) == "user{256}a\nassistant:« B\n{300}»");
  // A name of a special token in what is encoded by itself is text, too.
  const std::vector<chat_message> named{{"user", "a"}, {"assistant", "B</s>"}};
  const auto ended = loaded(examples_of_chat(m.chats, *m.words, named, {false, true}, rules_of()));
  CHECK(ended.boundary_cuts == 1);
  CHECK(shown(ended.examples[0]) == "user{256}a\nassistant:« B</s>\n{300}»");
  const auto completed = loaded(example_of_completion(*m.words, "a:", " B", rules_of({300})));
  CHECK(completed.boundary_cuts == 1);
  CHECK(shown(completed.examples[0]) == "a:« B{300}»");
}

TEST_CASE("a template that writes an answer elsewhere than behind its prompt is refused") {
  const auto m = model_with(
      "{% for x in messages %}{{ x.content }}{% endfor %}{% if add_generation_prompt %}?{% endif "
      "%}");
  const std::vector<chat_message> messages{{"user", "a"}, {"assistant", "B"}};
  const auto made = examples_of_chat(m.chats, *m.words, messages, {false, true}, rules_of());
  REQUIRE_FALSE(made);
  CHECK_THAT(made.error().text, Contains("message 1: found a template that does not write the "
                                         "answer behind its prompt"));
  // A question is written in another way once it is answered.
  const auto turns = model_with(template_text("turns"));
  const std::vector<chat_message> longer{
      {"user", "a"}, {"assistant", "B"}, {"user", "c"}, {"assistant", "D"}};
  const auto refused =
      examples_of_chat(turns.chats, *turns.words, longer, {false, true, false, true}, rules_of());
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().text, Contains("message 1: found a template"));
}

TEST_CASE("every token but the first is a target if prompts are to be learned, too") {
  const auto m = model_with(template_text("chatml"));
  auto rules = rules_of();
  rules.all = true;
  const std::vector<chat_message> messages{{"user", "a"}, {"assistant", "B"}};
  const auto made = loaded(examples_of_chat(m.chats, *m.words, messages, {false, true}, rules));
  CHECK(shown(made.examples[0]) == "{302}«user\na{303}\n{302}assistant\nB{303}\n»");
}

TEST_CASE("completions and texts are encoded as a prompt is, and ended") {
  const auto m = model_with("", {"<s>", "</s>"});
  const auto rules = rules_of({301});
  const auto completed = loaded(example_of_completion(*m.words, "ab", "CD", rules));
  CHECK(shown(completed.examples[0]) == "ab«CD{301}»");
  CHECK(completed.added_ends == 1);
  CHECK(shown(example_of_text(*m.words, "abc", rules).examples[0]) == "a«bc{301}»");
  CHECK(example_of_text(*m.words, "ab", rules_of()).examples[0].tokens.size() == 2);
  // A text that ends already; its name is a token, as in a prompt.
  const auto ended = example_of_text(*m.words, "ab</s>", rules);
  CHECK(shown(ended.examples[0]) == "a«b{301}»");
  CHECK(ended.added_ends == 0);
}
