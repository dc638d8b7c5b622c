#include "gpu/inference/weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "gpu/inference/other_formats.hpp"
#include "gpu/model/checkpoint.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/shown.hpp"

namespace troupe::gpu {

namespace {

namespace fs = std::filesystem;
using weight_start = weight_matrix::start;

/// Matrices that read the same input are multiplied as one, with their columns side by side.
weight_matrix joined(std::vector<weight_matrix::tensor> tensors) {
  weight_matrix w;
  w.tensors = std::move(tensors);
  for (const auto& t : w.tensors) w.out += t.columns;
  return w;
}

weight_matrix vector_of(std::vector<weight_matrix::tensor> tensors, weight_start initial) {
  auto w = joined(std::move(tensors));
  w.vector = true;
  w.initial = initial;
  return w;
}

weight_matrix matrix_of(std::vector<weight_matrix::tensor> tensors, std::uint64_t in, bool turned) {
  auto w = joined(std::move(tensors));
  w.in = in;
  w.turned = turned;
  return w;
}

// A bias has its matrix's name with .bias for .weight, and the same columns.
weight_matrix bias_of(const weight_matrix& of) {
  auto tensors = of.tensors;
  for (auto& t : tensors) t.name.replace(t.name.rfind('.'), std::string::npos, ".bias");
  return vector_of(std::move(tensors), weight_start::zero);
}

// GPT-2 stores its matrices as [in, out] (Conv1D), with queries, keys and values in one.
sublayer_weights gpt2_sublayer(const inference_model& m, std::uint32_t i) {
  const auto names = names_of(i);
  const std::uint64_t hidden = m.hidden, inner = m.intermediate;
  const bool attention = i % 2 == 0;
  sublayer_weights w;
  w.norm = vector_of({{names.norm + ".weight", hidden}}, weight_start::one);
  w.wide = matrix_of({{names.wide + ".weight", attention ? 3 * hidden : inner}}, hidden, false);
  w.back = matrix_of({{names.back + ".weight", hidden}}, attention ? hidden : inner, false);
  w.norm_bias = bias_of(w.norm);
  w.wide_bias = bias_of(w.wide);
  w.back_bias = bias_of(w.back);
  return w;
}

// Llama stores matrices as [out, in], each projection by itself: they are turned and joined.
// SwiGLU's gate comes before its other half.
sublayer_weights llama_sublayer(const inference_model& m, std::uint32_t i) {
  const auto layer = fmt::format("model.layers.{}.", i / 2);
  const std::uint64_t hidden = m.hidden;
  sublayer_weights w;
  if (i % 2 == 0) {
    const auto part = [&](const char* name) {
      return layer + "self_attn." + name + "_proj.weight";
    };
    w.norm = vector_of({{layer + "input_layernorm.weight", hidden}}, weight_start::one);
    w.wide = matrix_of(
        {{part("q"), m.query_width()}, {part("k"), m.kv_width()}, {part("v"), m.kv_width()}},
        hidden, true);
    w.back = matrix_of({{part("o"), hidden}}, m.query_width(), true);
    if (m.qkv_bias) w.wide_bias = bias_of(w.wide);
    if (m.output_bias) w.back_bias = bias_of(w.back);
    if (m.head_norms) {
      w.query_norm =
          vector_of({{layer + "self_attn.q_norm.weight", m.head_width}}, weight_start::one);
      w.key_norm =
          vector_of({{layer + "self_attn.k_norm.weight", m.head_width}}, weight_start::one);
    }
  } else {
    const auto part = [&](const char* name) { return layer + "mlp." + name + "_proj.weight"; };
    w.norm = vector_of({{layer + "post_attention_layernorm.weight", hidden}}, weight_start::one);
    w.wide =
        matrix_of({{part("gate"), m.intermediate}, {part("up"), m.intermediate}}, hidden, true);
    w.back = matrix_of({{part("down"), hidden}}, m.intermediate, true);
    if (m.mlp_bias) w.wide_bias = bias_of(w.wide), w.back_bias = bias_of(w.back);
  }
  return w;
}

/// Writes a tensor of `columns` columns, as it is stored, into the matrix from column `first` on. A
/// block of columns at a time, so that reads of a turned tensor stay in the processor's cache.
void copy_columns(const weight_matrix& m, std::uint64_t columns, std::uint64_t first,
                  std::span<const float> stored, std::span<float> out) {
  constexpr std::uint64_t block = 32;
  for (std::uint64_t begin = 0; begin < columns; begin += block)
    for (std::uint64_t i = 0; i < m.in; ++i)
      for (auto j = begin; j < std::min(begin + block, columns); ++j)
        out[i * m.out + first + j] = stored[m.turned ? j * m.in + i : i * columns + j];
}

/// Not weights: masks of old GPT-2 files, and what rotary positions are computed from.
bool is_ignored(std::string_view name, const inference_model& m) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq") || (m.tied_head && name == "lm_head.weight");
}

constexpr std::string_view optional_prefix = "transformer.";

/// How much a tensor's name is like the one that is missing: the same but for what is before it, or
/// of the same module, as the parts of quantized weights are.
int likeness(const std::string& name, const std::string& wanted) {
  const auto inner = wanted.substr(wanted.find('.') + 1);
  if (name.ends_with("." + wanted)) return 4;
  if (wanted.ends_with("." + name)) return 3;
  if (name.starts_with(wanted.substr(0, wanted.rfind('.') + 1))) return 2;
  return name.ends_with("." + inner) ? 1 : 0;
}

/// Why files that do not have a tensor are not read: its values are of another type; or a name that
/// is there, so that people see how the names differ.
std::string missing_text(std::span<const safetensors> files, const std::string& wanted) {
  constexpr std::string_view types =
      "expected F32, F16 or BF16: quantized weights, and floats of other sizes, are not read";
  const stored_tensor* like = nullptr;
  bool read = false;
  int best = -1;
  for (const auto& file : files)
    for (const auto& t : file.all()) {
      if (t.name == wanted || t.name == std::string{optional_prefix} + wanted)
        return fmt::format("'{}' has values of type {}, {}", shown(t.name), shown(t.dtype), types);
      const int score = likeness(t.name, wanted);
      if (score > best) best = score, like = &t, read = file.find(t.name) != nullptr;
    }
  if (!like) return fmt::format("has no tensor '{}', and no other", wanted);
  const auto type =
      read ? "" : fmt::format(", with values of type {}; {}", shown(like->dtype), types);
  return fmt::format("has no tensor '{}'; {}, '{}' is there{}", wanted,
                     best > 0 ? "instead" : "for example", shown(like->name), type);
}

void append_tensors(const weight_matrix& w, std::vector<named_shape>& out) {
  using shape = std::vector<std::uint64_t>;
  for (const auto& t : w.tensors)
    out.push_back({t.name, w.vector   ? shape{t.columns}
                           : w.turned ? shape{t.columns, w.in}
                                      : shape{w.in, t.columns}});
}

}  // namespace

sublayer_weights weights_of(const inference_model& m, std::uint32_t sublayer) {
  return m.kind == inference_model::family::gpt2 ? gpt2_sublayer(m, sublayer)
                                                 : llama_sublayer(m, sublayer);
}

end_weights end_weights_of(const inference_model& m) {
  const bool gpt2 = m.kind == inference_model::family::gpt2;
  const std::string words = gpt2 ? "wte.weight" : "model.embed_tokens.weight";
  end_weights w;
  w.embedding = matrix_of({{words, m.hidden}}, m.vocabulary, false);
  if (gpt2) w.positions = matrix_of({{"wpe.weight", m.hidden}}, m.positions, false);
  w.norm = vector_of({{gpt2 ? "ln_f.weight" : "model.norm.weight", m.hidden}}, weight_start::one);
  if (gpt2) w.norm_bias = bias_of(w.norm);
  w.head = matrix_of({{m.tied_head ? words : "lm_head.weight", m.vocabulary}}, m.hidden, true);
  return w;
}

// In the order of the computation; a tied head is the embedding, and has no tensor.
std::vector<named_shape> tensors_of(const inference_model& m) {
  std::vector<named_shape> all;
  const auto ends = end_weights_of(m);
  append_tensors(ends.embedding, all);
  append_tensors(ends.positions, all);
  for (std::uint32_t i = 0; i < 2 * m.layers; ++i) {
    const auto s = weights_of(m, i);
    for (const auto* w : s.all()) append_tensors(*w, all);
  }
  append_tensors(ends.norm, all);
  append_tensors(ends.norm_bias, all);
  if (!m.tied_head) append_tensors(ends.head, all);
  return all;
}

expected<model_weights> model_weights::open(const fs::path& folder, const inference_model& m) {
  std::error_code error;
  const auto alone = folder / "model.safetensors";
  const auto names = checkpoint_files(fs::is_regular_file(alone, error) ? alone : folder);
  if (!names && names.error().code != reason::kind::unknown) return refuse(names.error());
  if (!names) {
    const auto others = other_weights(folder);
    return refuse(reason::kind::unknown, "{}",
                  others.empty()
                      ? folder.string() + ": has no *.safetensors with the model's weights"
                      : others);
  }
  model_weights w;
  auto files = safetensors::open_all(*names);
  if (!files) return refuse(files.error());
  w.files_ = std::move(*files);
  if (auto ok = w.check(folder, m); !ok) return refuse(ok.error());
  return w;
}

// All tensors in their shapes, and no others: a file of another model, or of another version of
// this one, would otherwise compute without an error. Some files name the tensors with a prefix,
// and some contain what is computed here anyway.
expected<void> model_weights::check(const fs::path& folder, const inference_model& m) const {
  std::set<std::string> known;
  for (const auto& wanted : tensors_of(m)) {
    const auto found = find(wanted.name);
    if (!found.tensor)
      return refuse(reason::kind::invalid, "{}: {}",
                    files_.size() == 1 ? files_[0].file().string() : folder.string(),
                    missing_text(files_, wanted.name));
    if (found.tensor->shape != wanted.shape)
      return refuse(reason::kind::invalid, "{}: '{}': found shape {}, expected {} by config.json",
                    found.file->file().string(), found.tensor->name,
                    shape_text(found.tensor->shape), shape_text(wanted.shape));
    known.insert(wanted.name);
  }
  for (const auto& file : files_)
    for (const auto& [name, about] : file.tensors()) {
      const auto plain = name.starts_with(optional_prefix) && !known.contains(name)
                             ? name.substr(optional_prefix.size())
                             : name;
      if (!known.contains(plain) && !is_ignored(plain, m))
        return refuse(reason::kind::invalid,
                      "{}: has a tensor '{}', which a model with this config.json does not have",
                      file.file().string(), name);
    }
  return {};
}

found_tensor model_weights::find(const std::string& name) const {
  const auto plain = find_tensor(files_, name);
  return plain.tensor ? plain : find_tensor(files_, std::string{optional_prefix} + name);
}

// A matrix that is stored as it is used is read in place; others go through a buffer, a tensor at a
// time.
expected<void> model_weights::read(const weight_matrix& m, std::span<float> out) const {
  std::vector<float> stored;
  std::uint64_t column = 0;
  for (const auto& t : m.tensors) {
    const auto from = find(t.name);
    if (!m.turned && m.tensors.size() == 1) return from.file->read(*from.tensor, out);
    stored.resize(m.in * t.columns);
    if (auto ok = from.file->read(*from.tensor, stored); !ok) return ok;
    copy_columns(m, t.columns, column, stored, out);
    column += t.columns;
  }
  return {};
}

// By the names and shapes of the files' tensors, so that a device with a part of the model has the
// same values as one with all of it.
void random_weights(const weight_matrix& m, std::uint64_t seed, std::span<float> out) {
  std::vector<float> one;
  std::uint64_t column = 0;
  for (const auto& t : m.tensors) {
    parameter p;
    p.name = t.name;
    p.rows = m.turned ? t.columns : m.in;
    p.columns = m.turned ? m.in : t.columns;
    p.initial = m.initial == weight_start::one    ? parameter::start::one
                : m.initial == weight_start::zero ? parameter::start::zero
                                                  : parameter::start::normal;
    one.resize(p.values());
    initialise(p, seed, one);
    copy_columns(m, t.columns, column, one, out);
    column += t.columns;
  }
}

}  // namespace troupe::gpu
