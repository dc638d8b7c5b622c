#include "gpu/model/parameters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "messages/base/invariant.hpp"
#include "messages/base/name_hash.hpp"
#include "messages/base/random.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::gpu {

namespace {

using start = parameter::start;

class list {
 public:
  explicit list(const stage_spec& s) : shard_{s.shard}, shards_{s.shards} {}

  void vector(std::string name, std::uint64_t n, start initial, std::uint64_t runs = 0) {
    add({.name = std::move(name), .columns = n, .initial = initial, .runs = runs});
  }
  void matrix(std::string name, std::uint64_t rows, std::uint64_t columns, double deviation,
              bool tied = false, std::uint64_t runs = 0) {
    add({.name = std::move(name),
         .rows = rows,
         .columns = columns,
         .deviation = deviation,
         .vector = false,
         .tied = tied,
         .runs = runs});
  }
  void layer_norm(const std::string& name, std::uint64_t n) {
    vector(name + ".weight", n, start::one);
    vector(name + ".bias", n, start::zero);
  }
  /// Column-parallel: `blocks` of output columns, of each of which a device has its slice: queries,
  /// keys and values.
  void widening(const std::string& name, std::uint64_t in, std::uint64_t out, std::uint64_t blocks,
                double deviation) {
    matrix(name + ".weight", in, out / shards_, deviation, false, split() ? in * blocks : 0);
    vector(name + ".bias", out / shards_, start::zero, split() ? blocks : 0);
  }
  /// Row-parallel: a device has the rows that match its columns of the product before; the results
  /// are summed, and the bias is added once.
  void coming_back(const std::string& name, std::uint64_t in, std::uint64_t out, double deviation) {
    matrix(name + ".weight", in / shards_, out, deviation, false, split() ? 1 : 0);
    vector(name + ".bias", out, start::zero);
  }
  std::vector<parameter> take() { return std::move(all_); }

 private:
  bool split() const { return shards_ > 1; }
  void add(parameter p) {
    p.shard = shard_;
    p.shards = shards_;
    if (!p.tied) {
      p.offset = end_;
      end_ += p.values();
    }
    all_.push_back(std::move(p));
  }

  std::uint32_t shard_, shards_;
  std::vector<parameter> all_;
  std::uint64_t end_ = 0;
};

constexpr double usual = 0.02;  // GPT-2's

}  // namespace

std::vector<std::uint64_t> parameter::shape() const {
  if (vector) return {columns};
  return {rows, columns};
}

// Two sublayers per layer, the attention first.
sublayer_names names_of(std::uint32_t i) {
  const auto h = fmt::format("h.{}.", i / 2);
  if (sublayer_kind(i) == sublayer::attention)
    return {h + "ln_1", h + "attn.c_attn", h + "attn.c_proj"};
  return {h + "ln_2", h + "mlp.c_fc", h + "mlp.c_proj"};
}

// The order is the layout of all arrays: ends and sublayers as they are used, tied parameters last.
// Names are those of Hugging Face's GPT-2, so that its files can be read and written.
std::vector<parameter> parameters_of(const stage_spec& s) {
  const auto& m = s.model;
  const std::uint64_t c = m.hidden, inner = inner_width(m);
  // Scaled so that the residual sum of 2 x layers branches keeps its size (GPT-2, section 2.3).
  const double residual = usual / std::sqrt(2.0 * m.layers);
  list l{s};
  if (s.has_embedding) {
    if (!m.tied_head) l.matrix("wte.weight", m.vocabulary, c, usual);
    l.matrix("wpe.weight", m.sequence, c, usual);
  }
  for (auto i = s.first_sublayer; i < s.first_sublayer + s.sublayers; ++i) {
    const auto names = names_of(i);
    const bool attention = sublayer_kind(i) == sublayer::attention;
    l.layer_norm(names.norm, c);
    l.widening(names.wide, c, attention ? 3 * c : inner, attention ? 3 : 1, usual);
    l.coming_back(names.back, attention ? c : inner, c, residual);
  }
  if (s.has_head) {
    l.layer_norm("ln_f", c);
    if (!m.tied_head) l.matrix("lm_head.weight", m.vocabulary, c, usual);
  }
  if (m.tied_head && (s.has_embedding || s.has_head))
    l.matrix("wte.weight", m.vocabulary, c, usual, true);
  return l.take();
}

// The whole model as one stage, for checks of completeness and for exports.
std::vector<parameter> parameters_of(const troupe::model& m) {
  return parameters_of(
      stage_spec{.model = m, .sublayers = 2 * m.layers, .has_embedding = true, .has_head = true});
}

namespace {

// A parameter is a sequence of runs; of each run, every device has one slice, by rank. With one run
// per row and block this cuts columns; with one run in all it cuts rows. No runs: the part is all.
template <class Whole, class Part, class Copy>
void each_run(const parameter& p, std::span<Whole> whole, std::span<Part> part, Copy copy) {
  TROUPE_INVARIANT(whole.size() == part.size() * (p.runs == 0 ? 1 : p.shards),
                   "the devices of a group have equally large parts of a parameter");
  if (p.runs == 0) return copy(whole, part);
  TROUPE_INVARIANT(part.size() % p.runs == 0 && p.shard < p.shards,
                   "a parameter's runs have a slice for each of the devices");
  const auto run = part.size() / p.runs;
  for (std::uint64_t r = 0; r < p.runs; ++r)
    copy(whole.subspan((r * p.shards + p.shard) * run, run), part.subspan(r * run, run));
}

}  // namespace

void take_share(const parameter& p, std::span<const float> whole, std::span<float> part) {
  each_run(p, whole, part, [](auto from, auto to) { std::ranges::copy(from, to.begin()); });
}

void put_share(const parameter& p, std::span<const float> part, std::span<float> whole) {
  each_run(p, whole, part, [](auto to, auto from) { std::ranges::copy(from, to.begin()); });
}

// Values depend only on seed and name, so a training starts with the same weights for any division
// into stages and devices: a device with a slice makes the whole parameter and takes its share.
void initialise(const parameter& p, std::uint64_t seed, std::span<float> values) {
  if (p.initial != start::normal) {
    for (auto& v : values) v = p.initial == start::one ? 1.0f : 0.0f;
    return;
  }
  if (p.runs > 0) {
    auto all = p;
    all.runs = 0;
    std::vector<float> whole(p.whole_values());
    initialise(all, seed, whole);
    take_share(p, whole, values);
    return;
  }
  random_source random{seed ^ hash_of_name(p.name)};
  for (std::size_t i = 0; i < values.size(); i += 2) {  // Box and Muller
    const double radius = p.deviation * std::sqrt(-2 * std::log(1 - random.uniform()));
    const double angle = 2 * std::numbers::pi * random.uniform();
    values[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < values.size()) values[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
}

// Numbers come from job files and messages: divisors are tested for 0 before they divide, and sums
// are made in 64 bits.
expected<void> check(const stage_spec& s) {
  const auto& m = s.model;
  if (m.family != "gpt" || !m.operators.empty())
    return refuse(reason::kind::invalid,
                  "the built-in trainer supports models of family gpt, not '{}'", m.family);
  if (m.kv_heads != 0 && m.kv_heads != m.heads)
    return refuse(reason::kind::invalid,
                  "{} key and value heads for {} heads: GPT-2 needs equal numbers", m.kv_heads,
                  m.heads);
  if (m.hidden == 0 || m.heads == 0 || m.sequence == 0 || m.vocabulary == 0 || m.layers == 0)
    return refuse(
        reason::kind::invalid,
        "a model needs hidden, heads, layers, sequence and vocabulary, all larger than 0");
  if (m.hidden % m.heads != 0)
    return refuse(reason::kind::invalid, "{} heads do not divide a hidden size of {}", m.heads,
                  m.hidden);
  if (s.shards == 0 || s.shard >= s.shards)
    return refuse(reason::kind::invalid, "shard {} of {} does not exist", s.shard, s.shards);
  if (m.heads % s.shards != 0 || inner_width(m) % s.shards != 0)
    return refuse(reason::kind::invalid,
                  "{} devices cannot share a stage: they must divide both the head count ({}) and "
                  "the MLP width ({})",
                  s.shards, m.heads, inner_width(m));
  if (s.rows == 0)
    return refuse(reason::kind::invalid, "a micro-batch needs at least one sequence");
  const auto first = 1ull * s.first_sublayer, end = first + s.sublayers, all = 2ull * m.layers;
  if (end > all)
    return refuse(reason::kind::invalid,
                  "sublayers {} to {} were requested, but the model has {}, two per layer", first,
                  end, all);
  if (s.has_embedding && first != 0)
    return refuse(reason::kind::invalid,
                  "the stage with the embedding must begin with sublayer 0, not {}", first);
  if (s.has_head && end != all)
    return refuse(reason::kind::invalid,
                  "the stage with the head must end with sublayer {}, not {}", all, end);
  if (s.sublayers == 0 && !s.has_embedding && !s.has_head)
    return refuse(reason::kind::invalid,
                  "a stage needs at least one sublayer, the embedding or the head");
  return {};
}

// Operations of the products only, two per multiplication and addition: attention has four products
// of width c for its matrices and two over the sequence; the MLP has two. The rest is bound by
// memory.
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
    size.forward_flops += (sublayer_kind(i) == sublayer::attention ? attention : mlp) / s.shards;
  if (s.has_head) size.forward_flops += 2 * t * c * m.vocabulary;
  return size;
}

}  // namespace troupe::gpu
