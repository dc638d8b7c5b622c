#include "gpu/parameters.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "messages/random.hpp"

namespace troupe::gpu {

namespace {

using start = parameter::start;

class list {
 public:
  void vector(std::string name, std::uint64_t n, start initial) {
    add({.name = std::move(name), .columns = n, .initial = initial});
  }
  void matrix(std::string name, std::uint64_t rows, std::uint64_t columns, double deviation,
              bool tied = false) {
    add({.name = std::move(name),
         .rows = rows,
         .columns = columns,
         .deviation = deviation,
         .vector = false,
         .tied = tied});
  }
  void layer_norm(const std::string& name, std::uint64_t n) {
    vector(name + ".weight", n, start::one);
    vector(name + ".bias", n, start::zero);
  }
  void linear(const std::string& name, std::uint64_t in, std::uint64_t out, double deviation) {
    matrix(name + ".weight", in, out, deviation);
    vector(name + ".bias", out, start::zero);
  }
  std::vector<parameter> take() { return std::move(all_); }

 private:
  void add(parameter p) {
    if (!p.tied) {
      p.offset = end_;
      end_ += p.values();
    }
    all_.push_back(std::move(p));
  }

  std::vector<parameter> all_;
  std::uint64_t end_ = 0;
};

std::uint64_t hash_of(std::string_view name) {  // FNV-1a
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (const unsigned char c : name) h = (h ^ c) * 0x100000001b3ull;
  return h;
}

constexpr double usual = 0.02;  // GPT-2's

}  // namespace

std::vector<std::uint64_t> parameter::shape() const {
  if (vector) return {columns};
  return {rows, columns};
}

sublayer_names names_of(std::uint32_t i) {
  const auto h = fmt::format("h.{}.", i / 2);
  if (sublayer_kind(i) == sublayer::attention)
    return {h + "ln_1", h + "attn.c_attn", h + "attn.c_proj"};
  return {h + "ln_2", h + "mlp.c_fc", h + "mlp.c_proj"};
}

std::vector<parameter> parameters_of(const stage_spec& s) {
  const auto& m = s.model;
  const std::uint64_t c = m.hidden, inner = inner_width(m);
  // A residual sum of 2 x layers branches keeps its size (GPT-2, section 2.3).
  const double residual = usual / std::sqrt(2.0 * m.layers);
  list l;
  if (s.embeds) {
    if (!m.tied_head) l.matrix("wte.weight", m.vocabulary, c, usual);
    l.matrix("wpe.weight", m.sequence, c, usual);
  }
  for (auto i = s.first_sublayer; i < s.first_sublayer + s.sublayers; ++i) {
    const auto names = names_of(i);
    const bool attention = sublayer_kind(i) == sublayer::attention;
    l.layer_norm(names.norm, c);
    l.linear(names.wide, c, attention ? 3 * c : inner, usual);
    l.linear(names.back, attention ? c : inner, c, residual);
  }
  if (s.predicts) {
    l.layer_norm("ln_f", c);
    if (!m.tied_head) l.matrix("lm_head.weight", m.vocabulary, c, usual);
  }
  if (m.tied_head && (s.embeds || s.predicts)) l.matrix("wte.weight", m.vocabulary, c, usual, true);
  return l.take();
}

std::vector<parameter> parameters_of(const troupe::model& m) {
  stage_spec whole;
  whole.model = m;
  whole.sublayers = 2 * m.layers;
  whole.embeds = whole.predicts = true;
  return parameters_of(whole);
}

void initialise(const parameter& p, std::uint64_t seed, std::span<float> values) {
  if (p.initial != start::normal) {
    for (auto& v : values) v = p.initial == start::one ? 1.0f : 0.0f;
    return;
  }
  random_source random{seed ^ hash_of(p.name)};
  for (std::size_t i = 0; i < values.size(); i += 2) {  // Box and Muller
    const double radius = p.deviation * std::sqrt(-2 * std::log(1 - random.uniform()));
    const double angle = 2 * std::numbers::pi * random.uniform();
    values[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < values.size()) values[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
}

reason check(const stage_spec& s) {
  const auto& m = s.model;
  const auto no = [](std::string text) { return reason{reason::kind::invalid, std::move(text)}; };
  if (m.family != "gpt" || !m.operators.empty())
    return no(fmt::format("the built-in trainer trains models of family gpt, not '{}'", m.family));
  if (m.kv_heads != 0 && m.kv_heads != m.heads)
    return no(
        fmt::format("{} key and value heads for {} heads: GPT-2 has as many of one as of "
                    "the other",
                    m.kv_heads, m.heads));
  if (m.hidden == 0 || m.heads == 0 || m.sequence == 0 || m.vocabulary == 0 || m.layers == 0)
    return no("a model needs hidden, heads, layers, sequence and vocabulary, all larger than 0");
  if (m.hidden % m.heads != 0)
    return no(fmt::format("{} heads do not divide a hidden size of {}", m.heads, m.hidden));
  if (s.rows == 0) return no("a micro-batch needs at least one sequence");
  const auto first = 1ull * s.first_sublayer, end = first + s.sublayers, all = 2ull * m.layers;
  if (end > all)
    return no(fmt::format("sublayers {} to {} are asked for, but the model has {}, two a layer",
                          first, end, all));
  if (s.embeds && first != 0)
    return no(fmt::format("the stage that embeds begins with sublayer 0, not {}", first));
  if (s.predicts && end != all)
    return no(fmt::format("the stage that predicts ends with sublayer {}, not {}", all, end));
  if (s.sublayers == 0 && !s.embeds && !s.predicts)
    return no("a stage without sublayers has no work");
  return {};
}

stage_size size_of(const stage_spec& s) {
  const auto& m = s.model;
  stage_size size;
  for (const auto& p : parameters_of(s))
    (p.tied ? size.tied_parameters : size.own_parameters) += p.values();
  const auto tokens = tokens_of(s);
  size.activation_bytes = tokens * m.hidden * sizeof(float);
  const double t = static_cast<double>(tokens), c = m.hidden;
  // Weights, and attention without its mask.
  const double attention = 8 * t * c * c + 4 * t * m.sequence * c;
  const double mlp = 4 * t * c * static_cast<double>(inner_width(m));
  for (auto i = s.first_sublayer; i < s.first_sublayer + s.sublayers; ++i)
    size.forward_flops += sublayer_kind(i) == sublayer::attention ? attention : mlp;
  if (s.predicts) size.forward_flops += 2 * t * c * m.vocabulary;
  return size;
}

}  // namespace troupe::gpu
