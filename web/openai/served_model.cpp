#include "web/openai/served_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "text/tokens/open_tokenizer.hpp"

namespace troupe::web {

namespace {

using tokens = std::vector<std::uint32_t>;

constexpr std::uint32_t default_completion_tokens = 16;

tl::unexpected<openai::problem> invalid(std::string sentence, std::string param,
                                        std::string code = {}) {
  return tl::unexpected<openai::problem>{
      {400, std::move(sentence), "invalid_request_error", std::move(param), std::move(code)}};
}

/// Is a text longer than that many tokens can be? It is refused before it is encoded, which takes
/// time that grows with its length.
bool is_too_long(std::size_t bytes, const gpu::tokenizer& words, std::size_t positions) {
  const auto each = words.longest_token_bytes();
  return each > 0 && bytes / each > positions;
}

openai::parsed<tokens> encoded(std::string_view text, const served_model& m, std::size_t positions,
                               bool adds_special) {
  if (!m.words)
    return invalid(fmt::format("the model {}: give 'prompt' as token numbers", m.no_words),
                   "prompt");
  if (is_too_long(text.size(), *m.words, positions))
    return invalid(
        fmt::format("the prompt's {} bytes are more than the {} tokens that the model can "
                    "hold here",
                    text.size(), positions),
        "prompt", "context_length_exceeded");
  return adds_special ? m.words->encode_prompt(text) : m.words->encode(text);
}

// Prompts that are given as tokens need no tokenizer, and are not changed.
openai::parsed<tokens> tokens_of(const openai::prompt& p, const served_model& m,
                                 std::size_t positions, bool adds_special) {
  if (const auto* given = std::get_if<openai::tokens>(&p)) return *given;
  return encoded(std::get<std::string>(p), m, positions, adds_special);
}

// The template decides how messages become one prompt, and which special tokens are in it; texts of
// clients cannot bring their own.
openai::parsed<tokens> tokens_of_chat(const openai::request& r, const served_model& m,
                                      std::size_t positions) {
  if (!m.words)
    return invalid(fmt::format("the model {}: a chat needs one", m.no_words), "messages");
  std::size_t bytes = 0;
  for (const auto& one : r.messages) bytes += one.text.size() + one.more.size();
  if (is_too_long(bytes, *m.words, positions))
    return invalid(fmt::format("the messages' {} bytes are more than the {} tokens that the model "
                               "can hold here",
                               bytes, positions),
                   "messages", "context_length_exceeded");
  auto prompt = m.chats.prompt(*m.words, r.messages,
                               {.asks_for_answer = r.asks_for_answer,
                                .continues = r.continues,
                                .adds_special = r.adds_special.value_or(false),
                                .variables = r.template_names});
  if (!prompt) return invalid(prompt.error().text, "messages");
  return std::move(*prompt);
}

// Token numbers of clients reach the embedding's table: they must be in it.
openai::parsed<void> check_tokens(const tokens& all, const served_model& m, const char* param) {
  if (all.empty()) return invalid(fmt::format("'{}' needs at least one token", param), param);
  for (const auto t : all)
    if (t >= m.model.vocabulary)
      return invalid(fmt::format("'{}': token {} is beyond the model's vocabulary of {}", param, t,
                                 m.model.vocabulary),
                     param);
  return {};
}

/// A text that is a special token's name: that token ends the completion, since it has no text.
void add_special_stops(const openai::request& r, const served_model& m, tokens& last) {
  if (!m.words) return;
  for (const auto& stop : r.stops)
    if (const auto token = m.words->special(stop)) last.push_back(*token);
}

/// The request's settings, else those of the model's folder, else the API's defaults.
sampling sampling_of(const openai::request& r, const gpu::sampling_defaults& model) {
  sampling s;
  s.temperature = r.how.temperature.value_or(model.temperature.value_or(1));
  s.top_p = r.how.top_p.value_or(model.top_p.value_or(1));
  s.min_p = r.how.min_p.value_or(model.min_p.value_or(0));
  s.top_k = r.how.top_k.value_or(model.top_k.value_or(0));
  s.frequency_penalty = r.frequency_penalty;
  s.presence_penalty = r.presence_penalty;
  s.bias = r.bias;
  if (const auto& asked = r.how.repetition_penalty ? r.how : model; asked.repetition_penalty)
    s.repetition_penalty = asked.repetition_penalty;
  return s;
}

}  // namespace

// Prompts are encoded by the same files from which decoders compute: the tokenizer and the chat
// template belong to the folder.
expected<served_model> read_served_model(const std::string& name, const std::string& folder) {
  auto model = gpu::read_inference_model(folder);
  if (!model) return refuse(model.error());
  auto words = gpu::open_tokenizer(folder, model->vocabulary);
  if (!words) return refuse(words.error());
  served_model m{name, std::move(*model), std::move(*words), {}};
  // A model of bytes has no words to write a chat in.
  if (m.words)
    m.chats = gpu::chat_template::of(folder, *m.words);
  else
    m.no_words = gpu::missing_tokenizer_text(folder);
  return m;
}

// The only check of a request's sizes on the way in: all later parts rely on it, but for decoders,
// which do not trust the wire. Parameters are named as the client has given them. A chat without
// max_tokens gets the rest of the context, a completion 16 tokens, as OpenAI's API does.
openai::parsed<generation> generation_of(const openai::request& r, const served_model& m,
                                         std::size_t positions) {
  for (const auto& b : r.bias)
    if (b.token >= m.model.vocabulary)
      return invalid(fmt::format("'logit_bias': token {} is beyond the model's vocabulary of {}",
                                 b.token, m.model.vocabulary),
                     "logit_bias");
  if (!r.stop_tokens.empty())
    if (auto ok = check_tokens(r.stop_tokens, m, "stop_token_ids"); !ok)
      return tl::unexpected{ok.error()};
  const char* param = r.chat ? "messages" : "prompt";
  generation g;
  std::size_t longest = 0;
  for (std::size_t i = 0; i < (r.chat ? 1 : r.prompts.size()); ++i) {
    auto one = r.chat ? tokens_of_chat(r, m, positions)
                      : tokens_of(r.prompts[i], m, positions, r.adds_special.value_or(true));
    if (!one) return tl::unexpected{one.error()};
    if (auto ok = check_tokens(*one, m, param); !ok) return tl::unexpected{ok.error()};
    longest = std::max(longest, one->size());
    g.prompts.push_back(std::move(*one));
  }
  const auto rest = positions > longest ? positions - longest : 1;
  g.max_tokens =
      r.max_tokens.value_or(r.chat ? static_cast<std::uint32_t>(rest) : default_completion_tokens);
  if (r.min_tokens > g.max_tokens)
    return invalid(fmt::format("'min_tokens': found {}, expected at most {}, which 'max_tokens' is",
                               r.min_tokens, g.max_tokens),
                   "min_tokens");
  if (longest + g.max_tokens > positions)
    return invalid(fmt::format("the prompt's {} tokens and {} new ones are more than the {} that "
                               "the model can hold here",
                               longest, g.max_tokens, positions),
                   param, "context_length_exceeded");
  g.stops = r.stops;
  return g;
}

openai::parsed<tokens> first_prompt_of(const openai::request& r, const served_model& m) {
  constexpr auto any = std::numeric_limits<std::size_t>::max();
  return r.chat ? tokens_of_chat(r, m, any)
                : tokens_of(r.prompts.front(), m, any, r.adds_special.value_or(true));
}

// The one translation from the API to a sequence. The end tokens are the model's, the chat
// template's, and those stop texts that are a special token; other stop texts are compared with the
// text. Scoring the prompt is asked for by echo together with log probabilities.
generator::submission submission_of(const openai::request& r, const served_model& m,
                                    const generation& g, std::size_t prompt) {
  generator::submission s;
  s.prompt = g.prompts[prompt];
  s.stops = g.stops;
  s.adapter = m.adapter;
  if (!m.parent.empty()) s.adapter_name = m.name;
  auto& w = s.what;
  w.prompt_tokens = static_cast<std::uint32_t>(s.prompt.size());
  w.max_tokens = g.max_tokens;
  if (!r.ignores_end) {
    w.last_tokens = m.model.last_tokens;
    if (r.chat)
      w.last_tokens.insert(w.last_tokens.end(), m.chats.ends().begin(), m.chats.ends().end());
  }
  w.last_tokens.insert(w.last_tokens.end(), r.stop_tokens.begin(), r.stop_tokens.end());
  add_special_stops(r, m, w.last_tokens);
  std::ranges::sort(w.last_tokens);
  const auto repeated = std::ranges::unique(w.last_tokens);
  w.last_tokens.erase(repeated.begin(), repeated.end());
  if (r.min_tokens > 0) w.min_tokens = r.min_tokens;
  w.how = sampling_of(r, m.model.defaults);
  w.top = r.top_logprobs.value_or(0);
  w.scores_prompt = r.echo && r.top_logprobs;
  w.ttft_s = r.ttft_s;
  w.priority = r.priority;
  return s;
}

std::string text_of(const openai::prompt& p, const served_model& m) {
  if (const auto* text = std::get_if<std::string>(&p)) return *text;
  return m.words ? m.words->decode(std::get<openai::tokens>(p)) : std::string{};
}

}  // namespace troupe::web
