#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "formats/load/part_readers.hpp"
#include "messages/base/absolute_path.hpp"

namespace troupe::formats {

namespace {

/// Each family's names of the sizes. Other keys are ignored.
// config.json is written by the transformers library. Keys that are unknown here are ignored,
// unlike in the house's own files: the library adds keys with every release, and most do not
// concern size. Missing keys have the library's defaults where it has any.
struct key_names {
  const char *hidden, *layers, *heads, *intermediate, *sequence;
};
constexpr key_names gpt2_keys{"n_embd", "n_layer", "n_head", "n_inner", "n_positions"};
constexpr key_names common_keys{"hidden_size", "num_hidden_layers", "num_attention_heads",
                                "intermediate_size", "max_position_embeddings"};

/// A key whose null means that it is absent.
bool given(const value& v, std::string_view key) {
  return v.has(key) && v.items[v.index_of(key)].what != value::kind::nothing;
}

// Null for an optional size means the default, 4 * hidden.
void read_sizes(map_reader& map, const value& v, const key_names& keys, model& m) {
  map.read_whole<std::uint32_t>(keys.hidden, m.hidden, 1, admission::max_hidden, need::required);
  map.read_whole<std::uint32_t>(keys.layers, m.layers, 1, admission::max_layers, need::required);
  map.read_whole<std::uint32_t>(keys.heads, m.heads, 1, admission::max_heads, need::required);
  if (given(v, keys.intermediate))
    map.read_whole<std::uint32_t>(keys.intermediate, m.intermediate, 1, 10'000'000);
}

/// Additions of Llama's descendants: grouped heads of their own width, and biases. Qwen3's norms of
/// heads, twice a head's width in a layer, are not counted.
void read_llama(map_reader& map, const value& v, const std::string& type, model& m) {
  if (given(v, "num_key_value_heads"))
    map.read_whole<std::uint32_t>("num_key_value_heads", m.kv_heads, 1, 100'000);
  std::uint32_t width = 0;
  if (type == "qwen3") width = 128;  // the library's default
  if (given(v, "head_dim")) map.read_whole<std::uint32_t>("head_dim", width, 1, 65'536);
  if (std::uint64_t{width} * m.heads != m.hidden) m.head_width = width;
  m.qkv_bias = type == "qwen2";
  if (type != "llama" && type != "qwen3") return;  // others do not have these keys, or ignore them
  if (given(v, "attention_bias")) map.read("attention_bias", m.qkv_bias);
  m.output_bias = m.qkv_bias;
  if (type != "llama") return;
  if (given(v, "mlp_bias")) map.read("mlp_bias", m.mlp_bias);
}

/// Linear scaling divides positions by its factor, so that as many more fit. YaRN's context is the
/// original one times the factor; a file may say so already.
void lengthen_context(findings& found, const value& v, model& m) {
  double context = m.sequence;
  for (const std::string key : {"rope_scaling", "rope_parameters"}) {
    if (!given(v, key)) continue;
    const auto& rope = v.items[v.index_of(key)];
    const auto is = [&](const char* type) {
      return std::ranges::any_of(std::array{"rope_type", "type"}, [&](std::string_view k) {
        return given(rope, k) && rope.items[rope.index_of(k)].text == type;
      });
    };
    const bool yarn = is("yarn");
    if (!yarn && !is("linear")) continue;
    double factor = 1, original = m.sequence;
    map_reader inner{found, rope, key};
    inner.read("factor", factor, {1, 1e6});
    if (yarn) inner.read("original_max_position_embeddings", original, {1, 1e9});
    context = std::max<double>(m.sequence, std::floor(original * factor));
    if (context > admission::max_sequence)
      inner.fail("factor", "found {:g}, times {:.0f} positions, expected at most {} positions",
                 factor, original, admission::max_sequence);
  }
  if (found.good()) m.sequence = static_cast<std::uint32_t>(context);
}

/// Patches and the class token; classes instead of a vocabulary.
// A vision transformer sees (image / patch)^2 patches and one class token; its head has a row for
// each class.
void read_vit(map_reader& map, const value& v, model& m) {
  std::uint32_t image = 224, patch = 16;
  map.read_whole<std::uint32_t>("image_size", image, 1, 65'536);
  map.read_whole<std::uint32_t>("patch_size", patch, 1, 65'536);
  if (map.found().good() && patch > image)
    map.fail("patch_size", "found {}, expected at most image_size ({})", patch, image);
  if (!map.found().good()) return;
  m.sequence = (image / patch) * (image / patch) + 1;
  m.vocabulary = 2;  // the library's own default
  map.read_whole<std::uint32_t>("num_labels", m.vocabulary, 1, 100'000'000);
  if (given(v, "id2label"))
    if (const auto* labels = map.find("id2label"); labels && !labels->items.empty())
      m.vocabulary = static_cast<std::uint32_t>(labels->items.size());
  m.tied_head = false;
}

/// The architecture, if it is supported. No similar name is suggested: mixtral is not mistral.
// An architecture that is only similar would give a wrong memory prediction; so there is no
// fallback.
bool read_type(map_reader& map, std::string& type) {
  static const std::vector<std::string> types{"gpt2",  "llama", "mistral", "qwen2",
                                              "qwen3", "bert",  "vit"};
  if (!map.read("model_type", type, need::required)) return false;
  if (std::find(types.begin(), types.end(), type) != types.end()) return true;
  map.fail("model_type", "'{}' is not supported; supported: {}", shown(type),
           fmt::join(types, ", "));
  return false;
}

/// config.json has no name: the folder or the file's own name is used.
// Most folders are named after their model.
std::string name_of(const std::string& file, const std::string& type) {
  const auto whole = absolute_path(file);
  const auto path = std::filesystem::path{whole ? *whole : file}.lexically_normal();
  const auto name = path.filename() == "config.json" ? path.parent_path().filename() : path.stem();
  return is_name(name.string()) ? name.string() : type;
}

}  // namespace

model read_huggingface(findings& found, const value& v) {
  model m;
  map_reader map{found, v, ""};
  std::string type;
  if (!read_type(map, type)) return m;
  m.name = name_of(found.file(), type);
  if (given(v, "_name_or_path")) {
    map.read("_name_or_path", m.name);
    if (m.name.empty()) m.name = name_of(found.file(), type);
  }
  const bool gpt2 = type == "gpt2";
  const auto& keys = gpt2 ? gpt2_keys : common_keys;
  m.family = gpt2 ? "gpt" : type == "bert" || type == "vit" ? type : "llama";
  read_sizes(map, v, keys, m);
  if (type == "vit") {
    read_vit(map, v, m);
  } else {
    map.read_whole<std::uint32_t>(keys.sequence, m.sequence, 1, 100'000'000, need::required);
    map.read_whole<std::uint32_t>("vocab_size", m.vocabulary, 1, 100'000'000, need::required);
    m.tied_head = m.family != "llama";
    if (given(v, "tie_word_embeddings")) map.read("tie_word_embeddings", m.tied_head);
  }
  if (m.family == "llama") {
    read_llama(map, v, type, m);
    lengthen_context(found, v, m);
  }
  check_model(found, m, map.line(keys.heads), "");
  return m;
}

}  // namespace troupe::formats
