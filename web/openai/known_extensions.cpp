#include <algorithm>

#include "web/openai/request_parts.hpp"

namespace troupe::web::openai {

namespace {

/// A key of another server and the values that ask for nothing there, besides null. Keys that
/// change no answer (names of requests, of users, hints for caches) are not here: they are ignored,
/// as are unknown ones.
const nlohmann::json& values_without_effect() {
  static const nlohmann::json all = nlohmann::json::parse(R"({
    "adapter_id": [""], "adaptive_target": [-1, 0], "allowed_token_ids": [[]],
    "backend_sampling": [false], "bad_words": [[]], "bad_words_ids": [[]],
    "bootstrap_host": [], "chat_format": [], "chat_parser": [""], "chat_template": [],
    "custom_logit_processor": [""], "custom_params": [{}], "decoder_input_details": [false],
    "details": [false], "detokenize": [true], "do_sample": [true], "documents": [[]],
    "dry_multiplier": [0], "dynatemp_range": [0], "ebnf": [""], "enable_thinking": [],
    "epsilon_cutoff": [0], "eta_cutoff": [0], "forced_bos_token_id": [],
    "forced_eos_token_id": [], "format": [""], "generation_prompt": [""], "grammar": [""],
    "grammar_triggers": [[]], "guided_choice": [[]], "guided_grammar": [""],
    "guided_json": [{}, ""], "guided_regex": [""], "guideline": [""], "image_data": [[]],
    "include_stop_str_in_output": [false], "input_embeds": [[]], "input_ids": [[]],
    "json_schema": [{}, ""], "kv_transfer_params": [{}], "length_penalty": [1],
    "logits_processors": [[]], "logprob_start_len": [-1], "logprob_token_ids": [[]],
    "lora": [[]], "lora_path": ["", []], "max_length": [], "max_new_tokens": [],
    "max_repetition_pattern_size": [0], "min_keep": [0, 1], "min_length": [0],
    "min_new_tokens": [0], "mirostat": [0], "mirostat_mode": [0],
    "mm_processor_kwargs": [{}], "n_cmpl": [1], "n_discard": [0], "n_indent": [0],
    "n_keep": [0, -1], "n_predict": [], "n_probs": [0], "no_repeat_ngram_size": [0],
    "no_stop_trim": [false], "num_beams": [1], "options": [{}], "parameters": [{}],
    "penalty_alpha": [0], "penalty_prompt": [""], "post_sampling_probs": [false],
    "preserved_tokens": [[]], "prompt_embeds": [[]], "prompt_logprobs": [],
    "reasoning_budget_tokens": [-1], "reasoning_control": [false],
    "reasoning_format": ["none", "auto"], "regex": [""], "repeat_penalty": [1],
    "repetition_detection": [{}], "response_fields": [[]], "return_full_text": [false],
    "return_hidden_states": [false], "return_logprob": [false], "return_progress": [false],
    "return_prompt_logprobs": [false], "return_routed_experts": [false],
    "return_tokens": [false], "return_tokens_as_token_ids": [false], "sampler_order": [[]],
    "samplers": [[]], "sampling_params": [{}], "sampling_seed": [], "session_params": [{}],
    "skip_special_tokens": [true], "smoothing_factor": [0],
    "spaces_between_special_tokens": [true], "stop_regex": ["", []], "stop_sequences": [[]],
    "structural_tag": ["", {}], "structured_outputs": [{}], "suppress_tokens": [[]],
    "t_max_predict_ms": [0, -1], "tfs_z": [1], "thinking": [{"type": "disabled"}],
    "thinking_budget": [-1], "thinking_budget_tokens": [-1],
    "thinking_forced_open": [false], "thinking_token_budget": [-1],
    "timings_per_token": [false], "token_ids_logprob": [[]], "tool_prompt": [""],
    "top_a": [0], "top_logprobs_num": [0], "top_n_sigma": [-1, 0], "top_n_tokens": [0],
    "truncate": [], "truncate_prompt_tokens": [], "truncation": [false], "typical": [1],
    "typical_p": [1], "use_beam_search": [false], "verbosity": ["medium"], "vllm_xargs": [{}],
    "watermark": [false], "xtc_probability": [0]})");
  return all;
}

bool asks_for_penalties(const nlohmann::json& body) {
  const auto is = [&](const char* key, double neutral) {
    const auto at = body.find(key);
    return at == body.end() || !at->is_number() || at->get<double>() == neutral;
  };
  return !is("frequency_penalty", 0) || !is("presence_penalty", 0) || !is("repetition_penalty", 1);
}

parsed<void> check(const std::string& key, const nlohmann::json& value,
                   const nlohmann::json& neutral) {
  if (value.is_null() || std::ranges::count(neutral, value) > 0) return {};
  if (neutral.empty()) return invalid(key, "is not supported");
  return invalid(key, fmt::format("is not supported: expected {}, which asks for nothing",
                                  neutral.front().dump()));
}

}  // namespace

// llama.cpp's penalties look back over some tokens only; the others' over the whole completion.
parsed<void> refuse_known_extensions(const nlohmann::json& body) {
  const auto& known = values_without_effect();
  for (const auto& [key, value] : body.items())
    if (const auto at = known.find(key); at != known.end())
      if (auto ok = check(key, value, *at); !ok) return ok;
  if (const auto at = body.find("repeat_last_n"); at != body.end() && asks_for_penalties(body))
    return check("repeat_last_n", *at, nlohmann::json::array({-1}));
  return {};
}

}  // namespace troupe::web::openai
