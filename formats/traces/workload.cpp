#include "formats/traces/workload.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "formats/load/load.hpp"
#include "formats/parse/reader.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/name_hash.hpp"
#include "messages/base/random.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::formats {

namespace {

// Traces have no models, and papers state how they assigned some. The rules here do so for three
// papers: Frenzy (models by size, small batches a GPU), Crius (its model zoo, fixed batches), TITAN
// (fine-tuning with dataset cards). A job gets iterations that last the trace's duration on the
// GPUs that its user asked for, by the cost model. All draws of a job come from its own stream, so
// that a filtered trace keeps its jobs.
/// The assumed user's estimate of memory: Adam in mixed precision takes 16 bytes per parameter.
constexpr double bytes_a_parameter = 16;
/// The fraction of memory that the assumed user fills; the rest is for activations.
constexpr double filled_share = 0.6;
/// The assumed user takes one of this many largest models that appear to fit.
constexpr std::size_t wish_list = 4;

struct ladder_model {
  troupe::model what;
  double parameters = 0;
};

// The usual formula of a transformer: embeddings and 12 h^2 + 13 h a layer.
double parameters_of(const model& m) {
  if (m.operators.empty()) {
    const double h = m.hidden;
    return m.vocabulary * h + m.layers * (12 * h * h + 13 * h);
  }
  double sum = 0;
  for (const auto& op : m.operators) sum += op.parameters;
  return sum;
}

std::uint32_t power_of_two_below(std::uint64_t n) {
  std::uint32_t p = 1;
  while (std::uint64_t{p} * 2 <= n && p < (1u << 30)) p *= 2;
  return p;
}

/// Seeded per job, so that other rows of the trace do not affect it.
random_source generator(std::uint64_t seed, std::string_view name) {
  return random_source{seed ^ hash_of_name(name)};
}

/// `drawn`: a random number from 0 to 1.
template <class T>
T weighted(double drawn, const std::vector<std::pair<T, double>>& choices) {
  TROUPE_INVARIANT(!choices.empty(), "a draw is from a list that has something");
  double sum = 0;
  for (const auto& [what, weight] : choices) sum += weight;
  double at = drawn * sum;
  for (const auto& [what, weight] : choices) {
    if (at < weight) return what;
    at -= weight;
  }
  return choices.back().first;
}

struct rule {
  std::vector<const char*> models;
  /// GPUs of a row, if the rule draws them instead of using the trace's (Crius, TITAN).
  std::vector<std::pair<std::uint32_t, double>> gpus;
  /// The batch: samples per GPU, or in total.
  std::vector<std::pair<std::uint32_t, double>> batches;
  bool batch_a_gpu = false;
  bool half_for_bert = false;  // BERT's batches are half of the others'
  double min_s = 0, max_s = 1e9;
  bool cards = false;
  bool deadlines = false;  // a row without one has one of 0.5 to 1.5 times its duration
};

// Order of models: by size within a family; they are sorted by parameters later.
const rule* find_rule(std::string_view name) {
  static const rule frenzy{
      {"gpt2-124m", "bert-base", "bert-large", "gpt2-350m", "gpt2-774m", "bert-760m", "bert-1.3b",
       "gpt2-1.5b", "bert-2.6b", "gpt2-2.7b", "bert-6.7b", "gpt2-7b"},
      {},
      {{1, 4}, {2, 3}, {4, 2}, {8, 1}},
      true};
  static const rule crius{{"wide-resnet-0.5b", "wide-resnet-1b", "wide-resnet-2b", "wide-resnet-4b",
                           "wide-resnet-6.8b", "bert-760m", "bert-1.3b", "bert-2.6b", "bert-6.7b",
                           "moe-0.69b", "moe-1.3b", "moe-2.4b", "moe-10b", "moe-27b"},
                          {{1, 6}, {2, 4}, {4, 4}, {8, 3}, {16, 2}, {32, 1}},
                          {{256, 1}, {512, 1}, {1024, 1}},
                          false,
                          true};
  static const rule crius_deadlines = [] {
    auto r = crius;
    r.deadlines = true;
    return r;
  }();
  if (name == "crius-deadlines") return &crius_deadlines;
  static const rule titan{{"bert-large", "vit-large-16"},
                          {{1, 8}, {2, 5}, {4, 5}, {8, 2}},
                          {{64, 1}, {128, 1}, {256, 1}, {512, 1}},
                          false,
                          false,
                          300,
                          36'000,
                          true};
  return name == "frenzy" ? &frenzy : name == "crius" ? &crius : name == "titan" ? &titan : nullptr;
}

// Draws in a fixed order, whether or not a value is used: another cluster or a column that is there
// must not shift later draws.
class assigner {
 public:
  assigner(const rule& r, std::uint64_t seed, const cluster& c, const iteration_time& seconds,
           const iteration_time& regardless, std::vector<ladder_model> ladder)
      : rule_(r),
        seed_(seed),
        cluster_(c),
        seconds_(seconds),
        regardless_(regardless),
        ladder_(std::move(ladder)) {
    TROUPE_INVARIANT(
        !ladder_.empty() && std::ranges::is_sorted(ladder_, {}, &ladder_model::parameters),
        "a rule has models, the smallest first");
    for (const auto& n : c.nodes) gpus_[n.gpu] += n.gpus;
  }

  expected<arrival> assign(const trace_row& row) {
    if (!(row.duration_s > 0))
      return refuse(reason::kind::invalid,
                    "job {}: no duration_s; only measured speeds (--throughputs) replay such rows",
                    row.job_id);
    auto random = generator(seed_, row.job_id);
    job_spec job;
    job.name = row.job_id;
    job.limits.deadline_s = row.deadline_s;
    job.merging.dataset_card = row.dataset_card;
    job.merging.allowed = row.merge;
    const auto wanted = wanted_gpus(row, random);
    const auto type = wanted_type(row, wanted, random);
    if (!type) return refuse(type.error());
    job.request.type = cluster_.gpus[*type].name;
    if (!row.gpu_type.empty() && row.gpu_type != job.request.type)
      job.limits.required_gpu_type = row.gpu_type;
    job.request.gpus = std::min(wanted, power_of_two_below(gpus_[*type]));
    job.model = wish(job, *type, random);
    const auto batch = weighted(random.uniform(), rule_.batches);
    job.global_batch =
        rule_.batch_a_gpu ? batch * job.request.gpus : std::max(batch, job.request.gpus);
    if (rule_.cards) describe_data(job, random);
    if (rule_.deadlines && !row.deadline_s)
      job.limits.deadline_s = row.duration_s * (0.5 + random.uniform());
    return fill_in(row, std::move(job));
  }

 private:
  // Powers of two, as plans need them. A row with a card is of a trace of fine-tuning jobs, in
  // which a single GPU is what its user asked for.
  std::uint32_t wanted_gpus(const trace_row& row, random_source& random) const {
    const auto drawn = rule_.gpus.empty() ? 1 : weighted(random.uniform(), rule_.gpus);
    const bool asked = row.gpus > 1 || !row.dataset_card.empty();
    return asked ? power_of_two_below(row.gpus) : drawn;
  }

  /// The GPU type that the user requests: every GPU of the cluster is equally likely, but types
  /// with too few come last.
  expected<gpu_index> wanted_type(const trace_row& row, std::uint32_t wanted,
                                  random_source& random) {
    const auto own = std::ranges::find(cluster_.gpus, row.gpu_type, &gpu_type::name);
    if (!row.gpu_type.empty() && own != cluster_.gpus.end())
      return static_cast<gpu_index>(own - cluster_.gpus.begin());
    if (!row.gpu_type.empty() && !regardless_)
      return refuse(reason::kind::infeasible, "job {}: the cluster {} has no {}", row.job_id,
                    cluster_.name, shown(row.gpu_type));
    std::vector<std::pair<gpu_index, double>> choices;
    gpu_index max = 0;
    for (const auto& [type, count] : gpus_) {
      if (count >= wanted) choices.emplace_back(type, count);
      if (count > gpus_[max]) max = type;
    }
    const double draw_anyway =
        random.uniform();  // the number of draws must not depend on the cluster
    return choices.empty() ? max : weighted(draw_anyway, choices);
  }

  /// A model that appears to fit; see the constants above.
  // The user's rule of thumb, not a plan: such users overestimate or underestimate memory, which is
  // what Frenzy corrects.
  model wish(const job_spec& job, gpu_index type, random_source& random) const {
    const double room = filled_share * job.request.gpus * cluster_.gpus[type].memory_bytes();
    std::size_t fitting = 0;
    while (fitting < ladder_.size() && bytes_a_parameter * ladder_[fitting].parameters <= room)
      ++fitting;
    if (rule_.cards)
      fitting = ladder_.size();  // fine-tuning: the models are given, not chosen by size
    fitting = std::max<std::size_t>(fitting, 1);
    const auto span = std::min(fitting, wish_list);
    return ladder_[fitting - 1 - random.below(span)].what;
  }

  static void describe_data(job_spec& job, random_source& random) {
    constexpr const char* tasks[] = {"classification", "detection", "retrieval"};
    constexpr const char* objects[] = {"animals", "plants", "vehicles", "food"};
    constexpr const char* domains[] = {"photo", "medical", "satellite"};
    auto card = std::vector<std::string>{tasks[random.below(3)], objects[random.below(4)],
                                         domains[random.below(3)]};
    const bool apart = random.chance(0.1);
    if (job.merging.dataset_card.empty()) {
      job.merging.dataset_card = std::move(card);
      job.merging.allowed = job.merging.allowed && !apart;
    }
    if (!job.merging.allowed) job.priority = -1;  // opting out of merging costs priority
  }

  double time_of(const job_spec& job) const {
    const double s = seconds_(job, job.request.gpus);
    return std::isfinite(s) && s > 0 ? s : 0;
  }

  /// First with the row's own values; then with smaller batches and models until the cluster has a
  /// plan.
  expected<arrival> fill_in(const trace_row& row, job_spec job) {
    if (!row.model.empty()) {
      const auto m = named(row.model);
      if (!m) return refuse(m.error());
      job.model = *m;
    }
    if (rule_.half_for_bert && job.model.family == "bert")
      job.global_batch = std::max(job.global_batch / 2, job.request.gpus);
    if (row.global_batch) job.global_batch = *row.global_batch;
    double s = time_of(job);
    while (s == 0 && shrink(row, job)) s = time_of(job);
    if (s == 0 && regardless_) s = regardless_(job, job.request.gpus);
    if (!(std::isfinite(s) && s > 0))
      return refuse(reason::kind::infeasible,
                    "job {}: no plan of {} with batch {} fits the cluster {}", row.job_id,
                    job.model.name, job.global_batch, cluster_.name);
    const double duration = std::clamp(row.duration_s, rule_.min_s, rule_.max_s);
    job.iterations = row.iterations.value_or(
        static_cast<std::uint64_t>(std::max(1.0, std::round(duration / s))));
    return arrival{row.submit_s, std::move(job)};
  }

  // The batch first, then the next smaller model: a row's own values are never changed.
  bool shrink(const trace_row& row, job_spec& job) const {
    if (!row.global_batch && job.global_batch > job.request.gpus) {
      job.global_batch /= 2;
      return true;
    }
    if (!row.model.empty()) return false;
    for (std::size_t i = 1; i < ladder_.size(); ++i)
      if (ladder_[i].what.name == job.model.name) {
        job.model = ladder_[i - 1].what;
        return true;
      }
    return false;
  }

  // A file by name, once.
  expected<model> named(const std::string& name) {
    for (const auto& l : ladder_)
      if (l.what.name == name) return l.what;
    if (const auto at = named_.find(name); at != named_.end()) return at->second;
    if (!is_name(name))
      return refuse(reason::kind::invalid, "'{}' is not a model name", shown(name));
    auto m = load_model(configs_directory() / "models" / (name + ".yaml"));
    if (m) named_.emplace(name, *m);
    return m;
  }

  const rule& rule_;
  std::uint64_t seed_;
  const cluster& cluster_;
  const iteration_time& seconds_;
  const iteration_time& regardless_;
  std::vector<ladder_model> ladder_;  // by parameters
  std::map<gpu_index, std::uint32_t> gpus_;
  std::map<std::string, model> named_;
};

}  // namespace

expected<std::vector<arrival>> assign(std::span<const trace_row> rows, std::string_view workload,
                                      std::uint64_t seed, const cluster& c,
                                      const iteration_time& seconds,
                                      const iteration_time& regardless,
                                      const std::filesystem::path& models) {
  const std::vector<std::string> names{"frenzy", "crius", "crius-deadlines", "titan"};
  const auto* r = find_rule(workload);
  if (!r)
    return refuse(reason::kind::invalid, "unknown workload '{}'{}", shown(workload),
                  hint(workload, names));
  if (c.nodes.empty()) return refuse(reason::kind::invalid, "the cluster has no nodes");
  std::vector<ladder_model> ladder;
  const auto directory = models.empty() ? configs_directory() / "models" : models;
  for (const char* name : r->models) {
    auto m = load_model(directory / (std::string{name} + ".yaml"));
    if (!m) return refuse(m.error());
    const double parameters = parameters_of(*m);
    ladder.push_back({std::move(*m), parameters});
  }
  std::ranges::stable_sort(ladder, {}, &ladder_model::parameters);
  assigner a{*r, seed, c, seconds, regardless, std::move(ladder)};
  std::vector<arrival> jobs;
  jobs.reserve(rows.size());  // a list that grows copies all jobs several times
  for (const auto& row : rows) {
    auto job = a.assign(row);
    if (!job) return refuse(job.error());
    jobs.push_back(std::move(*job));
  }
  return jobs;
}

}  // namespace troupe::formats
