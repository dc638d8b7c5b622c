#include "serving/gguf.hpp"

#include <cstdlib>
#include <fstream>
#include <functional>
#include <vector>

#include <fmt/format.h>

#include "gpu/inference/weights.hpp"

namespace troupe::bench {

namespace {

using gpu::inference_model;
using gpu::weight_matrix;

constexpr std::uint64_t alignment = 32;

/// Little-endian, as GGUF is and as this machine must be.
class bytes {
 public:
  template <class T>
  void number(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void string(const std::string& s) {
    number<std::uint64_t>(s.size());
    text_ += s;
  }
  void align() { text_.resize((text_.size() + alignment - 1) / alignment * alignment); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// Types of GGUF's values.
enum : std::uint32_t { u32 = 4, i32 = 5, f32 = 6, string = 8, array = 9 };

class metadata {
 public:
  void number(const std::string& key, std::uint32_t value) {
    begin(key, u32);
    out_.number(value);
  }
  void real(const std::string& key, double value) {
    begin(key, f32);
    out_.number(static_cast<float>(value));
  }
  void text(const std::string& key, const std::string& value) {
    begin(key, string);
    out_.string(value);
  }
  void texts(const std::string& key, const std::vector<std::string>& all) {
    begin(key, array);
    out_.number<std::uint32_t>(string);
    out_.number<std::uint64_t>(all.size());
    for (const auto& t : all) out_.string(t);
  }
  void numbers(const std::string& key, const std::vector<std::int32_t>& all) {
    begin(key, array);
    out_.number<std::uint32_t>(i32);
    out_.number<std::uint64_t>(all.size());
    for (const auto n : all) out_.number(n);
  }
  std::uint64_t count() const { return count_; }
  const std::string& bytes_written() const { return out_.text(); }

 private:
  void begin(const std::string& key, std::uint32_t type) {
    ++count_;
    out_.string(key);
    out_.number(type);
  }
  bytes out_;
  std::uint64_t count_ = 0;
};

/// A tensor of the file: rows of `columns` values.
struct stored {
  std::string name;
  std::uint64_t rows = 1, columns = 0;
  std::function<std::vector<float>()> values;
  bool vector = false;
};

/// A part of a matrix [in, columns], as llama.cpp has it: [columns, in].
stored turned(std::string name, const weight_matrix& m, std::size_t part, std::uint64_t seed) {
  weight_matrix one = m;
  one.tensors = {m.tensors[part]};
  one.out = m.tensors[part].columns;
  return {std::move(name), one.out, one.in, [one, seed] {
            std::vector<float> in(one.values()), out(one.values());
            gpu::random_weights(one, seed, in);
            for (std::uint64_t i = 0; i < one.in; ++i)
              for (std::uint64_t j = 0; j < one.out; ++j) out[j * one.in + i] = in[i * one.out + j];
            return out;
          }};
}

stored as_it_is(std::string name, const weight_matrix& m, std::uint64_t seed) {
  return {std::move(name), m.vector ? 1 : m.in, m.out,
          [m, seed] {
            std::vector<float> out(m.values());
            gpu::random_weights(m, seed, out);
            return out;
          },
          m.vector};
}

/// llama.cpp rotates neighbours, Hugging Face's files have the pairs half a head apart.
stored for_rotation(stored t, std::uint32_t heads) {
  const auto width = t.rows / heads, half = width / 2;
  t.values = [t, width, half] {
    const auto in = t.values();
    std::vector<float> out(in.size());
    for (std::uint64_t r = 0; r < t.rows; ++r) {
      const auto head = r / width, at = r % width;
      const auto to = head * width + at % half * 2 + at / half;
      std::copy_n(in.begin() + static_cast<std::ptrdiff_t>(r * t.columns), t.columns,
                  out.begin() + static_cast<std::ptrdiff_t>(to * t.columns));
    }
    return out;
  };
  return t;
}

void add_layer(std::vector<stored>& all, const inference_model& m, std::uint32_t layer,
               std::uint64_t seed) {
  const auto name = [&](const char* what) { return fmt::format("blk.{}.{}", layer, what); };
  const auto add = [&](const char* what, const weight_matrix& w) {
    if (w.exists())
      all.push_back(w.vector ? as_it_is(name(what), w, seed) : turned(name(what), w, 0, seed));
  };
  const auto attention = gpu::weights_of(m, 2 * layer), mlp = gpu::weights_of(m, 2 * layer + 1);
  add("attn_norm.weight", attention.norm);
  add("attn_norm.bias", attention.norm_bias);
  if (m.kind == inference_model::family::gpt2) {
    add("attn_qkv.weight", attention.wide);
    add("attn_qkv.bias", attention.wide_bias);
    add("ffn_up.weight", mlp.wide);
    add("ffn_up.bias", mlp.wide_bias);
  } else {
    all.push_back(for_rotation(turned(name("attn_q.weight"), attention.wide, 0, seed), m.heads));
    all.push_back(for_rotation(turned(name("attn_k.weight"), attention.wide, 1, seed), m.kv_heads));
    all.push_back(turned(name("attn_v.weight"), attention.wide, 2, seed));
    all.push_back(turned(name("ffn_gate.weight"), mlp.wide, 0, seed));
    all.push_back(turned(name("ffn_up.weight"), mlp.wide, 1, seed));
  }
  add("attn_output.weight", attention.back);
  add("attn_output.bias", attention.back_bias);
  add("ffn_norm.weight", mlp.norm);
  add("ffn_norm.bias", mlp.norm_bias);
  add("ffn_down.weight", mlp.back);
  add("ffn_down.bias", mlp.back_bias);
}

std::vector<stored> tensors_of(const inference_model& m, std::uint64_t seed) {
  std::vector<stored> all;
  const auto ends = gpu::end_weights_of(m);
  all.push_back(as_it_is("token_embd.weight", ends.embedding, seed));
  if (ends.positions.exists())
    all.push_back(as_it_is("position_embd.weight", ends.positions, seed));
  for (std::uint32_t i = 0; i < m.layers; ++i) add_layer(all, m, i, seed);
  all.push_back(as_it_is("output_norm.weight", ends.norm, seed));
  if (ends.norm_bias.exists()) all.push_back(as_it_is("output_norm.bias", ends.norm_bias, seed));
  if (!m.tied_head) all.push_back(turned("output.weight", ends.head, 0, seed));
  return all;
}

metadata metadata_of(const inference_model& m) {
  const bool gpt2 = m.kind == inference_model::family::gpt2;
  const std::string family = gpt2 ? "gpt2" : "llama";
  metadata d;
  d.text("general.architecture", family);
  d.text("general.name", m.name);
  d.number("general.alignment", alignment);
  d.number("general.file_type", 0);
  d.number(family + ".context_length", m.positions);
  d.number(family + ".embedding_length", m.hidden);
  d.number(family + ".feed_forward_length", m.intermediate);
  d.number(family + ".block_count", m.layers);
  d.number(family + ".attention.head_count", m.heads);
  d.number(family + ".attention.head_count_kv", m.kv_heads);
  d.number(family + ".vocab_size", m.vocabulary);
  d.real(family + (gpt2 ? ".attention.layer_norm_epsilon" : ".attention.layer_norm_rms_epsilon"),
         m.norm_epsilon);
  if (!gpt2) {
    d.real("llama.rope.freq_base", m.rope_theta);
    d.number("llama.rope.dimension_count", m.head_width);
  }
  // A vocabulary has to be there; nothing is tokenized.
  std::vector<std::string> words;
  for (std::uint32_t i = 0; i < m.vocabulary; ++i) words.push_back(fmt::format("t{}", i));
  d.text("tokenizer.ggml.model", "gpt2");
  d.text("tokenizer.ggml.pre", "gpt-2");
  d.texts("tokenizer.ggml.tokens", words);
  d.numbers("tokenizer.ggml.token_type", std::vector<std::int32_t>(m.vocabulary, 1));
  d.texts("tokenizer.ggml.merges", {"t 0"});
  return d;
}

}  // namespace

void write_gguf(const std::string& file, const inference_model& m, std::uint64_t seed) {
  const auto about = metadata_of(m);
  const auto all = tensors_of(m, seed);
  const auto aligned = [](std::uint64_t n) { return (n + alignment - 1) / alignment * alignment; };
  constexpr std::uint32_t magic = 0x46554747, version = 3, f32_tensor = 0;
  bytes head;
  head.number(magic);
  head.number(version);
  head.number<std::uint64_t>(all.size());
  head.number(about.count());
  std::string text = head.text() + about.bytes_written();
  bytes infos;
  std::uint64_t offset = 0;
  for (const auto& t : all) {
    infos.string(t.name);
    infos.number<std::uint32_t>(t.vector ? 1 : 2);
    infos.number(t.columns);
    if (!t.vector) infos.number(t.rows);
    infos.number(f32_tensor);
    infos.number(offset);
    offset += aligned(t.rows * t.columns * sizeof(float));
  }
  text += infos.text();
  text.resize(aligned(text.size()));
  std::ofstream out{file, std::ios::binary};
  out << text;
  for (const auto& t : all) {
    const auto values = t.values();
    std::string raw(aligned(values.size() * sizeof(float)), '\0');
    std::copy_n(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float),
                raw.begin());
    out << raw;
  }
  if (out.flush()) return;
  fmt::print(stderr, "cannot write {}\n", file);
  std::exit(2);
}

}  // namespace troupe::bench
