#include "gpu/profiling/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>

#include "gpu/device/clock.hpp"
#include "gpu/device/device_type.hpp"
#include "gpu/model/operations.hpp"
#include "gpu/model/parameters.hpp"
#include "messages/base/statistics.hpp"

namespace troupe::gpu {

namespace {

using device_maker = std::function<expected<std::unique_ptr<stage_device>>(const stage_spec&)>;

constexpr std::uint32_t few_layers = 3;
constexpr double part_times::*steps[] = {&part_times::forward_s, &part_times::recompute_s,
                                         &part_times::backward_s, &part_times::update_s,
                                         &part_times::gradients_s};

struct answer {
  expected<outcome> what;
  double computed_s = 0;  // by the device; of a device that does not measure it: all
  double around_s = 0;    // the rest from the request to its completion
};
/// The measured times of a stage's step, in all rounds.
struct samples {
  std::vector<double> computed_s, around_s;
};

// Synchronous, one operation at a time: an overlap with other operations would hide part of its
// time.
answer ask(stage_device& d, operation o) {
  std::promise<expected<outcome>> result;
  auto completed = result.get_future();
  const double begin_s = now_s();
  d.submit(std::move(o), [&result](expected<outcome> r) { result.set_value(std::move(r)); });
  auto what = completed.get();
  const double all_s = now_s() - begin_s;
  const double computed_s = what && what->compute_s > 0 ? what->compute_s : all_s;
  return {std::move(what), computed_s, std::max(0.0, all_s - computed_s)};
}

// Values of a linear congruential generator, which has no state outside: every run of a profile
// computes with the same inputs. Its upper bits are used, since the lower ones have short periods.
template <class T, class Make>
payload filled(std::size_t n, Make make) {
  std::vector<T> values(n);
  std::uint64_t state = 1;
  for (auto& v : values) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    v = make(state >> 33);
  }
  return payload{std::move(values)};
}

/// The inputs of a stage's steps: the same every time.
struct inputs {
  payload tokens, targets, activation, gradient;

  // Gradients are a thousand times smaller than activations, as in a training.
  explicit inputs(const stage_spec& s) {
    const auto n = static_cast<std::size_t>(tokens_of(s));
    const auto word = [&](std::uint64_t r) {
      return static_cast<std::uint32_t>(r % s.model.vocabulary);
    };
    const auto value = [](double size) {
      return [size](std::uint64_t r) {
        return static_cast<float>(size * (static_cast<double>(r) / 1073741824.0 - 1));
      };
    };
    tokens = filled<std::uint32_t>(n, word);
    targets = filled<std::uint32_t>(n, word);
    activation = filled<float>(n * s.model.hidden, value(1));
    gradient = filled<float>(n * s.model.hidden, value(1e-3));
  }
};

/// A stage on its own device, and its measured times.
class bench {
 public:
  static expected<std::unique_ptr<bench>> make(const stage_spec& s, const inputs& in,
                                               const device_maker& make_device) {
    auto d = make_device(s);
    if (!d) return refuse(d.error());
    return std::unique_ptr<bench>{new bench{s, in, std::move(*d)}};
  }

  /// Executes every step once; returns an error. Without `counts`: to warm up.
  /// The first three steps of a round warm up: memory, caches and clocks are then in the state of a
  /// running training. Recomputation follows a forward that keeps nothing, as in a schedule with
  /// recomputation; the second forward keeps its activations. Backward counts after both. The
  /// update with given gradients is measured as well, because stages with half of a tied embedding
  /// can only update so.
  expected<void> round(bool counts) {
    counts_ = counts;
    result_ = {};
    const operation recompute{.what = operations::recompute{}, .timed = true};
    take(forward(false), nullptr);
    take(recompute, nullptr);
    take(backward(), nullptr);
    take(forward(false), &forward_);
    take(recompute, &recompute_);
    take(backward(), &backward_);
    take(forward(true), &kept_);
    take(backward(), &backward_);
    auto sums = take({operations::gradients{}}, &gradients_);
    if (!result_) return result_;
    take({operations::update{std::move(sums.of<operations::gradients>())}}, &given_);
    if (!halved()) take({.what = operations::update{}, .timed = true}, &update_);
    return result_;
  }

  // Medians, since a few steps are disturbed by other processes; the spread is the interquartile
  // range over the median, and the reader of a profile decides from it whether to trust the point.
  part_times times() const {
    part_times t;
    const auto median = [](const samples& s) { return statistics::median(s.computed_s); };
    t.forward_s = median(forward_);
    auto kept_s = recompute_.computed_s;  // the same kernels
    kept_s.insert(kept_s.end(), kept_.computed_s.begin(), kept_.computed_s.end());
    t.recompute_s = statistics::median(kept_s);
    t.backward_s = median(backward_);
    const double given_s = median(given_);
    t.update_s = halved() ? given_s : median(update_);
    t.gradients_s = median(gradients_) + std::max(0.0, given_s - t.update_s);
    t.spread = std::max(spread(forward_.computed_s), spread(backward_.computed_s));
    t.peak_bytes = peak_bytes;
    return t;
  }
  /// The time of a step beside computing: its tensors' copies from and to the host, and the host's
  /// own work.
  part_times around() const {
    const auto median = [](const samples& s) { return statistics::median(s.around_s); };
    part_times t;
    t.forward_s = median(forward_), t.recompute_s = median(kept_), t.backward_s = median(backward_);
    t.update_s = halved() ? 0 : median(update_);
    return t;
  }

  std::uint64_t peak_bytes = 0;

 private:
  bench(const stage_spec& s, const inputs& in, std::unique_ptr<stage_device> d)
      : spec_{s}, in_{in}, device_{std::move(d)} {}

  /// Its embedding is another stage's head or vice versa: it updates with gradients from the host.
  bool halved() const { return spec_.model.tied_head && spec_.has_embedding != spec_.has_head; }

  operation forward(bool keep) const {
    return {.what = operations::forward{.keep = keep,
                                        .input = spec_.has_embedding ? in_.tokens : in_.activation,
                                        .targets = spec_.has_head ? in_.targets : payload{}},
            .timed = true};
  }
  operation backward() const {
    return {.what = operations::backward{.gradient = spec_.has_head ? payload{} : in_.gradient},
            .timed = true};
  }

  outcome take(operation o, samples* into) {
    if (!result_) return {};
    auto reply = ask(*device_, std::move(o));
    if (!reply.what) {
      result_ = refuse(reply.what.error());
      return {};
    }
    if (into != nullptr && counts_) {
      into->computed_s.push_back(reply.computed_s * spec_.emulate_speed);
      into->around_s.push_back(reply.around_s * spec_.emulate_speed);
    }
    return std::move(*reply.what);
  }

  // Quartiles ignore single outliers, like the median.
  static double spread(const std::vector<double>& v) {
    const double middle = statistics::median(v);
    return middle > 0 ? (statistics::quantile(v, 0.75) - statistics::quantile(v, 0.25)) / middle
                      : 0;
  }

  stage_spec spec_;
  const inputs& in_;
  std::unique_ptr<stage_device> device_;
  bool counts_ = false;
  expected<void> result_;  // of this round so far
  samples forward_, recompute_, kept_, backward_, gradients_, given_, update_;
};

void add(part_times& to, const part_times& more) {
  for (const auto what : steps) to.*what += more.*what;
}

/// Other devices that compute as long as this object exists.
class company {
 public:
  static expected<std::unique_ptr<company>> make(std::uint32_t others, const stage_spec& s,
                                                 const inputs& in,
                                                 const device_maker& make_device) {
    std::unique_ptr<company> c{new company};
    for (std::uint32_t i = 0; i < others; ++i) {
      auto b = bench::make(s, in, make_device);
      if (!b) return refuse(b.error());
      c->threads_.emplace_back([c = c.get(), mine = std::shared_ptr<bench>{std::move(*b)}] {
        while (!c->over_ && mine->round(false)) continue;
      });
    }
    return c;
  }
  ~company() {
    over_ = true;
    for (auto& t : threads_) t.join();
  }

 private:
  company() = default;
  std::atomic<bool> over_{false};
  std::vector<std::thread> threads_;
};

enum place : std::size_t { attention, mlp, one, three, embedding, head, whole, places };

/// The stages from whose times a point is computed. Only their sizes matter, not their layers.
/// Stages with a layer lie inside the model, without its ends, so that they measure layers only.
std::array<stage_spec, places> stages_of(troupe::model m, std::uint32_t sequence,
                                         std::uint32_t rows, double emulate_speed) {
  m.sequence = sequence;
  m.layers = few_layers + 2;
  std::array<stage_spec, places> all;
  all.fill({.model = m, .rows = rows, .emulate_speed = emulate_speed});
  const auto have = [&](place p, std::uint32_t first, std::uint32_t count) {
    all[p].first_sublayer = first;
    all[p].sublayers = count;
  };
  have(attention, 2, 1);
  have(mlp, 3, 1);
  have(one, 2, 2);
  have(three, 2, 2 * few_layers);
  have(embedding, 0, 0);
  have(head, 2 * m.layers, 0);
  have(whole, 0, 2);  // no stage has both ends without a layer
  all[whole].model.layers = 1;
  all[embedding].has_embedding = all[whole].has_embedding = true;
  all[head].has_head = all[whole].has_head = true;
  return all;
}

class point_maker {
 public:
  /// The kind computes, which measure_device() has checked.
  point_maker(const profile_wish& w, std::uint32_t tensor_parallel)
      : w_{w}, type_{*type_of(*device_kind_of(w.device))}, devices_{tensor_parallel} {}

  // The memory of a stage is the decrease of the device's free memory by its creation and one
  // round; all stages stay alive while others are measured, so that freed memory is not counted as
  // another's.
  // `after` is called with the share of the point that is done.
  expected<profile_point> make(const troupe::model& m, std::uint32_t sequence, std::uint32_t rows,
                               const std::function<void(double)>& after) {
    const auto specs = stages_of(m, sequence, rows, w_.emulate_speed);
    const auto make_device = [this](const stage_spec& s) { return open(s); };
    const inputs in{specs[one]};
    std::array<std::unique_ptr<bench>, places> all;
    const auto rounds = std::max(w_.rounds, 3u);
    const double passes = static_cast<double>(places) * (rounds + 1);
    double done = 0;
    for (std::size_t i = 0; i < places; ++i) {
      const auto before = free_bytes();
      auto b = bench::make(specs[i], in, make_device);
      if (!b) return refuse(b.error());
      all[i] = std::move(*b);
      if (auto ok = all[i]->round(false); !ok) return refuse(ok.error());
      const auto now_free = free_bytes();
      if (before > now_free) all[i]->peak_bytes = before - now_free;
      after(++done / passes);
    }
    const auto others = company::make((w_.busy - 1) / devices_, specs[three], in, make_device);
    if (!others) return refuse(others.error());
    // In turn, so that changes over time affect all of them.
    for (std::uint32_t r = 0; r < rounds; ++r)
      for (auto& b : all) {
        if (auto ok = b->round(true); !ok) return refuse(ok.error());
        after(++done / passes);
      }
    profile_point p;
    p.sequence = sequence;
    p.rows = rows;
    p.tensor_parallel = devices_;
    const auto parts = take_apart(
        {all[attention]->times(), all[mlp]->times(), all[one]->times(), all[three]->times()});
    p.attention = parts.attention, p.mlp = parts.mlp, p.plain = parts.plain;
    p.embedding = all[embedding]->times(), p.head = all[head]->times();
    p.ends = both_ends({p.embedding, p.head, all[whole]->times(), all[one]->times()}, p.plain);
    const std::pair<part_times*, place> stages[] = {
        {&p.plain, one}, {&p.embedding, embedding}, {&p.head, head}, {&p.ends, whole}};
    for (const auto& [part, stage] : stages) add(*part, all[stage]->around());
    return p;
  }

 private:
  std::uint64_t free_bytes() const { return type_.free_bytes(w_.index).value_or(0); }

  expected<std::unique_ptr<stage_device>> open(const stage_spec& s) const {
    std::vector<int> indices(devices_);
    std::iota(indices.begin(), indices.end(), w_.index);
    return type_.make_stage(s, indices, nullptr);
  }

  const profile_wish& w_;
  const device_type& type_;
  std::uint32_t devices_;  // that share each stage
};

/// One size of a model to be measured.
struct size_wish {
  std::uint32_t devices = 1, sequence = 0, rows = 0;

  // Nearly all of a pass is work on its tokens.
  double work() const { return static_cast<double>(sequence) * rows; }
};

std::vector<size_wish> sizes_of(const profile_wish& w, const troupe::model& m) {
  std::vector<std::uint32_t> devices{1};
  devices.insert(devices.end(), w.tensor_parallel.begin(), w.tensor_parallel.end());
  std::vector<size_wish> all;
  for (const auto t : devices)
    for (const auto sequence : w.sequences.empty() ? std::vector{m.sequence} : w.sequences)
      for (const auto rows : w.rows) all.push_back({t, sequence, rows});
  return all;
}

/// The work of all models, and what is done of it.
struct work_done {
  double done = 0, all = 0;
};

// A point that does not fit into memory is reported and left out; one that is impossible for the
// model ends its measurement, since it is an error of the request.
expected<model_profile> measure_model(const profile_wish& w, const troupe::model& m,
                                      work_done& work) {
  model_profile out{m.name,       m.hidden,    m.heads, static_cast<std::uint32_t>(inner_width(m)),
                    m.vocabulary, m.tied_head, {}};
  reason why;
  for (const auto& size : sizes_of(w, m)) {
    const auto what = fmt::format(
        "{}: {} row{} of {} tokens{}", m.name, size.rows, size.rows == 1 ? "" : "s", size.sequence,
        size.devices > 1 ? fmt::format(" on {} devices", size.devices) : "");
    const auto after = [&](double share) {
      if (w.progress) w.progress(what, (work.done + share * size.work()) / work.all);
    };
    after(0);
    auto p = point_maker{w, size.devices}.make(m, size.sequence, size.rows, after);
    work.done += size.work();
    if (p) {
      out.points.push_back(std::move(*p));
      continue;
    }
    why = p.error();
    if (w.not_measured) w.not_measured(fmt::format("{} not measured: {}", what, why.text));
    if (why.code == reason::kind::invalid) return refuse(std::move(why));
  }
  if (out.points.empty()) return refuse(std::move(why));
  return out;
}

}  // namespace

// No stage has both ends without a layer, so that part is a sum of differences: what the two ends
// add to an empty stage; and for steps over parameters, the whole model minus its layer.
part_times both_ends(const measured_ends& m, const part_times& plain) {
  part_times out;
  for (const auto what :
       {&part_times::forward_s, &part_times::recompute_s, &part_times::backward_s})
    out.*what = std::max(m.embedding.*what + m.head.*what - plain.*what, 0.0);
  // Both have a tied embedding, but a stage with both ends has it once.
  for (const auto what : {&part_times::update_s, &part_times::gradients_s})
    out.*what = std::max(m.whole.*what - m.one_layer.*what, 0.0) + plain.*what;
  const auto bytes = m.whole.peak_bytes + plain.peak_bytes;
  out.peak_bytes = bytes > m.one_layer.peak_bytes ? bytes - m.one_layer.peak_bytes : 0;
  out.spread = std::max(m.embedding.spread, m.head.spread);
  return out;
}

// A stage's time is plain + layers x layer: two stages with one and three layers give both
// unknowns. A layer is then divided in the ratio of stages with only one of its sublayers. The
// parts sum to the measured layer exactly, which single measurements would not.
sublayer_times take_apart(const measured_stages& m) {
  sublayer_times out;
  const auto part = [&](double part_times::*what) {
    const double one = m.one_layer.*what, three = m.three_layers.*what;
    double layer = (three - one) / (few_layers - 1);
    // Below a tenth of the mean, differences are noise.
    if (layer < three / few_layers / 10) layer = three / few_layers;
    const double plain = std::max(0.0, one - layer);
    const double a = std::max(m.attention_alone.*what - plain, 0.0),
                 b = std::max(m.mlp_alone.*what - plain, 0.0);
    const double fraction = a + b > 0 ? a / (a + b) : 0.5;
    out.attention.*what = fraction * layer;
    out.mlp.*what = (1 - fraction) * layer;
    out.plain.*what = plain;
  };
  for (const auto what : steps) part(what);
  out.attention.spread = m.attention_alone.spread;
  out.mlp.spread = m.mlp_alone.spread;
  out.plain.spread = m.one_layer.spread;
  const auto bytes = [](const part_times& t) { return t.peak_bytes; };
  const auto less = [](std::uint64_t a, std::uint64_t b) { return a > b ? a - b : 0; };
  const auto layer = less(bytes(m.three_layers), bytes(m.one_layer)) / (few_layers - 1);
  out.plain.peak_bytes = less(bytes(m.one_layer), layer);
  out.attention.peak_bytes = std::min(layer, less(bytes(m.attention_alone), out.plain.peak_bytes));
  out.mlp.peak_bytes = layer - out.attention.peak_bytes;
  return out;
}

expected<device_profile> measure_device(const profile_wish& w) {
  auto profile = describe_device(w.device, w.index);
  if (!profile) return profile;
  profile->busy = w.busy;
  work_done work;
  for (const auto& m : w.models)
    for (const auto& size : sizes_of(w, m)) work.all += size.work();
  for (const auto& m : w.models) {
    auto one = measure_model(w, m, work);
    if (!one) return refuse(one.error());
    profile->models.push_back(std::move(*one));
  }
  return profile;
}

}  // namespace troupe::gpu
