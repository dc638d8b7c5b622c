#include "text/chat/chat_template.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "messages/base/invariant.hpp"
#include "messages/base/untrusted_file.hpp"
#include "text/chat/chat_values.hpp"
#include "text/chat/special_names.hpp"
#include "text/jinja/template.hpp"
#include "text/json/json_members.hpp"

namespace troupe::gpu {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t max_template_bytes = 1u << 20;

struct own_template {
  std::string_view name, source;
  std::vector<std::string_view> needs;  // special tokens
};

/// For folders without a template, by the first whose tokens are there. The variables `begin`,
/// `end` and `head_end` are names of tokens, and empty for a tokenizer that lacks them.
const std::vector<own_template>& own_templates() {
  static const std::vector<own_template> all{
      {"chatml",
       "{% for m in messages %}<|im_start|>{{ m.role + '\\n' + m.content }}<|im_end|>{{ '\\n' }}"
       "{% endfor %}"
       "{% if add_generation_prompt %}<|im_start|>{{ 'assistant\\n' }}{% endif %}",
       {"<|im_start|>", "<|im_end|>"}},
      {"llama3",
       "{% macro head(role) %}<|start_header_id|>{{ role + head_end + '\\n\\n' }}{% endmacro %}"
       "{{ begin }}{% for m in messages %}{{ head(m.role) + m.content }}<|eot_id|>{% endfor %}"
       "{% if add_generation_prompt %}{{ head('assistant') }}{% endif %}",
       {"<|start_header_id|>", "<|eot_id|>"}},
      // It has no system: that is put before the first user's text.
      {"instruction",
       "{% set ns = namespace(system='') %}{{ begin }}{% for m in messages %}"
       "{% if m.role == 'system' %}{% set ns.system = ns.system + m.content + '\\n\\n' %}"
       "{% elif m.role == 'assistant' %}{{ ' ' + m.content + end }}"
       "{% else %}[INST] {{ ns.system + m.content }} [/INST]{% set ns.system = '' %}"
       "{% endif %}{% endfor %}",
       {"[INST]"}},
      {"plain",
       "{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}"
       "{% if add_generation_prompt %}assistant:{% endif %}",
       {}}};
  return all;
}

chat_template::token_names own_tokens(std::string_view name, const tokenizer& t) {
  const auto known = [&](const char* token) {
    return t.special(token) ? std::string{token} : std::string{};
  };
  if (name == "llama3")
    return {{"begin", known("<|begin_of_text|>")}, {"head_end", known("<|end_header_id|>")}};
  return {{"begin", known("<s>")}, {"end", known("</s>")}};
}

/// A template and whose it is.
struct found_template {
  std::string source, name;
};

/// `chat_template` of a configuration: a text, or several with names. A name without a text: it has
/// none. Of several templates only `default` is used; the others are for tools or documents, which
/// a request cannot pass.
expected<found_template> template_in(const nlohmann::json& config, std::string name) {
  const auto& t = member(config, "chat_template");
  if (t.is_null()) return found_template{};
  name += ": chat_template";
  if (t.is_string()) return found_template{t.get<std::string>(), std::move(name)};
  if (!t.is_array())
    return refuse(reason::kind::invalid, name + ": found neither a text nor a list of templates");
  for (const auto& one : t)
    if (member(one, "name") == "default" && member(one, "template").is_string())
      return found_template{one["template"].get<std::string>(), name + " 'default'"};
  return refuse(reason::kind::invalid, name + ": the list has no template named 'default'");
}

/// The file of its own wins over the configuration, since newer versions of transformers write
/// that.
expected<found_template> find_template(const fs::path& folder, const nlohmann::json& config) {
  const auto file = folder / "chat_template.jinja";
  if (std::error_code error; fs::exists(file, error)) {
    auto source = read_file(file.string(), max_template_bytes);
    if (!source) return refuse(source.error());
    return found_template{std::move(*source), file.string()};
  }
  return template_in(config, (folder / "tokenizer_config.json").string());
}

std::tm local_time() {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm broken{};
  ::localtime_r(&now, &broken);
  return broken;
}

/// The chat up to there.
written_chat cut(written_chat c, std::size_t end) {
  c.text.resize(end);
  while (!c.from_messages.empty() && c.from_messages.back().begin >= end)
    c.from_messages.pop_back();
  if (!c.from_messages.empty())
    c.from_messages.back().end = std::min(c.from_messages.back().end, end);
  return c;
}

}  // namespace

struct chat_template::content {
  std::string name = "plain", source, problem;  // source: for sentences
  jinja::compiled compiled;
  token_names tokens;
  std::vector<std::uint32_t> ends;
  content_form form = content_form::text;
};

chat_template::chat_template() {
  static const auto plain = [] {
    const auto& own = own_templates().back();
    auto c = std::make_shared<content>();
    if (auto read = jinja::compiled::read(own.source, std::string{own.name}))
      c->compiled = std::move(*read);
    return c;
  }();
  content_ = plain;
}

/// A template that cannot be read is kept with its problem: the model can still complete plain
/// prompts, and a chat request gets the reason.
chat_template chat_template::of_text(std::string_view source, std::string name,
                                     token_names tokens) {
  auto c = std::make_shared<content>();
  c->name = "template";
  c->source = name;
  c->tokens = std::move(tokens);
  auto read = jinja::compiled::read(source, std::move(name));
  if (read)
    c->compiled = std::move(*read);
  else
    c->problem = read.error().text;
  return chat_template{std::move(c)};
}

chat_template chat_template::of(const fs::path& folder, const tokenizer& t) {
  const auto config = special_names::read_config(folder);
  const auto names = config ? special_names::of(folder, *config) : refuse(config.error());
  const auto found = names ? find_template(folder, *config) : refuse(names.error());
  if (!found || !found->name.empty()) {
    auto made = of_text(found ? found->source : "", found ? found->name : "",
                        names.value_or(token_names{}));
    auto c = std::make_shared<content>(*made.content_);
    if (!found) c->problem = found.error().text;
    find_form(*c);
    find_ends(*c, t);
    return chat_template{std::move(c)};
  }
  return own(t, *names);
}

/// The last one needs no tokens, so the search always finds one.
chat_template chat_template::own(const tokenizer& t, const token_names& names) {
  const auto& all = own_templates();
  const auto chosen = std::ranges::find_if(all, [&](const own_template& o) {
    return std::ranges::all_of(o.needs,
                               [&](std::string_view name) { return t.special(name).has_value(); });
  });
  const auto made = of_text(chosen->source, std::string{chosen->name}, own_tokens(chosen->name, t));
  auto c = std::make_shared<content>(*made.content_);
  c->name = chosen->name;
  if (const auto eos = names.find("eos_token"); eos != names.end())
    c->tokens.emplace("eos_token", eos->second);
  if (const auto end = t.special("</s>"); chosen->name == "plain" && end) c->ends.push_back(*end);
  find_ends(*c, t);
  return chat_template{std::move(c)};
}

std::string_view chat_template::name() const {
  return content_->name;
}

bool chat_template::reads_parts() const {
  return content_->form == content_form::parts;
}

const std::string& chat_template::problem() const {
  return content_->problem;
}

const std::vector<std::uint32_t>& chat_template::ends() const {
  return content_->ends;
}

/// No file has a list of the tokens that end a turn: <|im_end|> or <|eot_id|> often differ from
/// eos_token. Hence the template writes a sample conversation with a known answer, and the first
/// token behind the answer is one of them if it is special. A template that refuses the sample adds
/// none.
void chat_template::find_ends(content& c, const tokenizer& t) {
  const auto add = [&](std::optional<std::uint32_t> token) {
    if (token && std::ranges::find(c.ends, *token) == c.ends.end()) c.ends.push_back(*token);
  };
  if (const auto eos = c.tokens.find("eos_token"); eos != c.tokens.end())
    add(t.special(eos->second));
  if (!c.problem.empty()) return;
  // The text that the template writes behind an answer ends answers, if it is a special token.
  constexpr std::string_view answer = "an answer";
  const chat_message messages[] = {{"user", "Hello"}, {"assistant", std::string{answer}}};
  const auto written =
      chat_template{std::make_shared<const content>(c)}.write(messages, false, local_time());
  if (!written) return;
  const auto at = written->text.rfind(answer);
  if (at == std::string::npos) return;
  std::string_view behind = written->text;
  behind.remove_prefix(at + answer.size());
  behind.remove_prefix(std::min(behind.find_first_not_of(" \n"), behind.size()));
  constexpr std::size_t max_name_bytes = 256;
  const auto tokens = t.encode(behind.substr(0, max_name_bytes));
  if (tokens.empty() || !t.text_of(tokens[0], false).empty()) return;
  add(tokens[0]);
}

/// Some templates read a message's content as a text, others walk over its parts, and write nothing
/// of a text: a sample message shows which form this one reads. One that writes the sample in
/// neither form would answer an empty conversation. A template that refuses the sample may do so
/// for another reason, and counts as one of texts.
void chat_template::find_form(content& c) {
  if (!c.problem.empty()) return;
  constexpr std::string_view sample = "A sample of a message 4711";
  const chat_message message[] = {{"user", std::string{sample}}};
  bool lost = false;
  for (const auto form : {content_form::text, content_form::parts}) {
    auto tried = std::make_shared<content>(c);
    tried->form = form;
    const auto written = chat_template{std::move(tried)}.write(message, true, local_time());
    if (written && written->text.find(sample) != std::string::npos) {
      c.form = form;
      return;
    }
    lost = lost || written;
  }
  if (lost)
    c.problem = fmt::format(
        "{}: found no text of a sample message in the prompt, expected it as a text or as parts",
        c.source);
}

expected<written_chat> chat_template::written(std::span<const chat_message> messages,
                                              const chat_options& how, const std::tm& now) const {
  if (!content_->problem.empty()) return refuse(reason::kind::invalid, content_->problem);
  template_names names;
  for (const auto& [name, t] : content_->tokens) names.emplace(name, jinja::value{t});
  names["tools"] = jinja::value{jinja::none{}};
  names["documents"] = jinja::value{jinja::none{}};
  if (auto ok = add_names(how.variables, names); !ok) return refuse(ok.error());
  auto all = values_of(messages, content_->form);
  if (!all) return refuse(all.error());
  names["messages"] = std::move(*all);
  names["add_generation_prompt"] = jinja::value{how.asks_for_answer};
  auto text = content_->compiled.evaluate(std::move(names), now);
  if (!text) return refuse(text.error());
  return written_chat{text->bytes(), text->from_message()};
}

/// The end of the last message's text is found by a mark behind it. A template that removes white
/// space at the end of a text removes that before the mark's, too: then it is removed here as well.
expected<written_chat> chat_template::write(std::span<const chat_message> messages,
                                            const chat_options& how, const std::tm& now) const {
  if (!how.continues) return written(messages, how, now);
  constexpr std::string_view word = "GO-ON-BEHIND-THIS-4711", mark = "GO-ON-BEHIND-THIS-4711 ";
  std::vector<chat_message> marked{messages.begin(), messages.end()};
  TROUPE_INVARIANT(!marked.empty(), "a chat whose last message goes on has one");
  auto& last = marked.back();
  last.text += mark;
  if (!last.parts.empty()) last.parts.back() += mark;
  auto chat = written(marked, how, now);
  if (!chat) return chat;
  const auto at = chat->text.rfind(word);
  if (at == std::string::npos || !last.has_content)
    return refuse(reason::kind::invalid,
                  "the last message cannot be continued: the template does not write its text");
  auto end = at;
  if (chat->text.compare(at, mark.size(), mark) != 0)
    while (end > 0 && (chat->text[end - 1] == ' ' ||
                       (chat->text[end - 1] >= '\t' && chat->text[end - 1] <= '\r')))
      --end;
  return cut(std::move(*chat), end);
}

expected<std::vector<std::uint32_t>> chat_template::prompt(const tokenizer& t,
                                                           std::span<const chat_message> messages,
                                                           const chat_options& how) const {
  const auto chat = write(messages, how, local_time());
  if (!chat) return refuse(chat.error());
  return how.adds_special ? t.encode_prompt(chat->text, chat->from_messages)
                          : t.encode(chat->text, chat->from_messages);
}

}  // namespace troupe::gpu
