#include "gpu/inference/adapter_folder.hpp"

#include <algorithm>

#include "gpu/inference/weights.hpp"
#include "gpu/model/safetensors.hpp"
#include "harness/files.hpp"
#include "messages/base/name_hash.hpp"
#include "messages/base/random.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::test {

namespace {

namespace fs = std::filesystem;

const std::string peft_prefix = "base_model.model.";

/// A matrix of a layer, by its name in the model's files.
struct layer_matrix {
  std::string module;
  std::uint64_t in = 0, out = 0;
};

bool is_gpt2(const gpu::inference_model& m) {
  return m.kind == gpu::inference_model::family::gpt2;
}

// By names and shapes of the files, and not by what the engine makes of them.
std::vector<layer_matrix> matrices_of(const gpu::inference_model& m) {
  std::vector<layer_matrix> all;
  const std::string end = ".weight";
  for (const auto& t : gpu::tensors_of(m)) {
    const bool layer = t.name.starts_with("h.") || t.name.find("layers.") != std::string::npos;
    if (!layer || t.shape.size() != 2 || !t.name.ends_with(end)) continue;
    const auto module =
        (is_gpt2(m) ? "transformer." : "") + t.name.substr(0, t.name.size() - end.size());
    const auto [in, out] =
        is_gpt2(m) ? std::pair{t.shape[0], t.shape[1]} : std::pair{t.shape[1], t.shape[0]};
    all.push_back({module, in, out});
  }
  return all;
}

std::string last_part(const std::string& module) {
  return module.substr(module.rfind('.') + 1);
}

adapter_files::tensor random_tensor(const std::string& name, std::uint64_t rows,
                                    std::uint64_t columns, std::uint64_t seed, double size) {
  random_source random{hash_of_name(name) ^ seed};
  adapter_files::tensor t{{rows, columns}, std::vector<float>(rows * columns)};
  for (auto& x : t.values) x = static_cast<float>(size * (2 * random.uniform() - 1));
  return t;
}

}  // namespace

std::vector<std::string> modules_of(const gpu::inference_model& m,
                                    const std::vector<std::string>& kinds) {
  std::vector<std::string> all;
  for (const auto& x : matrices_of(m))
    if (kinds.empty() || std::ranges::count(kinds, last_part(x.module)) > 0)
      all.push_back(x.module);
  return all;
}

adapter_files random_adapter(const gpu::inference_model& m, std::uint32_t rank, std::uint64_t seed,
                             const std::vector<std::string>& kinds) {
  adapter_files f;
  std::vector<std::string> listed = kinds;
  const auto wanted = modules_of(m, kinds);
  for (const auto& x : matrices_of(m)) {
    if (std::ranges::count(wanted, x.module) == 0) continue;
    const auto a = peft_prefix + x.module + ".lora_A.weight",
               b = peft_prefix + x.module + ".lora_B.weight";
    f.tensors[a] = random_tensor(a, rank, x.in, seed, 0.2);
    f.tensors[b] = random_tensor(b, x.out, rank, seed, 0.2);
    if (kinds.empty() && std::ranges::count(listed, last_part(x.module)) == 0)
      listed.push_back(last_part(x.module));
  }
  f.config = {{"peft_type", "LORA"},
              {"task_type", "CAUSAL_LM"},
              {"base_model_name_or_path", "somewhere/base"},
              {"inference_mode", true},
              {"r", rank},
              {"lora_alpha", 2 * rank},
              {"lora_dropout", 0.1},
              {"target_modules", listed},
              {"bias", "none"},
              {"fan_in_fan_out", is_gpt2(m)},
              {"init_lora_weights", true},
              {"use_rslora", false},
              {"use_dora", false},
              {"lora_bias", false},
              {"rank_pattern", nlohmann::json::object()},
              {"alpha_pattern", nlohmann::json::object()},
              {"modules_to_save", nullptr},
              {"layers_to_transform", nullptr},
              {"layers_pattern", nullptr},
              {"layer_replication", nullptr},
              {"exclude_modules", nullptr},
              {"target_parameters", nullptr},
              {"trainable_token_indices", nullptr},
              {"megatron_core", "megatron.core"},
              {"peft_version", "0.18.0"}};
  return f;
}

fs::path adapter_folder(const std::string& name, const adapter_files& files) {
  fs::remove_all(temporary_folder() / name);
  const auto folder = temporary(name + "/adapter_config.json", files.config.dump()).parent_path();
  std::vector<gpu::tensor_to_store> stored;
  for (const auto& [tensor, t] : files.tensors) stored.push_back({tensor, t.shape, t.values});
  CHECK(gpu::write_safetensors(folder / "adapter_model.safetensors", stored, files.metadata));
  return folder;
}

gpu::adapter_ref read_back(const fs::path& folder, const gpu::inference_model& m) {
  return std::make_shared<const gpu::adapter>(
      loaded(gpu::read_adapter(folder, m, []() -> expected<std::string> {
        return refuse(reason::kind::invalid, "no base is recorded");
      })));
}

// In the files' own layout: [out, in], and of GPT-2 [in, out].
fs::path merged_folder(const std::string& name, const fs::path& base, const adapter_files& files,
                       double scale) {
  const auto model = loaded(gpu::read_inference_model(base));
  const auto from = loaded(gpu::safetensors::open(base / "model.safetensors"));
  std::map<std::string, std::vector<float>> values;
  for (const auto& [tensor, t] : from.tensors()) {
    std::uint64_t n = 1;
    for (const auto size : t.shape) n *= size;
    values[tensor].resize(n);
    CHECK(from.read(t, values[tensor]));
  }
  for (const auto& x : matrices_of(model)) {
    const auto a = files.tensors.find(peft_prefix + x.module + ".lora_A.weight");
    if (a == files.tensors.end()) continue;
    const auto& b = files.tensors.at(peft_prefix + x.module + ".lora_B.weight");
    const auto rank = a->second.shape[0];
    auto& w = values.at((is_gpt2(model) ? x.module.substr(x.module.find('.') + 1) : x.module) +
                        ".weight");
    for (std::uint64_t o = 0; o < x.out; ++o)
      for (std::uint64_t i = 0; i < x.in; ++i) {
        double sum = 0;
        for (std::uint64_t r = 0; r < rank; ++r)
          sum += static_cast<double>(b.values[o * rank + r]) *
                 static_cast<double>(a->second.values[r * x.in + i]);
        auto& one = w[is_gpt2(model) ? i * x.out + o : o * x.in + i];
        one = static_cast<float>(static_cast<double>(one) + scale * sum);
      }
  }
  const auto folder = temporary_folder() / name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  fs::copy_file(base / "config.json", folder / "config.json");
  std::vector<gpu::tensor_to_store> stored;
  for (const auto& [tensor, v] : values) stored.push_back({tensor, from.find(tensor)->shape, v});
  CHECK(gpu::write_safetensors(folder / "model.safetensors", stored, {{"format", "pt"}}));
  return folder;
}

}  // namespace troupe::test
