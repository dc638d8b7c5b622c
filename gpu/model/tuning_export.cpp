#include "gpu/model/tuning_export.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "gpu/model/layer_export.hpp"
#include "gpu/model/layer_origin.hpp"
#include "gpu/model/safetensors.hpp"
#include "messages/base/find_in.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/whole_file.hpp"
#include "text/json/json_file.hpp"

namespace troupe::gpu {

namespace {

namespace fs = std::filesystem;

constexpr const char* weights_file = "model.safetensors";
constexpr std::size_t max_config_bytes = 16u << 20;
constexpr const char *factor_a = ".lora_A.weight", *factor_b = ".lora_B.weight";

/// A training's program arguments that its export depends on.
struct tuned {
  std::string base;
  std::uint32_t rank = 0;
  double alpha = 0;
  bool rslora = false;
  bool random = false;  // it began with weights that are nobody's

  double scale() const {
    const auto r = static_cast<double>(rank);
    return alpha / (rslora ? std::sqrt(r) : r);
  }
};

expected<std::optional<tuned>> tuned_by(const checkpoint& from) {
  const auto origin = origin_of(from);
  if (!origin) return refuse(origin.error());
  if (!*origin || !(*origin)->arguments) return std::optional<tuned>{};
  const auto arguments = nlohmann::json::parse(*(*origin)->arguments, nullptr, false);
  // No other program has a base beside the hash of its files.
  if (!arguments.is_object() || !arguments.contains("base") || !arguments.contains("base_hash"))
    return std::optional<tuned>{};
  try {
    return tuned{arguments.at("base").get<std::string>(), arguments.value("adapter_rank", 0u),
                 arguments.value("adapter_alpha", 0.0), arguments.value("adapter_rslora", false),
                 arguments.value("initial", "") == "random"};
  } catch (const nlohmann::json::exception& e) {
    return refuse(reason::kind::malformed, "{}: found arguments that no fine-tuning has: {}",
                  from.files().front().file().string(), e.what());
  }
}

/// Those that the inference engine would read.
expected<std::vector<safetensors>> weights_in(const fs::path& folder) {
  std::error_code error;
  const auto alone = folder / weights_file;
  const auto files = checkpoint_files(fs::is_regular_file(alone, error) ? alone : folder);
  if (!files)
    return refuse(files.error().code, "{}, expected the folder that the training began with",
                  files.error().text);
  return safetensors::open_all(*files);
}

/// Without the prefix that some files of GPT-2 have.
std::string without_prefix(const std::string& name) {
  constexpr std::string_view of_gpt2 = "transformer.";
  return name.starts_with(of_gpt2) ? name.substr(of_gpt2.size()) : name;
}

/// The training's parameters by the names of the folder's tensors.
std::map<std::string, found_tensor> by_name(const std::vector<tensor_to_copy>& all) {
  std::map<std::string, found_tensor> found;
  for (const auto& t : all) found[t.name] = {t.file, t.tensor};
  return found;
}

expected<std::vector<float>> numbers_of(const found_tensor& t) {
  std::uint64_t n = 1;
  for (const auto size : t.tensor->shape) n *= size;
  std::vector<float> values(n);
  if (auto ok = t.file->read(*t.tensor, values); !ok) return refuse(ok.error());
  return values;
}

/// The pair of factors beside a matrix of the base.
struct factors {
  std::vector<float> a, b;  // [rank, in], [out, rank]
  std::uint64_t rank = 0, in = 0, out = 0;
  double scale = 0;
  bool turned = false;  // GPT-2's matrices are [in, out]

  double at(std::uint64_t index) const {
    const auto columns = turned ? out : in;
    const auto row = index / columns, column = index % columns;
    const auto o = turned ? column : row, i = turned ? row : column;
    double sum = 0;
    for (std::uint64_t r = 0; r < rank; ++r) sum += double{b[o * rank + r]} * double{a[r * in + i]};
    return scale * sum;
  }
};

expected<std::optional<factors>> factors_of(const std::map<std::string, found_tensor>& trained,
                                            const std::string& weight,
                                            const std::vector<std::uint64_t>& shape, double scale) {
  constexpr std::string_view suffix = ".weight";
  if (!weight.ends_with(suffix)) return std::optional<factors>{};
  const auto module = weight.substr(0, weight.size() - suffix.size());
  const auto *a = find_in(trained, module + factor_a), *b = find_in(trained, module + factor_b);
  if (!a || !b) return std::optional<factors>{};
  const auto &as = a->tensor->shape, &bs = b->tensor->shape;
  factors f;
  f.rank = as[0], f.in = as[1], f.out = bs[0], f.scale = scale;
  f.turned = shape == std::vector{f.in, f.out} && shape != std::vector{f.out, f.in};
  // The family decides about a square matrix, which its modules' names show.
  if (f.in == f.out) f.turned = module.find(".c_") != std::string::npos;
  if (shape != (f.turned ? std::vector{f.in, f.out} : std::vector{f.out, f.in}))
    return refuse(reason::kind::malformed, "'{}': found shape {} in the base, expected {} or {}",
                  weight, shape_text(shape), shape_text({f.out, f.in}), shape_text({f.in, f.out}));
  auto av = numbers_of(*a), bv = numbers_of(*b);
  if (!av) return refuse(av.error());
  if (!bv) return refuse(bv.error());
  f.a = std::move(*av), f.b = std::move(*bv);
  return f;
}

/// Files of a model's folder that say how texts become tokens, and how answers end.
constexpr const char* copied_files[] = {
    "tokenizer.json",          "tokenizer_config.json", "vocab.json",      "merges.txt",
    "special_tokens_map.json", "added_tokens.json",     "tokenizer.model", "chat_template.jinja",
    "generation_config.json",  "chat_template.json",    "vocab.txt"};

expected<void> copy_texts(const fs::path& base, const fs::path& to) {
  for (const auto* name : copied_files) {
    std::error_code error;
    if (!fs::exists(base / name, error)) continue;
    fs::copy_file(base / name, to / name, error);
    if (error)
      return refuse(reason::kind::unavailable, "{}: cannot be copied: {}", (base / name).string(),
                    error.message());
  }
  return {};
}

/// The base's configuration, with the type that the weights have now; last, as a folder without it
/// is no model.
expected<void> write_config(const fs::path& base, const fs::path& to, bool all_f32) {
  auto config = read_json_file(base / "config.json", max_config_bytes);
  if (!config) return refuse(config.error());
  if (all_f32)
    for (const auto* key : {"torch_dtype", "dtype"})
      if (config->contains(key)) (*config)[key] = "float32";
  return write_whole_file((to / "config.json").string(), config->dump(2) + "\n");
}

/// The tensors of a full or merged folder.
class folder_tensors {
 public:
  folder_tensors(const folder_wish& w, const tuned& t) : wish_{w}, tuned_{t} {}

  /// base: none of a training that began with random weights, all of which its checkpoint has.
  expected<std::vector<tensor_to_copy>> of(const std::vector<safetensors>& base,
                                           const std::map<std::string, found_tensor>& trained) {
    std::vector<tensor_to_copy> all;
    for (const auto& file : base)
      for (const auto& t : file.all()) {
        auto made = one(file, t, trained);
        if (!made) return refuse(made.error());
        all.push_back(std::move(*made));
      }
    for (const auto& [name, t] : trained)
      if (!used_.contains(name) && !name.ends_with(factor_a) && !name.ends_with(factor_b))
        all.push_back({name, t.file, t.tensor});
    return all;
  }

 private:
  expected<tensor_to_copy> one(const safetensors& file, const stored_tensor& t,
                               const std::map<std::string, found_tensor>& trained) {
    const auto name = without_prefix(t.name);
    const bool is_number = file.tensors().contains(t.name);
    const auto dtype = wish_.all_f32 && is_number ? std::string{"F32"} : t.dtype;
    if (const auto* own = find_in(trained, name)) {
      used_.insert(name);
      tensor_to_copy copy{t.name, own->file, own->tensor};
      copy.dtype = dtype;
      return copy;
    }
    tensor_to_copy copy{t.name, &file, &t};
    copy.dtype = dtype;
    if (tuned_.rank == 0) return copy;
    auto f = factors_of(trained, name, t.shape, tuned_.scale());
    if (!f) return refuse(f.error());
    if (*f)
      copy.added = [f = std::make_shared<const factors>(std::move(**f))](std::uint64_t i) {
        return f->at(i);
      };
    return copy;
  }

  const folder_wish& wish_;
  const tuned& tuned_;
  std::set<std::string> used_;
};

std::uint64_t count_of(const std::vector<tensor_to_copy>& all) {
  std::uint64_t sum = 0;
  for (const auto& t : all) {
    std::uint64_t n = 1;
    for (const auto size : t.tensor->shape) n *= size;
    sum += n;
  }
  return sum;
}

/// PEFT names a module by its end; of GPT-2 two have one name, of which one may have no adapter.
std::set<std::string> peft_targets_of(const std::vector<std::string>& modules) {
  std::set<std::string> ends;
  const auto has = [&](const char* part) {
    return std::ranges::any_of(modules, [&](const auto& m) { return m.ends_with(part); });
  };
  const bool one_projection = has(".attn.c_proj") != has(".mlp.c_proj");
  for (const auto& m : modules) {
    auto begin = m.rfind('.');
    if (one_projection && m.ends_with(".c_proj")) begin = m.rfind('.', begin - 1);
    ends.insert(m.substr(begin + 1));
  }
  return ends;
}

expected<exported_folder> export_adapter(const folder_wish& w, const checkpoint& from,
                                         const tuned& t,
                                         const std::map<std::string, found_tensor>& trained) {
  std::vector<tensor_to_copy> all;
  std::vector<std::string> modules;
  for (const auto& [name, found] : trained) {
    const bool gpt2 = name.starts_with("h.");
    all.push_back({"base_model.model." + std::string{gpt2 ? "transformer." : ""} + name, found.file,
                   found.tensor});
    if (name.ends_with(factor_a))
      modules.push_back(name.substr(0, name.size() - std::strlen(factor_a)));
  }
  const exported_folder done{"adapter", count_of(all), t.rank};
  std::map<std::string, std::string> about{{"format", "pt"},
                                           {"iteration", std::to_string(from.iteration())}};
  if (w.sha256_of) {
    const auto hash = w.sha256_of(t.base);
    if (!hash) return refuse(hash.error());
    about["base_sha256"] = *hash;
  }
  const bool gpt2 = !modules.empty() && modules.front().starts_with("h.");
  if (auto ok = copy_safetensors(w.to / "adapter_model.safetensors", std::move(all), about); !ok)
    return refuse(ok.error());
  const nlohmann::json config{{"peft_type", "LORA"},
                              {"task_type", "CAUSAL_LM"},
                              {"inference_mode", true},
                              {"r", t.rank},
                              {"lora_alpha", t.alpha},
                              {"lora_dropout", 0.0},
                              {"use_rslora", t.rslora},
                              {"bias", "none"},
                              {"fan_in_fan_out", gpt2},
                              {"target_modules", peft_targets_of(modules)},
                              {"base_model_name_or_path", t.base}};
  if (auto ok = write_whole_file((w.to / "adapter_config.json").string(), config.dump(2) + "\n");
      !ok)
    return refuse(ok.error());
  return done;
}

}  // namespace

expected<std::optional<std::string>> base_of(const checkpoint& from) {
  const auto t = tuned_by(from);
  if (!t) return refuse(t.error());
  return *t ? std::optional{(*t)->base} : std::optional<std::string>{};
}

expected<exported_folder> export_tuning(const folder_wish& w, const checkpoint& from,
                                        const std::string& base) {
  const auto t = tuned_by(from);
  if (!t) return refuse(t.error());
  const auto named = layers_to_copy(from);
  if (!named) return refuse(named.error());
  const auto trained = by_name(*named);
  if ((*t)->rank > 0 && !w.merged) return export_adapter(w, from, **t, trained);
  std::vector<safetensors> weights;
  if (!(*t)->random) {
    auto found = weights_in(base);
    if (!found) return refuse(found.error());
    weights = std::move(*found);
  }
  auto all = folder_tensors{w, **t}.of(weights, trained);
  if (!all) return refuse(all.error());
  const exported_folder done{(*t)->rank == 0 ? "model" : "merged", count_of(*all), (*t)->rank};
  auto ok = copy_safetensors(w.to / weights_file, std::move(*all),
                             {{"format", "pt"}, {"iteration", std::to_string(from.iteration())}});
  if (ok) ok = copy_texts(base, w.to);
  if (ok) ok = write_config(base, w.to, w.all_f32 || (*t)->random);
  if (!ok) return refuse(ok.error());
  return done;
}

}  // namespace troupe::gpu
