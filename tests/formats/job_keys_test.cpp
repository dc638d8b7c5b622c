#include <catch2/catch.hpp>

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "formats/load/foreign_keys.hpp"
#include "formats/load/load.hpp"
#include "harness/source_dir.hpp"
#include "messages/admission/admission.hpp"
#include "messages/admission/job_keys.hpp"

using namespace troupe;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

/// Keys and their values as JSON.
using json_keys = std::map<std::string, std::string>;

std::string text_of(const json_keys& keys) {
  std::string text;
  for (const auto& [key, value] : keys)
    text += fmt::format("{}\"{}\": {}", text.empty() ? "" : ", ", key, value);
  return "{" + text + "}";
}

/// A map of a valid job file, and the struct into which it is read.
template <class T>
struct place {
  std::string map;  // its key in the job file, "pipeline.bubbles"; empty: the job itself
  json_keys file;   // the job's other keys
  json_keys keys;   // of the map
  job_spec job;     // the same job
  std::function<T&(job_spec&)> in;

  /// The job file with another value of one of the map's keys.
  std::string with(std::string_view key, const std::string& value) const {
    auto inner = keys;
    inner[std::string{key}] = value;
    if (map.empty()) return text_of(inner);
    auto whole = file;
    const auto dot = map.find('.');
    whole[map.substr(0, dot)] = dot == std::string::npos
                                    ? text_of(inner)
                                    : text_of({{map.substr(dot + 1), text_of(inner)}});
    return text_of(whole);
  }
};

job_spec program() {
  job_spec job;
  job.name = "j";
  job.model = {"m", "gpt", 64, 2, 4, 0, 0, 32, 100, true, {}};
  job.global_batch = 8;
  job.program.command = {"true"};
  return job;
}

json_keys model_file() {
  return {{"name", R"("m")"}, {"family", R"("gpt")"}, {"hidden", "64"},     {"layers", "2"},
          {"heads", "4"},     {"sequence", "32"},     {"vocabulary", "100"}};
}

json_keys program_file() {
  return {{"name", R"("j")"},
          {"model", text_of(model_file())},
          {"global_batch", "8"},
          {"command", R"(["true"])"}};
}

json_keys training_file() {
  auto file = program_file();
  file.erase("command");
  file["iterations"] = "1";
  file["train"] = R"({"device": "sim"})";
  return file;
}

job_spec training_job() {
  auto job = program();
  job.program.command.clear();
  job.train.emplace();
  job.train->device = "sim";
  return job;
}

std::string read(const std::string& text) {
  const auto job = formats::parse_job("job", text);
  return job ? "" : job.error().text;
}

std::string admitted(const job_spec& job) {
  const auto ok = admission::admit(job);
  return ok ? "" : ok.error().text;
}

/// Numbers beyond both ends of a range.
std::vector<double> outside(admission::range r) {
  return {r.above_low ? r.low : r.low - 1, r.high + std::max(1.0, r.high / 2)};
}

template <class T, class Field>
void refuse_number(const admission::key<T>& k, const place<T>& p,
                   const std::function<Field&(T&)>& field) {
  for (const auto x : outside(k.valid)) {
    const auto of = p.map.empty() ? std::string{k.name} : fmt::format("{}.{}", p.map, k.name);
    INFO(of << ": " << x);
    const auto text = p.with(k.name, fmt::format("{:.17g}", x));
    const bool whole =
        !std::is_same_v<Field, double> && !std::is_same_v<Field, std::optional<double>>;
    const auto expected =
        "expected " + admission::expected_number(k.valid, whole ? "a whole number" : "a number");
    CHECK_THAT(read(text), Contains(of + ": found ") && Contains(expected));
    if (whole && x < 0 && std::is_unsigned_v<Field>) continue;
    auto job = p.job;
    auto& found = field(p.in(job));
    T fresh{};
    const auto initial = field(fresh);
    if constexpr (requires { found.value(); })
      found = static_cast<typename Field::value_type>(x);
    else
      found = static_cast<Field>(x);
    if (found == initial) continue;  // as if the key were missing
    CHECK_THAT(admitted(job), Contains(std::string{k.name} + ": found ") && Contains(expected));
  }
}

template <class T, class Field>
void refuse_word(const admission::key<T>& k, const place<T>& p,
                 const std::function<Field&(T&)>& field) {
  if (k.words.empty()) return;
  INFO(k.name);
  const auto text = p.with(k.name, R"("no such")");
  CHECK_THAT(read(text), Contains("found 'no such', expected one of " + k.words.front()));
  auto job = p.job;
  field(p.in(job)) = "no such";
  CHECK_THAT(admitted(job), Contains("found 'no such', expected one of " + k.words.front()));
}

/// Is F the field of one of these types in a T?
template <class F, class T, class... Field>
constexpr bool is_of = (std::is_same_v<F, std::function<Field&(T&)>> || ...);

/// Reader and admission refuse the same values of every key of a table, with the same words.
/// Returns how many keys have any that are refused.
template <class T>
std::size_t check_table(const admission::key_table<T>& keys, const place<T>& p) {
  REQUIRE(admitted(p.job).empty());
  std::size_t checked = 0;
  for (const auto& k : keys)
    std::visit(
        [&]<class F>(const F& field) {
          if constexpr (is_of<F, T, std::string, std::optional<std::string>>) {
            refuse_word(k, p, field);
            checked += !k.words.empty();
          } else if constexpr (!std::is_same_v<F, std::monostate> &&
                               !is_of<F, T, bool, std::optional<bool>, std::optional<merge_kind>,
                                      std::vector<std::string>>) {
            refuse_number(k, p, field);
            ++checked;
          }
        },
        k.field);
  return checked;
}

}  // namespace

TEST_CASE(
    "what the reader of job files refuses of a key, the controller refuses in the same words") {
  using namespace admission;
  const auto program_job = program(), training = training_job();
  CHECK(check_table<job_spec>(job_keys(),
                              {"", {}, program_file(), program_job, [](job_spec& j) -> job_spec& {
                                 return j;
                               }}) >= 11);
  CHECK(check_table<model>(model_keys(), {"model", program_file(), model_file(), program_job,
                                          [](job_spec& j) -> model& { return j.model; }}) >= 8);
  const auto declared = [](job_spec& j) -> memory_options& {
    if (!j.memory) j.memory.emplace();
    return *j.memory;
  };
  CHECK(check_table<memory_options>(memory_keys(),
                                    {"", {}, program_file(), program_job, declared}) >= 6);
  CHECK(check_table<memory_options>(lora_keys(), {"lora",
                                                  program_file(),
                                                  {{"rank", "4"}},
                                                  program_job,
                                                  [&](job_spec& j) -> memory_options& {
                                                    declared(j).lora_rank = 4;
                                                    return *j.memory;
                                                  }}) == 2);
  CHECK(check_table<troupe::training>(
            train_keys(), {"train",
                           training_file(),
                           {{"device", R"("sim")"}},
                           training,
                           [](job_spec& j) -> troupe::training& { return *j.train; }}) >= 8);
  CHECK(check_table<pipeline_wish>(
            pipeline_keys(),
            {"pipeline", training_file(), {}, training, [](job_spec& j) -> pipeline_wish& {
               return j.pipeline;
             }}) >= 9);
}

TEST_CASE("the keys of elastic programs are refused in the same words, too") {
  using namespace admission;
  const auto part = [](job_spec& j) -> elastic& {
    if (!j.program.elastic) j.program.elastic.emplace();
    return *j.program.elastic;
  };
  CHECK(check_table<elastic>(elastic_keys(), {"elastic", program_file(), {}, program(), part}) ==
        4);
}

TEST_CASE("the keys of studies and of served models are refused in the same words, too") {
  using namespace admission;
  job_spec study;
  study.name = "s";
  study.slots.emplace();
  study.pipeline.stages = study.pipeline.microbatches = 2;
  const json_keys sizes{{"stages", "2"}, {"microbatches", "2"}};
  CHECK(check_table<slot_costs>(slot_keys(),
                                {"slots",
                                 {{"name", R"("s")"}, {"pipeline", text_of(sizes)}},
                                 {},
                                 study,
                                 [](job_spec& j) -> slot_costs& { return *j.slots; }}) == 6);
  CHECK(check_table<pipeline_wish>(
            pipeline_keys(true), {"pipeline",
                                  {{"name", R"("s")"}, {"slots", "{}"}},
                                  sizes,
                                  study,
                                  [](job_spec& j) -> pipeline_wish& { return j.pipeline; }}) >= 9);
  const json_keys scribe{{"model", R"("scribe")"}};
  const json_keys decoder{{"name", R"("d")"}, {"serve", text_of(scribe)}};
  const auto served = formats::parse_job("job", text_of(decoder));
  REQUIRE(served);
  CHECK(check_table<serving>(
            serve_keys(),
            {"serve", {{"name", R"("d")"}}, scribe, *served, [](job_spec& j) -> serving& {
               return *j.serve;
             }}) == 6);
  auto lender = training_job();
  lender.pipeline.bubbles.emplace();
  lender.pipeline.bubbles->model = served->serve->model;
  CHECK(check_table<bubble_lending>(bubble_keys(), {"pipeline.bubbles", training_file(), scribe,
                                                    lender, [](job_spec& j) -> bubble_lending& {
                                                      return *j.pipeline.bubbles;
                                                    }}) == 8);
}

TEST_CASE("docs/files.md lists every key of a job and of its maps") {
  std::ifstream file{fs::path{test::source_dir()} / "docs/files.md"};
  const std::string page{std::istreambuf_iterator<char>{file}, {}};
  const auto described = [&](const auto& keys) {
    for (const auto& k : keys) {
      INFO(k.name);
      const bool found = page.find(fmt::format("`{}`", k.name)) != std::string::npos ||
                         page.find(fmt::format("{}: ", k.name)) != std::string::npos;
      CHECK(found);
    }
  };
  using namespace admission;
  described(job_keys());
  described(memory_keys());
  described(lora_keys());
  described(elastic_keys());
  described(rate_keys());
  described(train_keys());
  described(slot_keys());
  described(pipeline_keys());
  described(serve_keys());
  described(bubble_keys());
  described(model_keys());
}

TEST_CASE("a key that only jobs of another kind have is refused in a decoder's file") {
  for (const auto& k : admission::job_keys()) {
    if (k.use.served || k.name == "model") continue;
    INFO(k.name);
    CHECK_THAT(
        read(text_of(
            {{"name", R"("d")"}, {"serve", R"({"model": "scribe"})"}, {std::string{k.name}, "1"}})),
        Contains(std::string{k.name} + ": not for a job that serves a model"));
  }
}

TEST_CASE("keys of other schedulers' job files are refused with what to use instead") {
  const std::pair<const char*, const char*> keys[] = {{"time", "time_limit_s"},
                                                      {"depends_on", "troupe wait"},
                                                      {"array", "submit one job for each"},
                                                      {"cpus", "only GPUs"},
                                                      {"image", "runtime"},
                                                      {"nodes", "gpus is the total"},
                                                      {"env", "environment"},
                                                      {"num_gpus", "gpu_type"},
                                                      {"requeue", "max_restarts"},
                                                      {"backoffLimit", "use retries"}};
  for (const auto& [key, advice] : keys) {
    INFO(key);
    auto file = program_file();
    file[key] = "1";
    CHECK_THAT(read(text_of(file)),
               Contains(fmt::format("unknown key '{}'; ", key)) && Contains(advice));
  }
  for (const auto& name : admission::job_key_names()) CHECK(formats::advice_on_key(name).empty());
}
