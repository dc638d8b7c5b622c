#include "gpu/inference/known_keys.hpp"
#include "messages/base/shown.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

namespace troupe::gpu {

namespace {

using nlohmann::json;
using named_value = std::pair<const char*, json>;

/// Settings of answers that are applied, or that change none: numbers of tokens that are read
/// elsewhere, what a program gets besides the tokens, how caches and drafts are kept, and when a
/// search with beams ends, for which num_beams is named.
constexpr std::string_view harmless_settings[] = {"temperature",
                                                  "top_p",
                                                  "top_k",
                                                  "min_p",
                                                  "repetition_penalty",
                                                  "eos_token_id",  // these are applied
                                                  "bos_token_id",
                                                  "pad_token_id",
                                                  "decoder_start_token_id",
                                                  "_from_model_config",
                                                  "_commit_hash",
                                                  "transformers_version",
                                                  "trust_remote_code",
                                                  "use_cache",
                                                  "cache_implementation",
                                                  "cache_config",
                                                  "return_legacy_cache",
                                                  "prefill_chunk_size",
                                                  "compile_config",
                                                  "disable_compile",
                                                  "low_memory",
                                                  "output_attentions",
                                                  "output_hidden_states",
                                                  "output_scores",
                                                  "output_logits",
                                                  "return_dict_in_generate",
                                                  "remove_invalid_values",
                                                  "renormalize_logits",
                                                  "early_stopping",
                                                  "is_assistant",
                                                  "num_assistant_tokens",
                                                  "num_assistant_tokens_schedule",
                                                  "assistant_confidence_threshold",
                                                  "assistant_early_exit",
                                                  "assistant_lookbehind",
                                                  "target_lookbehind",
                                                  "prompt_lookup_num_tokens",
                                                  "max_matching_ngram_size"};

/// Settings that are not applied, with the value that asks for nothing.
const std::vector<named_value>& neutral_settings() {
  static const std::vector<named_value> all{
      {"do_sample", true},
      {"encoder_repetition_penalty", 1},
      {"typical_p", 1},
      {"top_h", 1},
      {"epsilon_cutoff", 0},
      {"eta_cutoff", 0},
      {"no_repeat_ngram_size", 0},
      {"encoder_no_repeat_ngram_size", 0},
      {"num_beams", 1},
      {"num_beam_groups", 1},
      {"length_penalty", 1},
      {"diversity_penalty", 0},
      {"num_return_sequences", 1},
      {"penalty_alpha", 0},
      {"guidance_scale", 1},
      {"min_length", 0},
      {"min_new_tokens", 0},
      {"suppress_tokens", json::array()},
      {"begin_suppress_tokens", json::array()},
      {"bad_words_ids", json::array()},
      {"sequence_bias", json::object()},
      {"stop_strings", json::array()},
      {"dola_layers", json::array()},
      {"generation_kwargs", json::object()},
      {"token_healing", false},
  };
  return all;
}

bool is_neutral(std::string_view key, const json& value, std::uint32_t positions) {
  if (value.is_null() || std::ranges::find(harmless_settings, key) != std::end(harmless_settings))
    return true;
  // A bound that no answer reaches.
  if (key == "max_length" || key == "max_new_tokens")
    return value.is_number() && value.get<double>() >= positions;
  const auto& all = neutral_settings();
  const auto found = std::ranges::find(all, key, &named_value::first);
  return found != all.end() && found->second == value;
}

}  // namespace

// Keys of other families, too: a model whose file has one computes something else, whatever its
// type says.
std::span<const named_value> keys_of_one_value() {
  static const std::vector<named_value> all{
      {"is_causal", true},
      {"is_encoder_decoder", false},
      {"add_cross_attention", false},
      {"partial_rotary_factor", 1.0},
      {"rotary_pct", 1},
      {"rope_interleaved", false},
      {"use_mrope", false},
      {"alibi", false},
      {"attn_logit_softcapping", nullptr},
      {"final_logit_softcapping", nullptr},
      {"logit_scale", 1},
      {"logits_scaling", 1},
      {"embedding_multiplier", 1},
      {"residual_multiplier", 1},
      {"attention_multiplier", nullptr},
      {"scale_emb", 1},
      {"clip_qkv", nullptr},
      {"qk_norm", false},
      {"use_qk_norm", false},
      {"qk_layernorm", false},
      {"no_rope_layers", nullptr},
      {"attention_chunk_size", nullptr},
  };
  return all;
}

// `finetuned` tells how the model was made; original_max_position_embeddings is used by llama3
// and yarn alone.
std::span<const std::string_view> rope_keys(std::string_view type) {
  static constexpr std::array<std::string_view, 8> names{"rope_theta",
                                                         "rope_type",
                                                         "type",
                                                         "finetuned",
                                                         "original_max_position_embeddings",
                                                         "factor",
                                                         "low_freq_factor",
                                                         "high_freq_factor"};
  static constexpr std::array<std::string_view, 12> of_yarn{"rope_theta",
                                                            "rope_type",
                                                            "type",
                                                            "finetuned",
                                                            "original_max_position_embeddings",
                                                            "factor",
                                                            "beta_fast",
                                                            "beta_slow",
                                                            "truncate",
                                                            "mscale",
                                                            "mscale_all_dim",
                                                            "attention_factor"};
  if (type == "yarn") return of_yarn;
  const std::span<const std::string_view> all{names};
  if (type == "llama3") return all;
  return type == "linear" || type == "dynamic" ? all.first(6) : all.first(5);
}

bool is_neutral_rope_key(std::string_view key, const json& value) {
  constexpr std::string_view neutral[] = {"factor", "partial_rotary_factor", "attention_factor"};
  return std::ranges::find(neutral, key) != std::end(neutral) && value == 1;
}

std::vector<std::string> settings_not_applied(const json& generation, std::uint32_t positions) {
  std::vector<std::string> all;
  for (const auto& [key, value] : generation.items())
    if (!is_neutral(key, value, positions)) all.push_back(shown(key));
  return all;
}

std::string quantization_text(const json& config) {
  if (!config.is_object()) return "in a form that is not known";
  std::string text;
  for (const char* key : {"quant_method", "quant_algo", "format", "fmt", "bits", "w_bit"})
    if (const auto found = config.find(key); found != config.end() && text.empty())
      text = found->is_string() ? found->get<std::string>() : found->dump();
  const auto bits = config.find("bits");
  if (bits != config.end() && bits->is_number_unsigned())
    text = fmt::format("{}{} bits", text.empty() || text == bits->dump() ? "" : text + ", ",
                       bits->get<std::uint64_t>());
  return text.empty() ? "in a form that is not known" : shown(text);
}

}  // namespace troupe::gpu
