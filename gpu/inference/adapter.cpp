#include "gpu/inference/adapter.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "gpu/files/sha256.hpp"
#include "gpu/inference/weights.hpp"
#include "gpu/model/safetensors.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/shown.hpp"
#include "text/json/json_file.hpp"

namespace troupe::gpu {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// A tensor of the model that an adapter may change.
struct adapter_target {
  std::string module;  // PEFT's name of it: "model.layers.0.self_attn.q_proj"
  std::uint32_t sublayer = 0;
  bool back = false;
  std::uint64_t first_column = 0, in = 0, columns = 0;
};

/// Products of a matrix with several tensors have their columns side by side. PEFT's names are
/// those of the whole model, in which GPT-2's layers are in `transformer`.
std::vector<adapter_target> targets_of(const inference_model& m) {
  const std::string before = m.kind == inference_model::family::gpt2 ? "transformer." : "";
  std::vector<adapter_target> all;
  for (std::uint32_t i = 0; i < 2 * m.layers; ++i) {
    const auto s = weights_of(m, i);
    for (const bool back : {false, true}) {
      const auto& w = back ? s.back : s.wide;
      std::uint64_t column = 0;
      for (const auto& t : w.tensors) {
        all.push_back(
            {before + t.name.substr(0, t.name.rfind('.')), i, back, column, w.in, t.columns});
        column += t.columns;
      }
    }
  }
  return all;
}

/// The last parts of the modules' names, each once.
std::vector<std::string> kinds_of(const std::vector<adapter_target>& all) {
  std::vector<std::string> kinds;
  for (const auto& t : all) {
    auto kind = t.module.substr(t.module.rfind('.') + 1);
    if (std::ranges::count(kinds, kind) == 0) kinds.push_back(std::move(kind));
  }
  return kinds;
}

template <class... Values>
tl::unexpected<reason> refuse_file(const fs::path& file, fmt::format_string<Values...> text,
                                   Values&&... values) {
  return refuse(reason::kind::invalid, "{}: {}", file.string(),
                fmt::format(text, std::forward<Values>(values)...));
}

/// adapter_config.json.
class adapter_config {
 public:
  static expected<adapter_config> read(const fs::path& file, std::vector<adapter_target> known);

  std::uint32_t rank = 0;
  double scale = 1;
  /// Those that the file lists; nothing: the tensors decide.
  std::optional<std::vector<adapter_target>> targets;

 private:
  // Braces would make a list of the object.
  adapter_config(fs::path file, json all) : file_{std::move(file)}, all_(std::move(all)) {}

  /// Null counts as missing.
  const json* find(const char* key) const {
    const auto found = all_.find(key);
    return found == all_.end() || found->is_null() ? nullptr : &*found;
  }
  tl::unexpected<reason> fail(const std::string& key, const json* found,
                              std::string_view wanted) const {
    const auto text =
        found ? shown(found->dump(-1, ' ', false, json::error_handler_t::replace)) : "nothing";
    return refuse_file(file_, "{}: found {}, expected {}", shown(key), text, wanted);
  }
  expected<void> check_keys() const;
  expected<void> read_scale();
  expected<void> read_targets(std::vector<adapter_target> known);

  fs::path file_;
  json all_;
};

// Keys that change what is computed are read here, or must ask for nothing; so must all that are
// not known, since a later PEFT may compute something by them.
expected<void> adapter_config::check_keys() const {
  static const std::set<std::string> read{
      "peft_type", "bias", "r", "lora_alpha", "target_modules", "use_rslora", "init_lora_weights"};
  // lora_dropout is not applied by inference. Files have the tensors of a matrix that is stored
  // the other way round (fan_in_fan_out) in the same shapes.
  static const std::set<std::string> harmless{"auto_mapping",   "base_model_name_or_path",
                                              "revision",       "task_type",
                                              "inference_mode", "lora_dropout",
                                              "fan_in_fan_out", "layers_pattern",
                                              "megatron_core",  "qalora_group_size",
                                              "peft_version",   "ensure_weight_tying",
                                              "runtime_config"};
  for (const auto& [key, value] : all_.items()) {
    if (read.contains(key) || harmless.contains(key)) continue;
    const bool asks_nothing = value.is_null() || value == false || value == "" ||
                              (value.is_structured() && value.empty());
    if (!asks_nothing)
      return fail(key, &value, "null, false or empty: the option is not supported");
  }
  const auto* type = find("peft_type");
  if (!type || *type != "LORA") return fail("peft_type", type, "\"LORA\"");
  if (const auto* bias = find("bias"); bias && *bias != "none")
    return fail("bias", bias, "\"none\"");
  // Others begin with a base that they have changed, which the folder does not have.
  const auto* begin = find("init_lora_weights");
  if (begin && !begin->is_boolean() && *begin != "gaussian" && *begin != "eva" &&
      *begin != "orthogonal")
    return fail("init_lora_weights", begin,
                "true, false, \"gaussian\", \"eva\" or \"orthogonal\": others change the base");
  return {};
}

expected<void> adapter_config::read_scale() {
  const auto* r = find("r");
  if (!r || !r->is_number_unsigned() || r->get<std::uint64_t>() < 1 ||
      r->get<std::uint64_t>() > max_adapter_rank)
    return fail("r", r, fmt::format("a whole number from 1 to {}", max_adapter_rank));
  rank = r->get<std::uint32_t>();
  constexpr double low = 1e-6, high = 1e6;
  const auto* alpha = find("lora_alpha");
  if (!alpha || !alpha->is_number() || alpha->get<double>() < low || alpha->get<double>() > high)
    return fail("lora_alpha", alpha, fmt::format("a number from {:g} to {:g}", low, high));
  const auto* root = find("use_rslora");
  if (root && !root->is_boolean()) return fail("use_rslora", root, "true or false");
  const double by = root && root->get<bool>() ? std::sqrt(1.0 * rank) : 1.0 * rank;
  scale = alpha->get<double>() / by;
  return {};
}

// A name of the list is that of a module, or its suffix after a dot, as in PEFT. One that no module
// has is refused: what it asks for would be missing from the answers. "all-linear" is all modules
// but the head, and of a pattern the tensors say what it has matched.
expected<void> adapter_config::read_targets(std::vector<adapter_target> known) {
  const auto* list = find("target_modules");
  if (list && *list == "all-linear") {
    targets = std::move(known);
    return {};
  }
  if (list && list->is_string() && *list != "") return {};
  const auto names = kinds_of(known);
  const auto wanted = fmt::format("names of these modules: {}", fmt::join(names, ", "));
  if (!list || !list->is_array() || list->empty())
    return fail("target_modules", list, wanted + "; \"all-linear\", or a pattern");
  std::vector<bool> listed(known.size());
  for (const auto& name : *list) {
    if (!name.is_string()) return fail("target_modules", &name, wanted);
    const auto& text = name.get_ref<const std::string&>();
    bool any = false;
    for (std::size_t i = 0; i < known.size(); ++i) {
      const auto& module = known[i].module;
      if (module != text && !module.ends_with("." + text)) continue;
      listed[i] = any = true;
    }
    if (!any || text.empty()) return fail("target_modules", &name, wanted);
  }
  targets.emplace();
  for (std::size_t i = 0; i < known.size(); ++i)
    if (listed[i]) targets->push_back(std::move(known[i]));
  return {};
}

expected<adapter_config> adapter_config::read(const fs::path& file,
                                              std::vector<adapter_target> known) {
  constexpr std::size_t limit_bytes = 1u << 20;
  auto all = read_python_json_file(file, limit_bytes);
  if (!all) return refuse(all.error());
  adapter_config c{file, std::move(*all)};
  if (auto ok = c.check_keys(); !ok) return refuse(ok.error());
  if (auto ok = c.read_scale(); !ok) return refuse(ok.error());
  if (auto ok = c.read_targets(std::move(known)); !ok) return refuse(ok.error());
  return c;
}

/// adapter_model.safetensors: for each module A [rank, in] and B [columns, rank].
class adapter_tensors {
 public:
  adapter_tensors(const safetensors& file, const adapter_config& config)
      : file_{file}, config_{config} {
    for (const auto& t : file.all()) all_.emplace(t.name, &t);
  }

  expected<low_rank> read(const adapter_target& t) {
    const auto a = tensor(name_of(t, 'A'), {config_.rank, t.in});
    if (!a) return refuse(a.error());
    const auto b = tensor(name_of(t, 'B'), {t.columns, config_.rank});
    if (!b) return refuse(b.error());
    low_rank x{t.back, t.first_column, t.in, t.columns, config_.rank, {}, {}};
    x.a = turned(*a, config_.rank, t.in);
    x.b = turned(*b, t.columns, config_.rank);
    for (auto& value : x.b) {
      value = static_cast<float>(config_.scale * static_cast<double>(value));
      if (!std::isfinite(value))
        return refuse_file(file_.file(), "'{}' times {:g} is not finite", name_of(t, 'B'),
                           config_.scale);
    }
    return x;
  }
  /// Has the file one of a module's tensors?
  bool has(const adapter_target& t) const {
    return all_.contains(name_of(t, 'A')) || all_.contains(name_of(t, 'B'));
  }
  expected<void> check_all_read() const {
    for (const auto& t : file_.all())
      if (!read_.contains(t.name))
        return refuse_file(
            file_.file(),
            "unexpected tensor '{}': neither target_modules of adapter_config.json nor the "
            "model has its module",
            shown(t.name));
    return {};
  }

 private:
  static std::string name_of(const adapter_target& t, char which) {
    return fmt::format("base_model.model.{}.lora_{}.weight", t.module, which);
  }
  expected<std::vector<float>> tensor(const std::string& name,
                                      const std::vector<std::uint64_t>& shape) {
    const auto at = all_.find(name);
    if (at == all_.end()) return refuse_file(file_.file(), "has no tensor '{}'", name);
    const auto* found = file_.find(name);
    if (!found)
      return refuse_file(file_.file(), "'{}': found values of type {}, expected F32, F16 or BF16",
                         name, shown(at->second->dtype));
    if (found->shape != shape)
      return refuse_file(file_.file(),
                         "'{}': found shape {}, expected {} by config.json of the model and r",
                         name, shape_text(found->shape), shape_text(shape));
    std::vector<float> values(shape[0] * shape[1]);
    if (auto ok = file_.read(*found, values); !ok) return refuse(ok.error());
    read_.insert(name);
    return values;
  }
  static std::vector<float> turned(const std::vector<float>& in, std::uint64_t rows,
                                   std::uint64_t columns) {
    std::vector<float> out(in.size());
    for (std::uint64_t i = 0; i < rows; ++i)
      for (std::uint64_t j = 0; j < columns; ++j) out[j * rows + i] = in[i * columns + j];
    return out;
  }

  const safetensors& file_;
  const adapter_config& config_;
  std::map<std::string, const stored_tensor*> all_;
  std::set<std::string> read_;
};

expected<void> check_adapter_base(const safetensors& file, adapter& a,
                                  const std::function<expected<std::string>()>& base_sha256) {
  const auto recorded = file.metadata("base_sha256");
  if (!recorded) return {};
  const auto base = base_sha256();
  if (!base) return refuse(base.error());
  a.base_sha256 = *recorded;
  if (*recorded == *base) return {};
  return refuse_file(file.file(),
                     "base_sha256: found {}, expected {}, which the model {} has: it was trained "
                     "on other weights",
                     shown(*recorded), *base, a.model.name);
}

/// PEFT's two files must be there; other forms are said to be that.
expected<void> check_adapter_folder(const fs::path& folder) {
  constexpr std::string_view wanted =
      "expected a PEFT adapter folder with adapter_config.json and adapter_model.safetensors";
  std::error_code error;
  if (!fs::is_directory(folder, error)) return refuse_file(folder, "is not a folder; {}", wanted);
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"}) {
    if (fs::exists(folder / name, error)) continue;
    const bool pickle = fs::exists(folder / "adapter_model.bin", error);
    return refuse_file(folder, "has no {}{}; {}", name,
                       pickle ? " (adapter_model.bin, a PyTorch pickle, is not supported)" : "",
                       wanted);
  }
  return {};
}

}  // namespace

std::uint64_t adapter::bytes() const {
  std::uint64_t values = 0;
  for (const auto& s : sublayers)
    for (const auto& x : s) values += x.a.size() + x.b.size();
  return values * sizeof(float);
}

bool adapter::fits(const inference_model& m) const {
  return m.kind == model.kind && m.hidden == model.hidden && m.layers == model.layers &&
         m.query_width() == model.query_width() && m.kv_width() == model.kv_width() &&
         m.intermediate == model.intermediate;
}

expected<adapter> read_adapter(const fs::path& folder, const inference_model& m,
                               const std::function<expected<std::string>()>& base_sha256) {
  if (auto ok = check_adapter_folder(folder); !ok) return refuse(ok.error());
  auto known = targets_of(m);
  const auto config = adapter_config::read(folder / "adapter_config.json", known);
  if (!config) return refuse(config.error());
  const auto file = safetensors::open(folder / "adapter_model.safetensors");
  if (!file) return refuse(file.error());
  static std::atomic<std::uint64_t> count{0};
  adapter made;
  made.folder = folder;
  made.key = fmt::format("adapter {}", ++count);
  made.rank = config->rank;
  made.scale = config->scale;
  made.sublayers.resize(2ull * m.layers);
  made.model = m;
  if (auto ok = check_adapter_base(*file, made, base_sha256); !ok) return refuse(ok.error());
  adapter_tensors tensors{*file, *config};
  auto wanted = config->targets;
  if (!wanted) {
    std::erase_if(known, [&](const auto& t) { return !tensors.has(t); });
    wanted = std::move(known);
  }
  for (const auto& t : *wanted) {
    auto x = tensors.read(t);
    if (!x) return refuse(x.error());
    made.sublayers[t.sublayer].push_back(std::move(*x));
    ++made.tensors;
  }
  if (auto ok = tensors.check_all_read(); !ok) return refuse(ok.error());
  if (made.tensors == 0)
    return refuse_file(file->file(), "has no tensors, expected lora_A and lora_B of each module");
  return made;
}

expected<std::string> sha256_of_adapter(const std::filesystem::path& folder) {
  return sha256_of_files({folder / "adapter_config.json", folder / "adapter_model.safetensors"});
}

expected<adapter_ref> open_adapter(const std::filesystem::path& folder, const inference_model& m,
                                   const std::filesystem::path& base) {
  // The hash first: files that change in between have another one when they are read again. If
  // there are none to hash, reading says what is missing.
  auto hash = sha256_of_adapter(folder);
  auto read = read_adapter(folder, m, [&] { return sha256_of_weights(base); });
  if (!read) return refuse(read.error());
  if (!hash) return refuse(hash.error());
  read->sha256 = std::move(*hash);
  return std::make_shared<const adapter>(std::move(*read));
}

}  // namespace troupe::gpu
