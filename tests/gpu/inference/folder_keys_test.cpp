#include <catch2/catch.hpp>

#include "gpu/inference/inference_model.hpp"
#include "gpu/inference/model_folder.hpp"
#include "harness/files.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

/// A small model's config.json with more keys.
std::string with_keys(const std::string& keys, const std::string& kind = "llama") {
  auto text = small_model_named(kind).config;
  text.pop_back();
  return text + ", " + keys + "}";
}

inference_model read_config(const std::string& config) {
  return loaded(read_inference_model(temporary("keys/config.json", config).parent_path()));
}

std::string refused_config(const std::string& config) {
  const auto m = read_inference_model(temporary("keys/config.json", config).parent_path());
  INFO(config);
  CHECK_FALSE(m);
  return m ? "" : m.error().text;
}

/// The keys that are not applied of this generation_config.json.
std::vector<std::string> not_applied(const std::string& generation) {
  const auto folder = temporary("not-applied/config.json", small_model_named("llama").config);
  temporary("not-applied/generation_config.json", generation);
  return loaded(read_inference_model(folder.parent_path())).ignored_keys;
}

/// rope_scaling and rope_parameters with these members.
void check_refused_rope(const std::string& members, const std::string& why) {
  for (const std::string key : {"rope_scaling", "rope_parameters"})
    CHECK_THAT(refused_config(with_keys("\"" + key + "\": {" + members + "}")),
               Contains("config.json: " + key + ": " + why));
}

void check_taken_rope(const std::string& members, const rope_scaling& expected) {
  for (const std::string key : {"rope_scaling", "rope_parameters"}) {
    INFO(key << ": " << members);
    CHECK(read_config(with_keys("\"" + key + "\": {" + members + "}")).rope == expected);
  }
}

}  // namespace

TEST_CASE("a key of a rope scaling that its type does not use is refused") {
  check_refused_rope("\"factor\": 2.0", "factor: found 2.0, expected a rope_type that uses it");
  check_refused_rope("\"rope_type\": \"default\", \"factor\": 8",
                     "factor: found 8, expected none: 'default' does not use it");
  check_refused_rope("\"mrope_section\": [16, 24, 24]", "mrope_section: found [16,24,24]");
  check_refused_rope("\"rope_type\": \"default\", \"type\": \"mrope\"", "type: found \"mrope\"");
  check_refused_rope("\"type\": \"linear\", \"factor\": 2, \"attention_factor\": 0.5",
                     "attention_factor: found 0.5, expected none: 'linear' does not use it");
  check_refused_rope("\"type\": \"linear\", \"factor\": 2, \"low_freq_factor\": 1",
                     "low_freq_factor: found 1");
  check_refused_rope("\"partial_rotary_factor\": 0.5", "partial_rotary_factor: found 0.5");
  check_refused_rope("\"full_attention\": {\"rope_theta\": 10000.0}", "full_attention: found {");
  check_refused_rope("\"rope_type\": \"linear\", \"factor\": NaN", "factor: found \"NaN\"");
}

TEST_CASE("a rope scaling's keys that change nothing are passed over") {
  const rope_scaling none, linear{rope_scaling::kind::linear, 2.0};
  check_taken_rope("", none);
  check_taken_rope("\"rope_type\": \"default\", \"factor\": 1.0", none);
  check_taken_rope("\"factor\": null, \"rope_type\": null", none);
  check_taken_rope("\"partial_rotary_factor\": 1, \"original_max_position_embeddings\": 64", none);
  check_taken_rope("\"type\": \"linear\", \"rope_type\": \"linear\", \"factor\": 2.0", linear);
  check_taken_rope("\"rope_type\": \"linear\", \"factor\": 2, \"finetuned\": true", linear);
  CHECK(read_config(with_keys("\"rope_parameters\": {\"rope_theta\": 500.0}")).rope_theta == 500);
}

TEST_CASE("rope_scaling and rope_parameters beside each other must mean the same") {
  const auto both = [](const std::string& first, const std::string& second) {
    return with_keys("\"rope_scaling\": " + first + ", \"rope_parameters\": " + second);
  };
  const std::string twice = R"({"type": "linear", "factor": 2})";
  const std::string same = R"({"rope_type": "linear", "factor": 2.0})";
  CHECK(read_config(both(twice, same)).positions == 896);
  CHECK(read_config(both("null", same)).positions == 896);
  for (const std::string other : {"{}", R"({"type": "linear", "factor": 3})"}) {
    CHECK_THAT(refused_config(both(twice, other)), Contains("expected what rope_scaling says"));
    CHECK_THAT(refused_config(both(other, twice)), Contains("expected what rope_scaling says"));
  }
}

TEST_CASE("linear scaling multiplies the context, and Llama 3's does not") {
  const auto scaled = [](const std::string& factor) {
    return with_keys("\"rope_scaling\": {\"type\": \"linear\", \"factor\": " + factor + "}");
  };
  CHECK(read_config(scaled("4.0")).positions == 4 * 448);
  CHECK(read_config(scaled("1")).positions == 448);
  CHECK(read_config(scaled("1.001")).positions == 448);  // 448.448
  CHECK(read_config(small_model_named("llama3").config).positions == 448);
  CHECK_THAT(refused_config(scaled("900000")),
             Contains("448 positions, scaled by a factor of 900000: expected at most 100000000"));
  CHECK_THAT(refused_config(with_keys(R"("rope_scaling": {"type": "yarn", "factor": 900000})")),
             Contains("448 positions, scaled by a factor of 900000: expected at most 100000000"));
}

TEST_CASE("keys that are right at one value only are refused at others") {
  for (const std::string kind : {"llama", "gpt2", "qwen2", "mistral"}) {
    CHECK_THAT(refused_config(with_keys("\"is_causal\": false", kind)),
               Contains("is_causal: found false, expected true"));
    CHECK_THAT(refused_config(with_keys("\"add_cross_attention\": true", kind)),
               Contains("add_cross_attention: found true, expected false"));
    CHECK_THAT(refused_config(with_keys("\"final_logit_softcapping\": 30.0", kind)),
               Contains("final_logit_softcapping: found 30.0, expected null"));
    CHECK_THAT(refused_config(with_keys("\"logits_scaling\": 8.0", kind)),
               Contains("logits_scaling: found 8.0, expected 1"));
    read_config(
        with_keys("\"is_causal\": true, \"logits_scaling\": 1.0, "
                  "\"is_encoder_decoder\": false, \"alibi\": null",
                  kind));
  }
}

TEST_CASE("end tokens beyond the vocabulary are never chosen, and left out") {
  const auto last = [](const std::string& key, const std::string& value) {
    return read_config(with_keys("\"" + key + "\": " + value));
  };
  CHECK(last("eos_token_id", "96").last_tokens.empty());
  CHECK(last("eos_token_id", "50256").last_tokens.empty());
  CHECK(last("eos_token_id", "18446744073709551615").last_tokens.empty());
  CHECK(last("eos_token_id", "[95, 96, -1, 3]").last_tokens == std::vector<std::uint32_t>{95, 3});
  CHECK_FALSE(last("bos_token_id", "50256").first_token);
  CHECK(last("bos_token_id", "95").first_token == 95u);
  const auto folder = temporary("ends/config.json", with_keys("\"eos_token_id\": 5"));
  temporary("ends/generation_config.json", R"({"eos_token_id": [7, 128009]})");
  CHECK(loaded(read_inference_model(folder.parent_path())).last_tokens ==
        std::vector<std::uint32_t>{7});
}

TEST_CASE("a window that no layer has is none") {
  const auto qwen = [](const std::string& keys) {
    auto text = small_model_named("qwen2").config;
    const std::string off = "\"use_sliding_window\": false";
    text.replace(text.find(off), off.size(), "\"use_sliding_window\": true");
    text.pop_back();
    return text + keys + "}";
  };
  const std::string full = "\"full_attention\"", sliding = "\"sliding_attention\"";
  const auto types = [](const std::string& last) {
    const std::string full_ones = R"("full_attention", "full_attention", "full_attention", )";
    return ", \"layer_types\": [" + full_ones + last + "]";
  };
  read_config(qwen(", \"max_window_layers\": 4"));
  read_config(qwen(", \"max_window_layers\": 28"));
  read_config(qwen(""));  // 28 is the default
  read_config(qwen(", \"max_window_layers\": 0" + types(full)));
  CHECK_THAT(refused_config(qwen(", \"max_window_layers\": 3")),
             Contains("sliding_window: found 64, expected null or at least the context (448)"));
  CHECK_THAT(refused_config(qwen(types(sliding))), Contains("layer_types: found " + sliding));
  CHECK_THAT(refused_config(qwen(", \"layer_types\": [" + full + "]")),
             Contains("expected a list of 4 names"));
  // Llama has none.
  read_config(with_keys("\"use_sliding_window\": true, \"sliding_window\": 64"));
  CHECK_THAT(refused_config(with_keys(types(sliding).substr(2))), Contains("layer_types"));
}

TEST_CASE("the default window of transformers counts where the key is missing") {
  auto text = small_model_named("mistral").config;
  const std::string window = ", \"sliding_window\": null", positions = ": 448";
  text.replace(text.find(positions), positions.size(), ": 5000");
  CHECK(read_config(text).window == 0);
  text.erase(text.find(window), window.size());
  CHECK(read_config(text).window == 4096);
}

TEST_CASE("numbers as Python writes them are read where no number is needed") {
  read_config(with_keys(R"("loss": NaN, "a": [Infinity, -Infinity, 1e999], "b": "x\"NaN")"));
  CHECK_THAT(refused_config(with_keys("\"rope_theta\": Infinity")),
             Contains("rope_theta: found \"Infinity\", expected a number"));
  CHECK_THAT(refused_config(with_keys("\"rope_theta\": -1e999")), Contains("rope_theta: found"));
  CHECK_THAT(refused_config(with_keys("\"a\": nan")),
             Contains("is not a JSON object, by its line 1"));
  CHECK_THAT(refused_config("{\n\"a\": 1,\n\"b\" 2\n}"), Contains("by its line 3"));
  CHECK(not_applied(R"({"max_time": Infinity, "x": NaN})") ==
        std::vector<std::string>{"max_time", "x"});
}

TEST_CASE(
    "keys of generation_config.json that are not applied are named unless they are harmless") {
  // Values that change answers, of all keys of transformers that can.
  const std::pair<const char*, const char*> changing[] = {
      {"bad_words_ids", "[[65]]"},
      {"begin_suppress_tokens", "[5]"},
      {"chat_format", "\"chatml\""},
      {"constraints", "[1]"},
      {"diversity_penalty", "0.5"},
      {"do_sample", "false"},
      {"dola_layers", "\"high\""},
      {"encoder_no_repeat_ngram_size", "2"},
      {"encoder_repetition_penalty", "1.2"},
      {"epsilon_cutoff", "0.1"},
      {"eta_cutoff", "0.1"},
      {"exponential_decay_length_penalty", "[5, 1.5]"},
      {"force_words_ids", "[[1]]"},
      {"forced_bos_token_id", "3"},
      {"forced_eos_token_id", "66"},
      {"guidance_scale", "1.5"},
      {"length_penalty", "2.0"},
      {"max_length", "20"},
      {"max_new_tokens", "4"},
      {"max_time", "3.0"},
      {"min_length", "4"},
      {"min_new_tokens", "4"},
      {"no_repeat_ngram_size", "3"},
      {"num_beam_groups", "2"},
      {"num_beams", "4"},
      {"num_return_sequences", "2"},
      {"penalty_alpha", "0.6"},
      {"sequence_bias", "[[[5], 1.0]]"},
      {"stop_strings", "[\"x\"]"},
      {"suppress_tokens", "[65, 66]"},
      {"token_healing", "true"},
      {"top_h", "0.4"},
      {"typical_p", "0.9"},
      {"watermarking_config", "{}"},
  };
  std::string all;
  std::vector<std::string> names;
  for (const auto& [key, value] : changing) {
    CHECK(not_applied(std::string{"{\""} + key + "\": " + value + "}") ==
          std::vector<std::string>{key});
    CHECK(not_applied(std::string{"{\""} + key + "\": null}").empty());
    all += std::string{all.empty() ? "{" : ", "} + "\"" + key + "\": " + value;
    names.emplace_back(key);
  }
  CHECK(not_applied(all + "}") == names);
  CHECK(not_applied(R"({"max_length": 448, "max_new_tokens": 2048, "repetition_penalty": 1.0,
    "num_beams": 1, "do_sample": true, "transformers_version": "5.2.0", "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "_from_model_config": true, "temperature": 0.6,
    "top_k": 50, "top_p": 1.0, "use_cache": true, "suppress_tokens": [], "min_length": 0,
    "output_scores": false, "cache_implementation": "hybrid", "early_stopping": true,
    "length_penalty": 1.0})")
            .empty());
}
