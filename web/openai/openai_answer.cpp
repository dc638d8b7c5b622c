#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "text/base/utf8_stream.hpp"
#include "web/openai/openai.hpp"

namespace troupe::web::openai {

namespace {

using nlohmann::ordered_json;

std::string text_of(const ordered_json& d) {
  return d.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

ordered_json or_null(std::string_view text) {
  return text.empty() ? ordered_json() : ordered_json(text);
}

// A token's bytes may be a part of a character: as JSON they are repaired, and beside them given as
// numbers.
std::string repaired(std::string_view bytes) {
  gpu::utf8_stream s;
  auto out = s.add(bytes);
  return out + s.end();
}

ordered_json bytes_of(std::string_view text) {
  auto out = ordered_json::array();
  for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  return out;
}

ordered_json problem_document(const problem& p) {
  return {{"error",
           {{"message", p.message},
            {"type", p.type},
            {"param", or_null(p.param)},
            {"code", or_null(p.code)}}}};
}

ordered_json usage_document(const usage& u) {
  return {{"prompt_tokens", u.prompt_tokens},
          {"completion_tokens", u.completion_tokens},
          {"total_tokens", u.prompt_tokens + u.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", u.cached_tokens}}}};
}

ordered_json one_token(const token_choice::token& t) {
  return {{"token", repaired(t.text)}, {"logprob", t.log_probability}, {"bytes", bytes_of(t.text)}};
}

// Chats have an object for each token, completions four parallel lists with offsets into the text.
ordered_json chat_log_probabilities(const std::vector<token_choice>& tokens) {
  auto content = ordered_json::array();
  for (const auto& t : tokens) {
    auto one = one_token(t.chosen);
    one["top_logprobs"] = ordered_json::array();
    for (const auto& o : t.top) one["top_logprobs"].push_back(one_token(o));
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

/// A token as a key: tokens of the same text must not replace each other. What is not UTF-8 is
/// written as in OpenAI's answers: bytes:\xe2\x98.
std::string key_of(const token_choice::token& t, const ordered_json& taken) {
  auto key = repaired(t.text);
  if (key != t.text) {
    key = "bytes:";
    for (const char c : t.text) key += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return taken.contains(key) ? fmt::format("token_id:{}", t.number) : key;
}

/// The most probable tokens, and the chosen one if it is none of them.
ordered_json top_of(const token_choice& t) {
  auto top = ordered_json::object();
  bool has_chosen = false;
  for (const auto& o : t.top) {
    top[key_of(o, top)] = o.log_probability;
    has_chosen |= o.number == t.chosen.number;
  }
  if (!has_chosen) top[key_of(t.chosen, top)] = t.chosen.log_probability;
  return top;
}

ordered_json completion_log_probabilities(const std::vector<token_choice>& tokens,
                                          std::size_t offset) {
  ordered_json d{{"tokens", ordered_json::array()},
                 {"token_logprobs", ordered_json::array()},
                 {"top_logprobs", ordered_json::array()},
                 {"text_offset", ordered_json::array()}};
  for (const auto& t : tokens) {
    d["tokens"].push_back(repaired(t.chosen.text));
    d["token_logprobs"].push_back(t.begins ? ordered_json()
                                           : ordered_json(t.chosen.log_probability));
    d["top_logprobs"].push_back(t.begins ? ordered_json() : top_of(t));
    d["text_offset"].push_back(offset);
    offset += characters(t.chosen.text);
  }
  return d;
}

ordered_json log_probabilities(const choice& c, bool chat) {
  if (!c.tokens) return {};
  return chat ? chat_log_probabilities(*c.tokens)
              : completion_log_probabilities(*c.tokens, c.text_offset);
}

ordered_json head_document(const answer_head& h, const char* chat_object) {
  return {{"id", h.id},
          {"object", h.chat ? chat_object : "text_completion"},
          {"created", h.created},
          {"model", h.model}};
}

// Sent as an extension with each choice, so that a client can see why its first token took long.
ordered_json place_document(const sequence_place& p) {
  return {{"prefill", p.prefill.bubbles ? "bubbles" : "decoder"},
          {"guests", p.prefill.guests},
          {"yields", p.prefill.yields},
          {"declined", or_null(p.prefill.declined.text)},
          {"decoder", or_null(p.decoder)},
          {"attempts", p.attempts}};
}

/// A choice with its text: of a chat as this key has it.
ordered_json choice_document(const answer_head& h, const choice& c, const char* chat_key,
                             ordered_json chat_text) {
  ordered_json d{{"index", c.index}};
  if (h.chat)
    d[chat_key] = std::move(chat_text);
  else
    d["text"] = c.text;
  d["logprobs"] = log_probabilities(c, h.chat);
  d["finish_reason"] = or_null(c.finish_reason);
  // Keys that OpenAI's API does not have.
  if (c.token_numbers) d["token_ids"] = *c.token_numbers;
  if (c.place) d["where"] = place_document(*c.place);
  return d;
}

std::string event(const ordered_json& d) {
  return "data: " + text_of(d) + "\n\n";
}

// With include_usage every chunk has the key, null until the last one: so does OpenAI's API.
std::string chunk(const answer_head& h, ordered_json choices, bool usage_follows) {
  auto d = head_document(h, "chat.completion.chunk");
  d["choices"] = std::move(choices);
  if (usage_follows) d["usage"] = nullptr;
  return event(d);
}

// max_model_len is vLLM's: clients size their prompts by it. parent and root are those of OpenAI's
// models that were fine-tuned; no path of this machine is in them.
ordered_json model_document(const listed_model& model, std::int64_t created) {
  return {{"id", model.name},
          {"object", "model"},
          {"created", created},
          {"owned_by", "troupe"},
          {"root", model.parent.empty() ? model.name : model.parent},
          {"parent", model.parent.empty() ? ordered_json() : ordered_json(model.parent)},
          {"max_model_len", model.context}};
}

}  // namespace

std::size_t characters(std::string_view text) {
  std::size_t n = 0;
  for (const char c : repaired(text)) n += (c & 0xC0) != 0x80;
  return n;
}

// Insufficient means that a later attempt may succeed here, unavailable that another server should
// be asked; both are retried by OpenAI's clients, invalid requests are not.
problem problem_of(const reason& why) {
  switch (why.code) {
    case reason::kind::invalid:
      return {400, why.text};
    case reason::kind::insufficient:
      return {429, why.text, "rate_limit_error", {}, "rate_limit_exceeded"};
    case reason::kind::unavailable:
    case reason::kind::unknown:
    case reason::kind::device_lost:
    case reason::kind::out_of_memory:
      return {503, why.text, "server_error"};
    default:
      return {500, why.text, "server_error"};
  }
}

std::string to_json(const problem& p) {
  return text_of(problem_document(p));
}

std::string to_json(const answer_head& h, const std::vector<choice>& choices, const usage& u) {
  auto d = head_document(h, "chat.completion");
  d["choices"] = ordered_json::array();
  for (const auto& c : choices)
    d["choices"].push_back(choice_document(
        h, c, "message", {{"role", "assistant"}, {"content", c.text}, {"refusal", nullptr}}));
  d["usage"] = usage_document(u);
  return text_of(d);
}

std::string role_event(const answer_head& h, std::uint32_t index, bool usage_follows) {
  ordered_json c{{"index", index},
                 {"delta", {{"role", "assistant"}, {"content", ""}}},
                 {"logprobs", nullptr},
                 {"finish_reason", nullptr}};
  return chunk(h, ordered_json::array({std::move(c)}), usage_follows);
}

// A chat's last event has an empty delta: clients take the end from finish_reason.
std::string choice_event(const answer_head& h, const choice& c, bool usage_follows) {
  const bool ends = c.text.empty() && !c.finish_reason.empty();
  auto delta = ends ? ordered_json::object() : ordered_json{{"content", c.text}};
  return chunk(h, ordered_json::array({choice_document(h, c, "delta", std::move(delta))}),
               usage_follows);
}

std::string usage_event(const answer_head& h, const usage& u) {
  auto d = head_document(h, "chat.completion.chunk");
  d["choices"] = ordered_json::array();
  d["usage"] = usage_document(u);
  return event(d);
}

std::string error_event(const problem& p) {
  return event(problem_document(p));
}

std::string tokenize_json(const tokens& all, std::uint32_t context,
                          const std::optional<std::vector<std::string>>& texts) {
  ordered_json d{{"count", all.size()}, {"max_model_len", context}, {"tokens", all}};
  d["token_strs"] = nullptr;
  if (texts) {
    d["token_strs"] = ordered_json::array();
    for (const auto& one : *texts) d["token_strs"].push_back(repaired(one));
  }
  return text_of(d);
}

std::string detokenize_json(std::string_view text) {
  return text_of({{"prompt", repaired(text)}});
}

std::string models_json(const std::vector<listed_model>& models, std::int64_t created) {
  auto data = ordered_json::array();
  for (const auto& m : models) data.push_back(model_document(m, created));
  return text_of({{"object", "list"}, {"data", std::move(data)}});
}

std::string model_json(const listed_model& model, std::int64_t created) {
  return text_of(model_document(model, created));
}

}  // namespace troupe::web::openai
