#include "gpu/inference/inference_model.hpp"

#include <fmt/format.h>

#include <cmath>

#include "gpu/files/json_file.hpp"
#include "messages/admission/admission.hpp"
#include "messages/base/absolute_path.hpp"

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
        found ? admission::shown(found->dump(-1, ' ', false, json::error_handler_t::replace))
              : "nothing";
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
  c.must_be("add_cross_attention", false);
}

/// YaRN's scale of cosines and sines for a factor: more positions, sharper attention.
double yarn_sharpness(double factor, double weight) {
  return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1;
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
  const double reached = r.original_positions * r.factor;
  if (reached > m.positions)
    m.positions =
        static_cast<std::uint32_t>(std::min(reached, static_cast<double>(admission::max_sequence)));
}

// Older files have rope_theta beside rope_scaling, newer ones both in rope_parameters; `type` is
// the older name of `rope_type`. Of the scalings linear, Llama 3's and YaRN's are computed
// (rotary.cpp); a dynamic one changes nothing within max_position_embeddings, which is the context.
void read_rope(config_reader& c, inference_model& m) {
  const char* key = c.find("rope_parameters") ? "rope_parameters" : "rope_scaling";
  c.number("rope_theta", m.rope_theta, 1, 1e15);
  const auto* j = c.find(key);
  if (!j) return;
  if (!j->is_object()) return c.fail(key, j, "an object or null");
  config_reader inner{*j, fmt::format("{}: {}", c.file(), key)};
  inner.number("rope_theta", m.rope_theta, 1, 1e15);
  inner.must_be("partial_rotary_factor", 1.0);
  const auto type = inner.word("rope_type", inner.word("type", "default"));
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
  if (!inner.good()) c.add(inner.problem());
}

/// A window that ends before the context does changes what later positions attend to.
void check_window(config_reader& c, const inference_model& m, bool used) {
  std::uint32_t window = m.positions;
  c.whole("sliding_window", window, 0, admission::max_sequence);
  if (used && window < m.positions)
    c.refuse_with(
        "sliding_window: found {}, expected null or at least max_position_embeddings ({}): "
        "attention within a window is not supported",
        window, m.positions);
  if (const auto* types = c.find("layer_types"); types && types->is_array())
    for (const auto& t : *types)
      if (t != "full_attention") return c.fail("layer_types", &t, "\"full_attention\" only");
}

/// Mistral's window, which all layers have: a file without the key has the first version's, and
/// null is none.
void read_mistral_window(config_reader& c, inference_model& m) {
  constexpr std::uint32_t first_version = 4096;
  std::uint32_t window = c.has_null("sliding_window") ? m.positions : first_version;
  c.whole("sliding_window", window, 1, admission::max_sequence);
  if (window < m.positions) m.window = window;
  const std::string every = m.window > 0 ? "sliding_attention" : "full_attention";
  if (const auto* types = c.find("layer_types"); types && types->is_array())
    for (const auto& t : *types)
      if (t != every)
        return c.fail("layer_types", &t, fmt::format("\"{}\" only, as sliding_window says", every));
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
  c.must_be("partial_rotary_factor", 1.0);
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
  bool windowed = false;
  c.flag("use_sliding_window", windowed);
  check_window(c, m, windowed);
}

/// A token's number, or a list of them.
void read_tokens(config_reader& c, const char* key, const inference_model& m,
                 std::vector<std::uint32_t>& out) {
  const auto* j = c.find(key);
  if (!j) return;
  out.clear();
  for (const auto& t : j->is_array() ? *j : json::array({*j})) {
    // Some files have -1 for none.
    if (t.is_number_integer() && t.get<std::int64_t>() < 0) continue;
    if (!t.is_number_unsigned() || t.get<std::uint64_t>() >= m.vocabulary)
      return c.fail(key, &t, fmt::format("tokens below vocab_size ({})", m.vocabulary));
    out.push_back(t.get<std::uint32_t>());
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

/// The authors' sampling (generation_config.json). Keys that would change the choice of tokens and
/// are not computed are kept by name, for a notice, unless their value changes nothing.
void read_defaults(config_reader& g, inference_model& m) {
  const auto number = [&](const char* key, double high, std::optional<double>& out) {
    double value = 0;
    g.number(key, value, 0, high);
    if (g.find(key)) out = value;
  };
  number("temperature", 100, m.defaults.temperature);
  number("top_p", 1, m.defaults.top_p);
  number("min_p", 1, m.defaults.min_p);
  std::uint32_t top_k = 0;
  g.whole("top_k", top_k, 0, std::numeric_limits<std::uint32_t>::max());
  if (g.find("top_k")) m.defaults.top_k = top_k;
  const std::pair<const char*, json> neutral[] = {{"repetition_penalty", 1},   {"typical_p", 1},
                                                  {"no_repeat_ngram_size", 0}, {"num_beams", 1},
                                                  {"epsilon_cutoff", 0},       {"eta_cutoff", 0}};
  for (const auto& [key, value] : neutral)
    if (const auto* found = g.find(key); found && *found != value) m.ignored_keys.emplace_back(key);
}

}  // namespace

// config.json describes the computation, generation_config.json, if there is one, only defaults;
// its end tokens replace those of config.json, since chat models often end with further ones.
expected<inference_model> read_inference_model(const fs::path& folder) {
  constexpr std::size_t limit_bytes = 16u << 20;
  const auto file = folder / "config.json";
  const auto config = read_json_file(file, limit_bytes);
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
  if (const auto* q = c.find("quantization_config"))
    c.fail("quantization_config", q, "none: weights must be 32- or 16-bit floats");
  check_sizes(c, m);
  std::vector<std::uint32_t> first;
  read_tokens(c, "bos_token_id", m, first);
  if (!first.empty()) m.first_token = first.front();
  read_tokens(c, "eos_token_id", m, m.last_tokens);
  if (!c.good()) return refuse(c.problem());
  const auto more = folder / "generation_config.json";
  const auto generation = read_json_file_if_any(more, limit_bytes);
  if (!generation) return refuse(generation.error());
  config_reader g{*generation, more.string()};
  read_tokens(g, "eos_token_id", m, m.last_tokens);
  read_defaults(g, m);
  if (!g.good()) return refuse(g.problem());
  return m;
}

}  // namespace troupe::gpu
