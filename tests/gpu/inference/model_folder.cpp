#include "gpu/inference/model_folder.hpp"

#include <algorithm>
#include <cmath>

#include "gpu/inference/inference_device.hpp"
#include "gpu/model/safetensors.hpp"
#include "harness/files.hpp"
#include "messages/base/name_hash.hpp"
#include "messages/base/random.hpp"

namespace troupe::test {

namespace {

namespace fs = std::filesystem;

const std::string gpt2_sizes =
    R"("model_type": "gpt2", "n_embd": 48, "n_layer": 4, "n_head": 3, "n_positions": 448, )"
    R"("vocab_size": 96)";
const std::string llama_sizes =
    R"("hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8, )"
    R"("intermediate_size": 96, "max_position_embeddings": 448, "rms_norm_eps": 1e-6, )"
    R"("vocab_size": 96)";

std::string llama(const std::string& type, const std::string& more) {
  return "{\"model_type\": \"" + type + "\", " + llama_sizes + more + "}";
}

}  // namespace

const std::vector<model_kind>& small_models() {
  static const std::vector<model_kind> kinds{
      {"gpt2", "{" + gpt2_sizes + "}"},
      {"gpt2-untied", "{" + gpt2_sizes + R"(, "tie_word_embeddings": false, "n_inner": 80})"},
      {"llama", llama("llama", R"(, "num_key_value_heads": 2)")},
      {"llama-tied-mqa", llama("llama", R"(, "num_key_value_heads": 1, "tie_word_embeddings": true)"
                                        R"(, "head_dim": 10)")},
      {"llama-biased", llama("llama", R"(, "attention_bias": true, "mlp_bias": true)"
                                      R"(, "rope_scaling": {"type": "linear", "factor": 2.5})")},
      {"llama3",
       llama("llama", R"(, "num_key_value_heads": 4, "rope_theta": 500.0, "rope_scaling":)"
                      R"( {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,)"
                      R"( "high_freq_factor": 4.0,)"
                      R"( "original_max_position_embeddings": 64})")},
      {"qwen2", llama("qwen2", R"(, "num_key_value_heads": 2, "tie_word_embeddings": true,)"
                               R"( "use_sliding_window": false, "sliding_window": 64)")},
      {"mistral", llama("mistral", R"(, "num_key_value_heads": 2, "sliding_window": null)")},
      {"mistral-window",
       llama("mistral", R"(, "num_key_value_heads": 2, "sliding_window": 70, "head_dim": 12)")},
      {"qwen3", llama("qwen3", R"(, "num_key_value_heads": 2, "head_dim": 16,)"
                               R"( "tie_word_embeddings": true, "rope_theta": 1000000)")},
      {"yarn", llama("llama", R"(, "num_key_value_heads": 2, "head_dim": 16, "rope_theta": 1000,)"
                              R"( "rope_scaling": {"rope_type": "yarn", "factor": 4.0,)"
                              R"( "original_max_position_embeddings": 112})")},
      {"yarn-scaled", llama("qwen2", R"(, "num_key_value_heads": 2, "head_dim": 32,)"
                                     R"( "rope_scaling": {"type": "yarn", "factor": 2.5,)"
                                     R"( "beta_fast": 8, "beta_slow": 2, "truncate": false,)"
                                     R"( "original_max_position_embeddings": 200,)"
                                     R"( "mscale": 1.3, "mscale_all_dim": 0.6})")},
      {"dynamic", llama("llama", R"(, "num_key_value_heads": 2,)"
                                 R"( "rope_scaling": {"type": "dynamic", "factor": 2.0})")},
      {"qwen3-biased", llama("qwen3", R"(, "num_key_value_heads": 4, "head_dim": 6,)"
                                      R"( "attention_bias": true)")},
  };
  return kinds;
}

const model_kind& small_model_named(const std::string& name) {
  const auto& all = small_models();
  return *std::find_if(all.begin(), all.end(), [&](const auto& k) { return k.name == name; });
}

void write_random_weights(const fs::path& folder, const std::vector<gpu::named_shape>& tensors) {
  std::vector<std::vector<float>> values;
  std::vector<gpu::tensor_to_store> stored;
  for (const auto& t : tensors) {
    std::size_t n = 1;
    for (const auto d : t.shape) n *= d;
    const bool norm =
        t.name.find("norm") != std::string::npos || t.name.find("ln_") != std::string::npos;
    const bool weight = t.name.ends_with("weight");
    random_source random{hash_of_name(t.name)};
    auto& v = values.emplace_back(n);
    // Wide enough that tokens differ from each other, and no probability is near 1.
    const double wide = t.shape.size() == 2 ? 0.3 : 0.2;
    for (auto& x : v)
      x = static_cast<float>((norm && weight ? 1.0 : 0.0) + wide * (2 * random.uniform() - 1));
    stored.push_back({t.name, t.shape, v});
  }
  CHECK(gpu::write_safetensors(folder / "model.safetensors", stored, {{"format", "pt"}}));
}

fs::path model_folder(const std::string& name, const std::string& config) {
  const auto folder = temporary(name + "/config.json", config).parent_path();
  write_random_weights(folder, gpu::tensors_of(loaded(gpu::read_inference_model(folder))));
  return folder;
}

fs::path model_folder(const model_kind& kind) {
  return model_folder(kind.name, kind.config);
}

std::vector<std::uint32_t> random_prompt(std::size_t tokens, std::uint32_t vocabulary,
                                         std::uint64_t seed) {
  random_source random{seed};
  std::vector<std::uint32_t> prompt(tokens);
  for (auto& t : prompt) t = static_cast<std::uint32_t>(random.below(vocabulary));
  return prompt;
}

std::string refused(const std::filesystem::path& path) {
  const auto m = gpu::read_inference_model(path);
  if (!m) return m.error().text;
  auto spec = gpu::whole_model(*m, 1);
  spec.weights = path;
  const auto device = gpu::make_cpu_inference_device(spec);
  return device ? "" : device.error().text;
}

}  // namespace troupe::test
