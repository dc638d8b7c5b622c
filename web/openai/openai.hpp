#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <tl/expected.hpp>

#include "gpu/inference/inference_model.hpp"
#include "messages/base/reason.hpp"
#include "messages/domain/completion.hpp"
#include "text/chat/chat_template.hpp"
#include "web/openai/generator.hpp"

// OpenAI's API, as text: JSON to requests, and answers to JSON. Pure functions; nothing throws.

namespace troupe::web::openai {

/// An answer that is an error.
struct problem {
  int status = 400;
  std::string message{};  // a sentence
  std::string type = "invalid_request_error";
  std::string param{};  // the parameter at fault; empty: none
  std::string code{};   // empty: none
};
template <class T>
using parsed = tl::expected<T, problem>;

/// A generator's refusal or failure: 400 `invalid`, 429 `insufficient`, 503 `unavailable`,
/// `unknown`, `device_lost` and `out_of_memory`, else 500.
problem problem_of(const reason& why);

/// {"error": {message, type, param, code}}
std::string to_json(const problem& p);

/// Deeper JSON is refused.
inline constexpr std::size_t deepest_json = 64;
/// Choices of a request: its prompts times `n`.
inline constexpr std::uint32_t max_choices = 128;

using tokens = std::vector<std::uint32_t>;
using prompt = std::variant<std::string, tokens>;

struct request {
  bool chat = false;
  std::string model;
  std::vector<prompt> prompts;              // of a completion: at least one
  std::vector<gpu::chat_message> messages;  // of a chat: at least one
  std::optional<std::uint32_t> max_tokens;  // of a chat at least 1
  gpu::sampling_defaults how;               // those that it gives
  double frequency_penalty = 0, presence_penalty = 0;
  std::vector<token_bias> bias;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stops;  // none empty
  std::uint32_t n = 1;             // choices for each prompt
  bool stream = false, include_usage = false, echo = false;
  std::optional<std::uint32_t> top_logprobs;  // nothing: no log probabilities
  // Extensions.
  bool token_numbers = false;  // return_token_ids: the tokens' numbers, too
  bool ignores_end = false;    // ignore_eos: the model's last tokens do not end a completion
  double ttft_s = 0;           // ttft_ms: goal for the first token; 0: the model's
  std::int32_t priority = 0;
  tokens stop_tokens;                // stop_token_ids: each ends a completion
  std::uint32_t min_tokens = 0;      // before which nothing ends it
  std::optional<bool> adds_special;  // add_special_tokens; nothing: of prompts, not of chats
  // For chats.
  bool asks_for_answer = true;   // add_generation_prompt
  bool continues = false;        // continue_final_message
  std::string template_names{};  // chat_template_kwargs, a JSON object; empty: none
};

/// The body of POST /v1/completions (chat: /v1/chat/completions). Unknown keys are ignored; keys of
/// OpenAI's API and of other servers that would change the answer and are not supported are refused
/// by name.
parsed<request> parse(std::string_view body, bool chat);

/// The body of POST /tokenize: a prompt, or the messages of a chat, as of a request to generate.
struct tokenize_request {
  request what;  // model: may be empty
  bool texts = false;
};
parsed<tokenize_request> parse_tokenize(std::string_view body);
/// The body of POST /detokenize.
struct detokenize_request {
  std::string model;  // may be empty
  tokens all;
};
parsed<detokenize_request> parse_detokenize(std::string_view body);

/// A token with its log probability, and the most probable ones in its place.
struct token_choice {
  struct token {
    std::uint32_t number = 0;
    std::string text;  // any bytes; of a special token its name
    double log_probability = 0;
  };
  token chosen;
  std::vector<token> top;
  bool begins = false;  // the first of a prompt: nothing is before it, and it has no probability
};

/// The fields that all parts of an answer have.
struct answer_head {
  std::string id, model;
  std::int64_t created = 0;  // seconds since 1970
  bool chat = false;
};

struct choice {
  std::uint32_t index = 0;
  std::string text;                                 // valid UTF-8
  std::string_view finish_reason;                   // empty: not yet
  std::optional<std::vector<token_choice>> tokens;  // nothing: no log probabilities
  std::size_t text_offset = 0;                      // characters before the first of these tokens
  std::optional<std::vector<std::uint32_t>> token_numbers{};  // nothing: not asked for
  std::optional<sequence_place> place{};
};

struct usage {
  std::uint64_t prompt_tokens = 0, completion_tokens = 0;
  std::uint64_t cached_tokens = 0;  // of the prompts: they were not computed again
};

/// A whole answer.
std::string to_json(const answer_head& h, const std::vector<choice>& choices, const usage& u);

/// Events of a stream, each "data: ...\n\n". `usage_follows`: the client asked for the usage, so
/// that every chunk has the key.
std::string role_event(const answer_head& h, std::uint32_t index, bool usage_follows);
std::string choice_event(const answer_head& h, const choice& c, bool usage_follows);
std::string usage_event(const answer_head& h, const usage& u);
std::string error_event(const problem& p);
inline constexpr std::string_view last_event = "data: [DONE]\n\n";

/// A model that can be asked.
struct listed_model {
  std::string name;
  std::uint32_t context = 0;  // tokens of a prompt and its completion, at most
  std::string parent{};       // of an adapter: its base's name; empty: it is no adapter
};
/// GET /v1/models, and one of them.
std::string models_json(const std::vector<listed_model>& models, std::int64_t created);
std::string model_json(const listed_model& model, std::int64_t created);

/// The answers to POST /tokenize and /detokenize. `texts`: of each token, if they are asked for.
std::string tokenize_json(const tokens& all, std::uint32_t context,
                          const std::optional<std::vector<std::string>>& texts);
std::string detokenize_json(std::string_view text);

/// Characters of a text, were it repaired to UTF-8.
std::size_t characters(std::string_view text);

}  // namespace troupe::web::openai
