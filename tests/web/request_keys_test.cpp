#include <catch2/catch.hpp>

#include <string>
#include <tuple>

#include "web/openai/openai.hpp"

using namespace troupe::web;

// Keys of requests, as other servers' schemas list them, each with a value that asks for something:
// none may be passed over in silence.

namespace {

enum class endpoint { both, completions, chats };

struct asking_key {
  const char* pair;
  endpoint of = endpoint::both;
};

std::string body_with(const std::string& pairs, bool chat) {
  return std::string{R"({"model": "m", )"} +
         (chat ? R"("messages": [{"role": "user", "content": "a"}])" : R"("prompt": "a")") +
         (pairs.empty() ? "" : ", " + pairs) + "}";
}

std::string name_of(const std::string& pair) {
  return pair.substr(1, pair.find('"', 1) - 1);
}

/// All of a request that an answer depends on, but its messages.
auto effect_of(const openai::request& r) {
  const auto& h = r.how;
  std::vector<std::pair<std::uint32_t, double>> bias;
  for (const auto& b : r.bias) bias.emplace_back(b.token, b.bias);
  return std::tuple{
      std::tuple{r.prompts, r.max_tokens, r.frequency_penalty, r.presence_penalty, bias, r.seed,
                 r.stops, r.n, r.stream, r.include_usage, r.echo, r.top_logprobs},
      std::tuple{h.temperature, h.top_p, h.min_p, h.top_k, h.repetition_penalty},
      std::tuple{r.token_numbers, r.ignores_end, r.ttft_s, r.priority, r.stop_tokens, r.min_tokens,
                 r.adds_special, r.asks_for_answer, r.continues, r.template_names}};
}

void check_has_effect(const std::string& pair, bool chat) {
  INFO(pair << (chat ? " of a chat" : " of a completion"));
  const auto plain = openai::parse(body_with({}, chat), chat);
  const auto r = openai::parse(body_with(pair, chat), chat);
  REQUIRE(plain);
  if (r) {
    CHECK(effect_of(*r) != effect_of(*plain));
    return;
  }
  CHECK(r.error().status == 400);
  CHECK(r.error().param == name_of(pair));
  CHECK(r.error().message.find(name_of(pair)) != std::string::npos);
}

void check_changes_nothing(const std::string& pair, bool chat) {
  INFO(pair << (chat ? " of a chat" : " of a completion"));
  const auto plain = openai::parse(body_with({}, chat), chat);
  const auto r = openai::parse(body_with(pair, chat), chat);
  REQUIRE(plain);
  INFO((r ? "" : r.error().message));
  REQUIRE(r);
  CHECK(effect_of(*r) == effect_of(*plain));
}

using enum endpoint;

constexpr asking_key of_openai[] = {
    {R"("max_tokens": 5)"},
    {R"("max_completion_tokens": 5)"},
    {R"("temperature": 0.5)"},
    {R"("top_p": 0.5)"},
    {R"("n": 2)"},
    {R"("stream": true)"},
    {R"("stream_options": {"include_usage": true})"},
    {R"("logprobs": 2)", completions},
    {R"("logprobs": true)", chats},
    {R"("top_logprobs": 2)", chats},
    {R"("echo": true)"},
    {R"("best_of": 2)"},
    {R"("suffix": "x")"},
    {R"("stop": "x")"},
    {R"("seed": 3)"},
    {R"("frequency_penalty": 1)"},
    {R"("presence_penalty": 1)"},
    {R"("logit_bias": {"5": 1})"},
    {R"("response_format": {"type": "json_object"})"},
    {R"("response_format": {"type": "json_schema", "json_schema": {"name": "x"}})"},
    {R"("response_format": {})"},
    {R"("tools": [{"type": "function", "function": {"name": "f"}}])"},
    {R"("tool_choice": "auto")"},
    {R"("tool_choice": "required")"},
    {R"("functions": [{"name": "f"}])"},
    {R"("function_call": "auto")"},
    {R"("modalities": ["text", "audio"])"},
    {R"("audio": {"voice": "x", "format": "wav"})"},
    {R"("prediction": {"type": "content", "content": "x"})"},
    {R"("web_search_options": {})"},
    {R"("web_search_options": {"search_context_size": "low"})"},
    {R"("verbosity": "low")"},
    {R"("reasoning_effort": "low")", chats},
};

constexpr asking_key of_vllm[] = {
    {R"("use_beam_search": true)"},
    {R"("top_k": 5)"},
    {R"("min_p": 0.1)"},
    {R"("repetition_penalty": 1.1)"},
    {R"("length_penalty": 0.5)"},
    {R"("stop_token_ids": [3])"},
    {R"("include_stop_str_in_output": true)"},
    {R"("ignore_eos": true)"},
    {R"("min_tokens": 3)"},
    {R"("skip_special_tokens": false)"},
    {R"("spaces_between_special_tokens": false)"},
    {R"("truncate_prompt_tokens": 5)"},
    {R"("truncate_prompt_tokens": -1)"},
    {R"("prompt_logprobs": 1)"},
    {R"("prompt_logprobs": 0)"},
    {R"("allowed_token_ids": [65, 66])"},
    {R"("bad_words": ["x"])"},
    {R"("prompt_embeds": "AAAA")"},
    {R"("add_special_tokens": false)", completions},
    {R"("add_special_tokens": true)", chats},
    {R"("add_generation_prompt": false)", chats},
    {R"("continue_final_message": true)"},
    {R"("chat_template": "{{ 1 }}")"},
    {R"("chat_template_kwargs": {"enable_thinking": false})"},
    {R"("documents": [{"title": "a", "text": "b"}])"},
    {R"("mm_processor_kwargs": {"a": 1})"},
    {R"("structured_outputs": {"choice": ["a", "b"]})"},
    {R"("guided_json": {"type": "object"})"},
    {R"("guided_regex": "a+")"},
    {R"("guided_choice": ["a", "b"])"},
    {R"("guided_grammar": "root ::= a")"},
    {R"("structural_tag": "{}")"},
    {R"("logits_processors": ["a.b"])"},
    {R"("return_tokens_as_token_ids": true)"},
    {R"("return_token_ids": true)"},
    {R"("kv_transfer_params": {"do_remote_decode": true})"},
    {R"("vllm_xargs": {"a": 1})"},
    {R"("repetition_detection": {"max_pattern_size": 4, "min_count": 3})"},
    {R"("max_repetition_pattern_size": 4)"},
    {R"("thinking_token_budget": 10)"},
    {R"("detokenize": false)"},
    {R"("logprob_token_ids": [1])"},
    {R"("priority": 3)"},
};

constexpr asking_key of_sglang[] = {
    {R"("regex": "a+")"},
    {R"("ebnf": "root ::= a")"},
    {R"("json_schema": "{\"type\": \"object\"}")"},
    {R"("stop_regex": "a+")"},
    {R"("stop_regex": ["a+"])"},
    {R"("no_stop_trim": true)"},
    {R"("min_new_tokens": 3)"},
    {R"("max_new_tokens": 3)"},
    {R"("sampling_params": {"temperature": 0})"},
    {R"("sampling_seed": 3)"},
    {R"("lora_path": "x")"},
    {R"("session_params": {"id": "x"})"},
    {R"("custom_logit_processor": "x")"},
    {R"("custom_params": {"a": 1})"},
    {R"("return_hidden_states": true)"},
    {R"("return_routed_experts": true)"},
    {R"("return_prompt_logprobs": true)"},
    {R"("return_logprob": true)"},
    {R"("logprob_start_len": 0)"},
    {R"("top_logprobs_num": 2)"},
    {R"("token_ids_logprob": [1])"},
    {R"("input_ids": [1, 2])"},
    {R"("input_embeds": [[1.0]])"},
    {R"("image_data": ["x"])"},
    {R"("bootstrap_host": "x")"},
};

constexpr asking_key of_tgi[] = {
    {R"("adapter_id": "x")"},
    {R"("parameters": {"do_sample": true})"},
    {R"("do_sample": false)"},
    {R"("stop_sequences": ["x"])"},
    {R"("details": true)"},
    {R"("decoder_input_details": true)"},
    {R"("return_full_text": true)"},
    {R"("top_n_tokens": 2)"},
    {R"("truncate": 5)"},
    {R"("typical_p": 0.5)"},
    {R"("watermark": true)"},
    {R"("grammar": {"type": "regex", "value": "a+"})"},
    {R"("guideline": "x")"},
    {R"("tool_prompt": "x")"},
};

constexpr asking_key of_llama_cpp[] = {
    {R"("n_predict": 5)"},
    {R"("n_cmpl": 2)"},
    {R"("n_indent": 2)"},
    {R"("n_keep": 5)"},
    {R"("n_discard": 5)"},
    {R"("n_probs": 2)"},
    {R"("min_keep": 2)"},
    {R"("t_max_predict_ms": 100)"},
    {R"("response_fields": ["content"])"},
    {R"("return_tokens": true)"},
    {R"("return_progress": true)"},
    {R"("timings_per_token": true)"},
    {R"("post_sampling_probs": true)"},
    {R"("backend_sampling": true)"},
    {R"("dynatemp_range": 0.5)"},
    {R"("top_n_sigma": 1)"},
    {R"("xtc_probability": 0.5)"},
    {R"("adaptive_target": 0.5)"},
    {R"("typical": 0.5)"},
    {R"("tfs_z": 0.5)"},
    {R"("repeat_penalty": 1.1)"},
    {R"("penalty_prompt": "x")"},
    {R"("dry_multiplier": 0.8)"},
    {R"("mirostat": 2)"},
    {R"("samplers": ["top_k"])"},
    {R"("samplers": "kp")"},
    {R"("lora": [{"id": 0, "scale": 0.5}])"},
    {R"("grammar": "root ::= a")"},
    {R"("grammar_triggers": [{"type": 0, "value": "x"}])"},
    {R"("json_schema": {"type": "object"})"},
    {R"("preserved_tokens": ["<x>"])"},
    {R"("chat_format": 2)"},
    {R"("chat_parser": "x")"},
    {R"("generation_prompt": "x")"},
    {R"("reasoning_format": "deepseek")"},
    {R"("reasoning_control": true)"},
    {R"("reasoning_budget_tokens": 0)"},
    {R"("thinking_budget_tokens": 10)"},
    {R"("thinking_forced_open": true)"},
};

// Those of transformers, and of servers that have copied its names or each other's.
constexpr asking_key of_others[] = {
    {R"("bad_words_ids": [[1]])"},    {R"("suppress_tokens": [1])"},
    {R"("forced_bos_token_id": 1)"},  {R"("forced_eos_token_id": 1)"},
    {R"("no_repeat_ngram_size": 2)"}, {R"("num_beams": 2)"},
    {R"("penalty_alpha": 0.6)"},      {R"("epsilon_cutoff": 0.1)"},
    {R"("eta_cutoff": 0.1)"},         {R"("max_length": 5)"},
    {R"("min_length": 5)"},           {R"("mirostat_mode": 1)"},
    {R"("smoothing_factor": 0.2)"},   {R"("top_a": 0.2)"},
    {R"("sampler_order": [1, 0])"},   {R"("truncation": true)"},
    {R"("enable_thinking": false)"},  {R"("thinking": {"type": "enabled"})"},
    {R"("thinking_budget": 10)"},     {R"("options": {"num_ctx": 5})"},
    {R"("format": "json")"},
};

}  // namespace

TEST_CASE("a key that other servers know changes the request, or is refused by its name") {
  const auto check_all = [](const auto& keys) {
    for (const auto& k : keys) {
      if (k.of != chats) check_has_effect(k.pair, false);
      if (k.of != completions) check_has_effect(k.pair, true);
    }
  };
  check_all(of_openai);
  check_all(of_vllm);
  check_all(of_sglang);
  check_all(of_tgi);
  check_all(of_llama_cpp);
  check_all(of_others);
  // It looks back over some tokens, and the penalties here over all.
  check_has_effect(R"("repeat_last_n": 64, "presence_penalty": 1)", false);
}

TEST_CASE("values of other servers' keys that ask for nothing are accepted") {
  for (const char* pair :
       {R"("adapter_id": "")",
        R"("adaptive_target": -1, "adaptive_decay": 0.9)",
        R"("allowed_token_ids": [])",
        R"("backend_sampling": false)",
        R"("bad_words": [], "bad_words_ids": [])",
        R"("chat_parser": "")",
        R"("custom_logit_processor": "", "custom_params": {})",
        R"("details": false, "decoder_input_details": false)",
        R"("detokenize": true)",
        R"("do_sample": true)",
        R"("documents": [])",
        R"("dry_multiplier": 0.0, "dry_base": 1.75, "dry_allowed_length": 2)",
        R"("dynatemp_range": 0, "dynatemp_exponent": 1.0)",
        R"("ebnf": "", "regex": "", "json_schema": {}, "grammar": "", "grammar_lazy": false)",
        R"("epsilon_cutoff": 0, "eta_cutoff": 0.0)",
        R"("format": "")",
        R"("generation_prompt": "", "preserved_tokens": [], "grammar_triggers": [])",
        R"("guided_choice": [], "guided_grammar": "", "guided_json": {}, "guided_regex": "")",
        R"("guideline": "")",
        R"("image_data": [], "input_embeds": [], "input_ids": [], "prompt_embeds": [])",
        R"("include_stop_str_in_output": false)",
        R"("kv_transfer_params": {})",
        R"("length_penalty": 1.0)",
        R"("logits_processors": [], "logprob_token_ids": [])",
        R"("lora": [], "lora_path": "")",
        R"("max_repetition_pattern_size": 0, "min_repetition_pattern_size": 0)",
        R"("min_keep": 0, "min_length": 0, "min_new_tokens": 0)",
        R"("mirostat": 0, "mirostat_mode": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1)",
        R"("mm_processor_kwargs": {})",
        R"("n_cmpl": 1, "n_discard": 0, "n_indent": 0, "n_keep": -1, "n_probs": 0)",
        R"("no_repeat_ngram_size": 0, "num_beams": 1)",
        R"("no_stop_trim": false)",
        R"("options": {}, "parameters": {}, "sampling_params": {}, "session_params": {})",
        R"("penalty_alpha": 0, "penalty_prompt": "")",
        R"("post_sampling_probs": false)",
        R"("reasoning_format": "auto", "reasoning_control": false)",
        R"("reasoning_budget_tokens": -1, "thinking_budget_tokens": -1, "thinking_budget": -1)",
        R"("repeat_penalty": 1.0, "repeat_last_n": 64)",
        R"("repetition_detection": {})",
        R"("response_fields": [], "return_tokens": false, "return_progress": false)",
        R"("return_full_text": false, "return_hidden_states": false)",
        R"("return_logprob": false, "logprob_start_len": -1, "top_logprobs_num": 0)",
        R"("return_prompt_logprobs": false, "return_routed_experts": false)",
        R"("return_tokens_as_token_ids": false, "token_ids_logprob": [])",
        R"("samplers": [], "sampler_order": [])",
        R"("skip_special_tokens": true, "spaces_between_special_tokens": true)",
        R"("smoothing_factor": 0)",
        R"("stop_regex": [], "stop_sequences": [])",
        R"("structural_tag": "", "structured_outputs": {})",
        R"("suppress_tokens": [])",
        R"("t_max_predict_ms": -1, "timings_per_token": false)",
        R"("tfs_z": 1.0, "top_a": 0, "top_n_sigma": -1.0, "typical": 1.0, "typical_p": 1.0)",
        R"("thinking": {"type": "disabled"}, "thinking_forced_open": false)",
        R"("thinking_token_budget": -1)",
        R"("tool_prompt": "", "top_n_tokens": 0, "truncation": false)",
        R"("use_beam_search": false)",
        R"("verbosity": "medium")",
        R"("vllm_xargs": {})",
        R"("watermark": false)",
        R"("xtc_probability": 0.0, "xtc_threshold": 0.1)"})
    for (const bool chat : {false, true}) check_changes_nothing(pair, chat);
}

TEST_CASE("keys that change no answer, and unknown ones, are passed over") {
  for (const char* pair :
       {R"("user": "me")", R"("metadata": {"a": "b"})", R"("store": true)",
        R"("service_tier": "auto")", R"("prompt_cache_key": "x")", R"("safety_identifier": "x")",
        R"("parallel_tool_calls": true)", R"("request_id": "x")", R"("rid": "x")",
        R"("cache_salt": "x")", R"("cache_prompt": false)", R"("id_slot": 3)",
        R"("n_cache_reuse": 64)", R"("sse_ping_interval": 5)", R"("data_parallel_rank": 0)",
        R"("guided_decoding_backend": "x")", R"("unknown": [1])"})
    for (const bool chat : {false, true}) check_changes_nothing(pair, chat);
}
