#include <catch2/catch.hpp>

#include <cstring>
#include <fstream>
#include <functional>

#include "gpu/inference/inference_device.hpp"
#include "gpu/inference/model_folder.hpp"
#include "gpu/model/safetensors.hpp"
#include "harness/files.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;
using Catch::Contains;

namespace {

namespace fs = std::filesystem;

/// A llama's config.json with one thing replaced.
std::string changed(const std::string& what, const std::string& by,
                    const std::string& kind = "llama") {
  auto text = small_model_named(kind).config;
  const auto at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), by);
}

std::string added(const std::string& keys, const std::string& kind = "llama") {
  auto text = small_model_named(kind).config;
  text.pop_back();
  return text + ", " + keys + "}";
}

std::string refused_config(const std::string& config) {
  const auto file = temporary("bad/config.json", config);
  const auto text = refused(file.parent_path());
  CHECK_THAT(text, Contains(file.string()));
  CHECK(text.find('\n') == std::string::npos);
  return text;
}

/// The refusal of a llama whose tensors `change` has altered.
std::string refused_tensors(const std::function<void(std::vector<named_shape>&)>& change) {
  const auto& kind = small_model_named("llama");
  const auto folder = temporary("bad-tensors/config.json", kind.config).parent_path();
  auto tensors = tensors_of(loaded(read_inference_model(folder)));
  change(tensors);
  write_random_weights(folder, tensors);
  const auto text = refused(folder);
  CHECK(text.find('\n') == std::string::npos);
  return text;
}

named_shape& find(std::vector<named_shape>& tensors, const std::string& name) {
  for (auto& t : tensors)
    if (t.name == name) return t;
  FAIL(name);
  return tensors[0];
}

}  // namespace

TEST_CASE("a config.json that is not supported is refused with its key and what would do") {
  CHECK_THAT(
      refused_config(changed("\"llama\"", "\"mixtral\"")),
      Contains("model_type: found \"mixtral\", expected gpt2, llama, mistral, qwen2 or qwen3"));
  CHECK_THAT(refused_config("{}"), Contains("model_type: found nothing"));
  CHECK_THAT(refused_config("[]"), Contains("not a JSON object"));
  CHECK_THAT(refused_config("{\"model_type\": "), Contains("not a JSON object"));
  CHECK_THAT(refused_config(changed("\"hidden_size\": 64", "\"hidden_size\": -64")),
             Contains("hidden_size: found -64, expected a whole number from 1"));
  CHECK_THAT(refused_config(changed("\"hidden_size\": 64", "\"hidden_size\": 1e300")),
             Contains("hidden_size: found 1e+300"));
  CHECK_THAT(refused_config(changed("\"hidden_size\": 64,", "")),
             Contains("hidden_size: found nothing"));
  CHECK_THAT(refused_config(changed("\"hidden_size\": 64", "\"hidden_size\": 63")),
             Contains("8 heads do not divide a hidden size of 63"));
  CHECK_THAT(refused_config(changed("\"vocab_size\": 96", "\"vocab_size\": 4000000000")),
             Contains("vocab_size: found 4000000000"));
  CHECK_THAT(refused_config(changed("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3")),
             Contains("num_key_value_heads: found 3, expected a divisor of 8"));
  CHECK_THAT(refused_config(added("\"head_dim\": 7")), Contains("rotary"));
  CHECK_THAT(refused_config(added("\"hidden_act\": \"gelu\"")),
             Contains("hidden_act: found \"gelu\", expected \"silu\""));
  CHECK_THAT(refused_config(changed("1e-6", "0")), Contains("rms_norm_eps: found 0"));
  CHECK_THAT(refused_config(added("\"quantization_config\": {\"bits\": 4}")),
             Contains("quantization_config"));
  CHECK_THAT(
      refused_config(added("\"eos_token_id\": \"</s>\"")),
      Contains("eos_token_id: found \"</s>\", expected a token's number, or a list of them"));
  CHECK_THAT(refused_config(added("\"tie_word_embeddings\": \"no\"")),
             Contains("tie_word_embeddings: found \"no\", expected true or false"));
}

TEST_CASE("what would silently change a model's results is refused") {
  CHECK_THAT(
      refused_config(changed("\"sliding_window\": null", "\"sliding_window\": 0", "mistral")),
      Contains("sliding_window: found 0, expected a whole number from 1"));
  CHECK_THAT(
      refused_config(changed("\"sliding_window\": null",
                             "\"sliding_window\": 64, \"layer_types\": "
                             "[\"sliding_attention\", \"sliding_attention\", "
                             "\"sliding_attention\", \"full_attention\"]",
                             "mistral")),
      Contains("layer_types: found \"full_attention\", expected \"sliding_attention\" only"));
  const std::string window =
      "sliding_window: found 64, expected null or at least the context (448)";
  CHECK_THAT(
      refused_config(changed("\"use_sliding_window\": false",
                             "\"use_sliding_window\": true, \"max_window_layers\": 0", "qwen2")),
      Contains(window));
  CHECK_THAT(refused_config(added("\"use_sliding_window\": true, \"sliding_window\": 64, "
                                  "\"max_window_layers\": 0",
                                  "qwen3")),
             Contains(window));
  CHECK_THAT(refused_config(added("\"layer_types\": [\"full_attention\", \"full_attention\", "
                                  "\"full_attention\", \"sliding_attention\"]")),
             Contains("layer_types: found \"sliding_attention\""));
  CHECK_THAT(
      refused_config(added("\"rope_scaling\": {\"rope_type\": \"longrope\", \"factor\": 4}")),
      Contains("rope_scaling: rope_type: found \"longrope\", expected default, linear, dynamic, "
               "llama3 or yarn"));
  CHECK_THAT(refused_config(added("\"rope_scaling\": {\"rope_type\": \"yarn\"}")),
             Contains("rope_scaling: factor: found nothing"));
  CHECK_THAT(refused_config(added("\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, "
                                  "\"beta_fast\": 1, \"beta_slow\": 2}")),
             Contains("beta_fast: found 1, expected more than beta_slow"));
  CHECK_THAT(refused_config(added("\"rope_scaling\": {\"type\": \"linear\"}")),
             Contains("rope_scaling: factor: found nothing"));
  CHECK_THAT(
      refused_config(changed("\"high_freq_factor\": 4.0", "\"high_freq_factor\": 1.0", "llama3")),
      Contains("high_freq_factor: found 1.0, expected more than low_freq_factor"));
  CHECK_THAT(refused_config(added("\"partial_rotary_factor\": 0.5")),
             Contains("partial_rotary_factor: found 0.5, expected 1.0"));
  CHECK_THAT(refused_config(added("\"activation_function\": \"relu\"", "gpt2")),
             Contains("activation_function: found \"relu\""));
  CHECK_THAT(refused_config(added("\"layer_norm_epsilon\": 1e-6", "gpt2")),
             Contains("layer_norm_epsilon: found 1e-06"));
  CHECK_THAT(refused_config(added("\"scale_attn_by_inverse_layer_idx\": true", "gpt2")),
             Contains("scale_attn_by_inverse_layer_idx: found true, expected false"));
}

TEST_CASE("a window that no context reaches is none") {
  const auto folder = model_folder(
      "wide-window", changed("\"sliding_window\": null", "\"sliding_window\": 448", "mistral"));
  CHECK(refused(folder).empty());
}

TEST_CASE("generation_config.json gives the defaults of sampling") {
  const auto folder = model_folder("defaults", small_model_named("llama").config);
  const auto read = [&](const std::string& text) {
    std::ofstream{folder / "generation_config.json"} << text;
    return read_inference_model(folder);
  };
  CHECK_FALSE(loaded(read_inference_model(folder)).defaults.temperature);
  const auto m = loaded(read(R"({"temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": 0.05,
    "repetition_penalty": 1.1, "num_beams": 1, "do_sample": true, "max_length": 2048})"));
  CHECK(m.defaults.temperature == 0.6);
  CHECK(m.defaults.top_p == 0.9);
  CHECK(m.defaults.top_k == 20u);
  CHECK(m.defaults.min_p == 0.05);
  CHECK(m.defaults.repetition_penalty == 1.1);
  CHECK(m.ignored_keys.empty());
  CHECK(loaded(read(R"({"top_k": -1})")).defaults.top_k == 0u);
  const auto none = loaded(read(R"({"temperature": null, "repetition_penalty": 1.0})"));
  CHECK_FALSE(none.defaults.temperature);
  CHECK(none.ignored_keys.empty());
  for (const std::string wrong : {R"({"temperature": -1})", R"({"top_p": 1.5})", R"({"top_k": -2})",
                                  R"({"min_p": "0.1"})", R"({"repetition_penalty": 0})"}) {
    const auto bad = read(wrong);
    REQUIRE_FALSE(bad);
    CHECK_THAT(bad.error().text, Contains("generation_config.json"));
  }
}

TEST_CASE("tensors that are missing, left over or of another shape are named with their file") {
  const std::string norm = "model.layers.2.input_layernorm.weight";
  CHECK_THAT(refused_tensors([&](auto& all) {
               std::erase_if(all, [&](const auto& t) { return t.name == norm; });
             }),
             Contains("model.safetensors: has no tensor '" + norm + "'"));
  CHECK_THAT(refused_tensors([&](auto& all) { find(all, norm).shape = {63}; }),
             Contains("'" + norm + "': found shape [63], expected [64]"));
  CHECK_THAT(refused_tensors([&](auto& all) {
               find(all, "model.layers.0.self_attn.k_proj.weight").shape = {64, 16};
             }),
             Contains("k_proj.weight': found shape [64, 16], expected [16, 64]"));
  CHECK_THAT(refused_tensors([&](auto& all) {
               all.push_back({"model.layers.0.self_attn.q_proj.bias", {64}});
             }),
             Contains("has a tensor 'model.layers.0.self_attn.q_proj.bias', which a model with "
                      "this config.json does not have"));
  CHECK(refused_tensors([&](auto& all) {
          all.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {4}});
        }).empty());
}

TEST_CASE("files that are no safetensors files are named") {
  const auto folder = model_folder(small_model_named("llama"));
  const auto file = folder / "model.safetensors";
  std::string good;
  {
    std::ifstream in{file, std::ios::binary};
    good.assign(std::istreambuf_iterator<char>{in}, {});
  }
  const auto with_length = [&](std::uint64_t length) {
    auto bytes = good;
    std::memcpy(bytes.data(), &length, 8);
    return bytes;
  };
  const auto mentions = [&](const std::string& bytes, const std::string& what) {
    temporary("llama/model.safetensors", bytes);
    const auto text = refused(folder);
    CHECK_THAT(text, Contains(file.string()) && Contains(what));
  };
  mentions(with_length(10ull << 30), "truncated, or not a safetensors file");
  mentions(with_length(~0ull), "truncated, or not a safetensors file");
  mentions(with_length(100), "is not a JSON object in its header");
  mentions(good.substr(0, good.size() - 1), "places 'lm_head.weight' at bytes");
  mentions(good.substr(0, 4), "too short");
  auto nan = good;
  nan.replace(nan.find("[96,64]"), 7, "[NaN,1]");
  mentions(nan, "is not a JSON object in its header");
  fs::remove(file);
  CHECK_THAT(refused(folder), Contains(folder.string()) && Contains("has no *.safetensors"));
}

TEST_CASE("a folder that is none, and a model that no host can hold, are refused") {
  CHECK_THAT(refused(temporary_folder() / "nowhere"), Contains("nowhere/config.json"));
  auto huge = loaded(read_inference_model(model_folder(small_model_named("llama"))));
  huge.hidden = 1'000'000, huge.intermediate = 10'000'000;
  auto spec = whole_model(huge, 1);
  spec.seed = 1;
  const auto device = make_cpu_inference_device(spec);
  REQUIRE_FALSE(device);
  CHECK_THAT(device.error().text, Contains("GB, this host has"));
}

TEST_CASE("shards, 16-bit weights and the prefix of exported weights are read") {
  const auto& kind = small_model_named("gpt2");
  const auto plain = model_folder(kind);
  const auto folder = temporary("sharded/config.json", kind.config).parent_path();
  const auto file = loaded(safetensors::open(plain / "model.safetensors"));
  std::vector<std::vector<float>> values;
  std::vector<tensor_to_store> tensors[2];
  std::string map;
  for (const auto& [name, about] : file.tensors()) {
    auto& v = values.emplace_back((about.end - about.begin) / sizeof(float));
    file.read(about, v);
    const auto shard = values.size() % 2;
    tensors[shard].push_back({"transformer." + name, about.shape, v});
    map += std::string{map.empty() ? "" : ", "} + "\"transformer." + name + "\": \"part-" +
           std::to_string(shard) + ".safetensors\"";
  }
  for (const std::size_t shard : {0, 1})
    CHECK(write_safetensors(folder / ("part-" + std::to_string(shard) + ".safetensors"),
                            tensors[shard], {}));
  temporary("sharded/model.safetensors.index.json", "{\"weight_map\": {" + map + "}}");
  CHECK(refused(folder).empty());
  const auto m = loaded(read_inference_model(plain));
  const auto one = loaded(model_weights::open(plain, m)),
             two = loaded(model_weights::open(folder, m));
  const auto w = weights_of(m, 3).wide;
  std::vector<float> a(w.values()), b(w.values());
  one.read(w, a);
  two.read(w, b);
  CHECK(a == b);
  fs::remove(folder / "part-1.safetensors");
  CHECK_THAT(refused(folder), Contains("part-1.safetensors"));
}
