#include "gpu/inference/inference_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "gpu/inference/known_keys.hpp"
#include "gpu/inference/other_formats.hpp"
#include "messages/admission/admission.hpp"
#include "messages/base/absolute_path.hpp"
#include "text/json/json_file.hpp"

namespace troupe::gpu {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Reads an object's keys; the first error is kept. A null counts as missing.
class config_reader {
 public:
  config_reader(const json& object, std::string file) : all_{object}, file_{std::move(file)} {}

  const json* find(const char* key) const {
    const auto found = all_.find(key);
    return found == all_.end() || found->is_null() ? nullptr : &*found;
  }
  /// Is it there, if only as null?
  bool has(const char* key) const { return all_.contains(key); }
  bool has_null(const char* key) const {
    const auto found = all_.find(key);
    return found != all_.end() && found->is_null();
  }
  void whole(const char* key, std::uint32_t& out, std::uint32_t low, std::uint32_t high,
             bool required = false) {
    const auto* j = find(key);
    if (!j && !required) return;
    if (j && j->is_number_unsigned() && j->get<std::uint64_t>() >= low &&
        j->get<std::uint64_t>() <= high)
      out = j->get<std::uint32_t>();
    else
      fail(key, j, fmt::format("a whole number from {} to {}", low, high));
  }
  void number(const char* key, double& out, double low, double high, bool required = false) {
    const auto* j = find(key);
    if (!j && !required) return;
    if (j && j->is_number() && j->get<double>() >= low && j->get<double>() <= high)
      out = j->get<double>();
    else
      fail(key, j, fmt::format("a number from {:g} to {:g}", low, high));
  }
  void flag(const char* key, bool& out) {
    const auto* j = find(key);
    if (j && j->is_boolean())
      out = j->get<bool>();
    else if (j)
      fail(key, j, "true or false");
  }
  std::string word(const char* key, std::string otherwise) {
    const auto* j = find(key);
    if (j && !j->is_string()) fail(key, j, "a name");
    return j && j->is_string() ? j->get<std::string>() : otherwise;
  }
  /// Refuses any value but this one, which is also what a missing key means.
  void must_be(const char* key, const json& only) {
    if (const auto* j = find(key); j && *j != only) fail(key, j, only.dump());
  }
  void fail(const char* key, const json* found, const std::string& wanted) {
    const auto what =
        found ? shown(found->dump(-1, ' ', false, json::error_handler_t::replace)) : "nothing";
    refuse_with("{}: found {}, expected {}", key, what, wanted);
  }
  template <class... Values>
  void refuse_with(fmt::format_string<Values...> text, Values&&... values) {
    const auto why = fmt::format(text, std::forward<Values>(values)...);
    if (good()) problem_ = reason{reason::kind::invalid, fmt::format("{}: {}", file_, why)};
  }
  void add(const reason& why) {
    if (good()) problem_ = why;
  }
  /// Refuses all keys but these, unless their value is null or the neutral one.
  void only(std::span<const std::string_view> known, const std::string& otherwise) {
    for (const auto& [key, value] : all_.items())
      if (std::ranges::find(known, key) == known.end() && !value.is_null() &&
          !is_neutral_rope_key(key, value))
        return fail(shown(key).c_str(), &value, otherwise);
  }
  bool good() const { return !problem_; }
  const reason& problem() const { return *problem_; }
  const std::string& file() const { return file_; }

 private:
  const json& all_;
  std::string file_;
  std::optional<reason> problem_;
};

// GPT-2 has no key for the parts that are always so: learned positions, biases everywhere, an MLP
// of four times the hidden size unless n_inner differs. The computation has one form of each:
// another activation, epsilon or scale in the file would silently change every result, so it is
// refused by name.
void read_gpt2(config_reader& c, inference_model& m) {
  m.kind = inference_model::family::gpt2;
  c.whole("n_embd", m.hidden, 1, admission::max_hidden, true);
  c.whole("n_layer", m.layers, 1, admission::max_layers, true);
  c.whole("n_head", m.heads, 1, admission::max_heads, true);
  c.whole("n_positions", m.positions, 1, admission::max_sequence, true);
  m.kv_heads = m.heads;
  m.intermediate = 4 * m.hidden;
  c.whole("n_inner", m.intermediate, 1, admission::max_intermediate);
  c.flag("tie_word_embeddings", m.tied_head);
  if (const auto act = c.word("activation_function", "gelu_new");
      act != "gelu_new" && act != "gelu_pytorch_tanh")
    c.fail("activation_function", c.find("activation_function"), "gelu_new or gelu_pytorch_tanh");
  c.number("layer_norm_epsilon", m.norm_epsilon, 0, 1);
  if (m.norm_epsilon != 1e-5) c.fail("layer_norm_epsilon", c.find("layer_norm_epsilon"), "1e-05");
  c.must_be("scale_attn_weights", true);
  c.must_be("scale_attn_by_inverse_layer_idx", false);
}

/// YaRN's scale of cosines and sines for a factor: more positions, sharper attention.
double yarn_sharpness(double factor, double weight) {
  return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1;
}

/// Positions times the factor, if that is more than the file says already.
void lengthen_context(config_reader& c, double positions, double factor, inference_model& m) {
  const auto context = std::floor(positions * factor);
  if (context > admission::max_sequence)
    return c.refuse_with("{:.0f} positions, scaled by a factor of {:g}: expected at most {}",
                         positions, factor, admission::max_sequence);
  m.positions = std::max(m.positions, static_cast<std::uint32_t>(context));
}

// YaRN's context is the original one times the factor; a file may say so already.
void read_yarn(config_reader& inner, inference_model& m) {
  auto& r = m.rope;
  r.what = rope_scaling::kind::yarn;
  r.original_positions = m.positions;
  inner.number("factor", r.factor, 1, 1e6, true);
  inner.number("original_max_position_embeddings", r.original_positions, 1, 1e9);
  inner.number("beta_fast", r.fast_turns, 1e-3, 1e6);
  inner.number("beta_slow", r.slow_turns, 1e-3, 1e6);
  inner.flag("truncate", r.whole_bounds);
  double weight = 0, weight_of_all = 0;
  inner.number("mscale", weight, 0, 1e3);
  inner.number("mscale_all_dim", weight_of_all, 0, 1e3);
  r.attention_factor = weight > 0 && weight_of_all > 0 ? yarn_sharpness(r.factor, weight) /
                                                             yarn_sharpness(r.factor, weight_of_all)
                                                       : yarn_sharpness(r.factor, 1);
  inner.number("attention_factor", r.attention_factor, 1e-3, 1e3);
  if (inner.good() && r.fast_turns <= r.slow_turns)
    inner.fail("beta_fast", inner.find("beta_fast"), "more than beta_slow");
  if (m.rope_theta <= 1)
    inner.refuse_with("rope_theta: found {:g}, expected more than 1", m.rope_theta);
  lengthen_context(inner, r.original_positions, r.factor, m);
}

/// `type` is the older name of `rope_type`; readers differ about which one counts.
std::string rope_type_of(config_reader& inner) {
  const auto older = inner.word("type", "default");
  const auto type = inner.word("rope_type", older);
  if (inner.find("type") && type != older)
    inner.fail("type", inner.find("type"), fmt::format("\"{}\", as rope_type", type));
  return type;
}

// Scalings that are linear, Llama 3's or YaRN's are computed (rotary.cpp); a dynamic one changes
// nothing within max_position_embeddings, which is the context. A key that the type does not use is
// refused, since another reader may compute with it.
void read_rope_object(config_reader& inner, inference_model& m) {
  inner.number("rope_theta", m.rope_theta, 1, 1e15);
  const auto type = rope_type_of(inner);
  const bool llama3 = type == "llama3";
  if (llama3 || type == "linear") {
    m.rope.what = llama3 ? rope_scaling::kind::llama3 : rope_scaling::kind::linear;
    inner.number("factor", m.rope.factor, 1, 1e6, true);
  } else if (type == "yarn") {
    read_yarn(inner, m);
  } else if (type == "dynamic") {
    double factor = 1;
    inner.number("factor", factor, 1, 1e6, true);
  } else if (type != "default") {
    inner.fail("rope_type", inner.find(inner.find("rope_type") ? "rope_type" : "type"),
               "default, linear, dynamic, llama3 or yarn");
  }
  if (llama3) {
    inner.number("low_freq_factor", m.rope.low_frequency_factor, 1e-3, 1e6, true);
    inner.number("high_freq_factor", m.rope.high_frequency_factor, 1e-3, 1e6, true);
    inner.number("original_max_position_embeddings", m.rope.original_positions, 1, 1e9, true);
    if (inner.good() && m.rope.high_frequency_factor <= m.rope.low_frequency_factor)
      inner.fail("high_freq_factor", inner.find("high_freq_factor"), "more than low_freq_factor");
  }
  const bool untyped = !inner.find("rope_type") && !inner.find("type");
  inner.only(rope_keys(type), untyped ? "a rope_type that uses it"
                                      : fmt::format("none: '{}' does not use it", type));
}

// Older files have rope_theta beside rope_scaling, newer ones both in rope_parameters. Which of
// them counts if both are there depends on the reader, so they must mean the same.
void read_rope(config_reader& c, inference_model& m) {
  c.number("rope_theta", m.rope_theta, 1, 1e15);
  auto scaled = m;
  bool second = false;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto* j = c.find(key);
    if (!j) continue;
    if (!j->is_object()) return c.fail(key, j, "an object or null");
    config_reader inner{*j, fmt::format("{}: {}", c.file(), key)};
    auto one = m;
    read_rope_object(inner, one);
    if (!inner.good()) return c.add(inner.problem());
    if (second && (one.rope != scaled.rope || one.rope_theta != scaled.rope_theta))
      return c.fail(key, j, "what rope_scaling says");
    scaled = std::move(one);
    second = true;
  }
  m = std::move(scaled);
  // Positions are divided by the factor, so as many more fit; Llama 3's already counts them.
  if (m.rope.what == rope_scaling::kind::linear) lengthen_context(c, m.positions, m.rope.factor, m);
}

/// May a layer attend within a window? By transformers, none of Llama does, and Qwen's do from
/// layer max_window_layers on. layer_types says it for each layer.
bool has_windows(config_reader& c, const std::string& type, const inference_model& m) {
  bool used = false;
  c.flag("use_sliding_window", used);
  if (type == "llama") return false;
  std::uint32_t first = 28;  // the default of transformers
  c.whole("max_window_layers", first, 0, admission::max_layers);
  return used && !c.find("layer_types") && first < m.layers;
}

/// layer_types, if the file has it: each must be `every`.
void check_layer_types(config_reader& c, const inference_model& m, const std::string& expected,
                       const char* every) {
  const auto* types = c.find("layer_types");
  if (!types) return;
  if (!types->is_array() || types->size() != m.layers)
    return c.fail("layer_types", types, fmt::format("a list of {} names", m.layers));
  for (const auto& t : *types)
    if (t != every) return c.fail("layer_types", &t, expected);
}

/// A window that ends before the context does changes what later positions attend to.
void check_window(config_reader& c, const std::string& type, const inference_model& m) {
  const bool used = has_windows(c, type, m);
  std::uint32_t window = c.has("sliding_window") || type == "llama" ? m.positions : 4096;
  c.whole("sliding_window", window, 0, admission::max_sequence);
  if (used && window < m.positions)
    c.refuse_with(
        "sliding_window: found {}, expected null or at least the context ({}): attention within a "
        "window is not supported",
        window, m.positions);
  check_layer_types(c, m, "\"full_attention\" only", "full_attention");
}

/// Mistral's window, which all layers have: a file without the key has the first version's, and
/// null is none.
void read_mistral_window(config_reader& c, inference_model& m) {
  constexpr std::uint32_t first_version = 4096;
  std::uint32_t window = c.has_null("sliding_window") ? m.positions : first_version;
  c.whole("sliding_window", window, 1, admission::max_sequence);
  if (window < m.positions) m.window = window;
  const char* every = m.window > 0 ? "sliding_attention" : "full_attention";
  check_layer_types(c, m, fmt::format("\"{}\" only, as sliding_window says", every), every);
}

/// Qwen3 has norms of heads, and heads whose width does not follow from the hidden size.
void read_qwen3(config_reader& c, inference_model& m) {
  constexpr std::uint32_t usual_width = 128;
  m.head_norms = true;
  if (m.head_width == 0) m.head_width = usual_width;
  c.flag("attention_bias", m.qkv_bias);
  m.output_bias = m.qkv_bias;
}

// Llama, Mistral, Qwen2 and Qwen3 are one computation. They differ in their biases (Qwen2: queries,
// keys and values alone; Llama, Qwen3: by keys of the file), in norms of heads, and in which of
// them use a sliding window.
void read_llama(config_reader& c, const std::string& type, inference_model& m) {
  m.kind = inference_model::family::llama;
  c.whole("hidden_size", m.hidden, 1, admission::max_hidden, true);
  c.whole("num_hidden_layers", m.layers, 1, admission::max_layers, true);
  c.whole("num_attention_heads", m.heads, 1, admission::max_heads, true);
  c.whole("intermediate_size", m.intermediate, 1, admission::max_intermediate, true);
  c.whole("max_position_embeddings", m.positions, 1, admission::max_sequence, true);
  m.kv_heads = m.heads;
  c.whole("num_key_value_heads", m.kv_heads, 1, admission::max_heads);
  c.whole("head_dim", m.head_width, 1, 65'536);
  m.tied_head = false;
  c.flag("tie_word_embeddings", m.tied_head);
  c.number("rms_norm_eps", m.norm_epsilon, 1e-12, 1, true);
  c.must_be("hidden_act", "silu");
  m.qkv_bias = type == "qwen2";
  m.output_bias = m.mlp_bias = false;
  if (type == "llama") {
    c.flag("attention_bias", m.qkv_bias);
    m.output_bias = m.qkv_bias;
    c.flag("mlp_bias", m.mlp_bias);
  }
  if (type == "qwen3") read_qwen3(c, m);
  read_rope(c, m);
  if (type == "mistral") return read_mistral_window(c, m);
  check_window(c, type, m);
}

/// A token's number, or a list of them. Those beyond the vocabulary, such as the defaults of
/// transformers in the file of a smaller model, are never chosen.
void read_tokens(config_reader& c, const char* key, const inference_model& m,
                 std::vector<std::uint32_t>& out) {
  const auto* j = c.find(key);
  if (!j) return;
  out.clear();
  for (const auto& t : j->is_array() ? *j : json::array({*j})) {
    // Some files have -1 for none.
    if (t.is_number_integer() && t.get<std::int64_t>() < 0) continue;
    if (!t.is_number_unsigned()) return c.fail(key, &t, "a token's number, or a list of them");
    if (t.get<std::uint64_t>() < m.vocabulary) out.push_back(t.get<std::uint32_t>());
  }
}

// head_dim may be absent, and then follows from the hidden size; present, it need not divide it.
// Rotary positions turn pairs of values, so heads have an even number.
void check_sizes(config_reader& c, inference_model& m) {
  if (!c.good()) return;
  const bool gpt2 = m.kind == inference_model::family::gpt2;
  if (m.head_width == 0) {
    if (m.hidden % m.heads != 0)
      return c.refuse_with("{} heads do not divide a hidden size of {}", m.heads, m.hidden);
    m.head_width = m.hidden / m.heads;
  }
  if (m.heads % m.kv_heads != 0)
    return c.refuse_with("num_key_value_heads: found {}, expected a divisor of {} heads",
                         m.kv_heads, m.heads);
  if (!gpt2 && m.head_width % 2 != 0)
    return c.refuse_with("heads of {} values cannot have rotary positions", m.head_width);
  constexpr std::uint64_t max = 10'000'000;
  if (1ull * m.heads * m.head_width > max)
    return c.refuse_with("{} heads of {} values: expected at most {} values", m.heads, m.head_width,
                         max);
}

/// The authors' sampling (generation_config.json). Keys that are not applied are kept by name, for
/// a notice, unless they change no answer.
void read_defaults(config_reader& g, inference_model& m) {
  const auto number = [&](const char* key, double high, std::optional<double>& out) {
    double value = 0;
    g.number(key, value, 0, high);
    if (g.find(key)) out = value;
  };
  number("temperature", 100, m.defaults.temperature);
  number("top_p", 1, m.defaults.top_p);
  number("min_p", 1, m.defaults.min_p);
  double penalty = 1;
  g.number("repetition_penalty", penalty, 1e-6, 1e6);
  if (g.find("repetition_penalty")) m.defaults.repetition_penalty = penalty;
  std::uint32_t top_k = 0;
  // -1: all, as in vLLM.
  const auto* k = g.find("top_k");
  if (k && *k != -1) g.whole("top_k", top_k, 0, std::numeric_limits<std::uint32_t>::max());
  if (k) m.defaults.top_k = top_k;
}

}  // namespace

// config.json describes the computation, generation_config.json, if there is one, only defaults;
// its end tokens replace those of config.json, since chat models often end with further ones.
expected<inference_model> read_inference_model(const fs::path& folder) {
  constexpr std::size_t limit_bytes = 16u << 20;
  if (const auto what = no_model_folder(folder); !what.empty())
    return refuse(reason::kind::invalid, what);
  const auto file = folder / "config.json";
  const auto config = read_python_json_file(file, limit_bytes);
  if (!config) return refuse(config.error());
  config_reader c{*config, file.string()};
  inference_model m;
  const auto whole = absolute_path(folder);
  if (!whole) return refuse(whole.error());
  const auto path = fs::path{*whole}.lexically_normal();
  m.name = (path.has_filename() ? path : path.parent_path()).filename().string();
  const auto type = c.word("model_type", "");
  if (type == "gpt2")
    read_gpt2(c, m);
  else if (type == "llama" || type == "mistral" || type == "qwen2" || type == "qwen3")
    read_llama(c, type, m);
  else
    c.fail("model_type", c.find("model_type"), "gpt2, llama, mistral, qwen2 or qwen3");
  c.whole("vocab_size", m.vocabulary, 1, admission::max_vocabulary, true);
  for (const auto& [key, value] : keys_of_one_value()) c.must_be(key, value);
  for (const char* key : {"quantization_config", "quantization", "compression_config"})
    if (const auto* q = c.find(key))
      c.refuse_with("{}: the weights are quantized ({}), expected 32- or 16-bit floats", key,
                    quantization_text(*q));
  check_sizes(c, m);
  std::vector<std::uint32_t> first;
  read_tokens(c, "bos_token_id", m, first);
  if (!first.empty()) m.first_token = first.front();
  read_tokens(c, "eos_token_id", m, m.last_tokens);
  if (!c.good()) return refuse(c.problem());
  const auto more = folder / "generation_config.json";
  const auto generation = read_python_json_file_if_any(more, limit_bytes);
  if (!generation) return refuse(generation.error());
  config_reader g{*generation, more.string()};
  read_tokens(g, "eos_token_id", m, m.last_tokens);
  read_defaults(g, m);
  m.ignored_keys = settings_not_applied(*generation, m.positions);
  if (!g.good()) return refuse(g.problem());
  return m;
}

}  // namespace troupe::gpu
