#include "formats/traces/throughputs.hpp"

#include <algorithm>
#include <optional>
#include <string_view>

#include "formats/parse/csv.hpp"
#include "messages/base/whole_number.hpp"

namespace troupe::formats {

namespace fs = std::filesystem;

namespace {

constexpr range gpus_of_run{1, 1e6};
constexpr range rate{0, 1e12};

// Measured speeds, in a table of the house or in Gavel's JSON. A rate is of one type of job on a
// number of GPUs of one type; other numbers are not interpolated, as their scaling is what such
// measurements are for.
std::string lower(std::string_view text) {
  std::string out{text};
  std::ranges::transform(out, out.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return out;
}

// A second rate for the same place would make the result depend on the order of rows.
bool is_given(const throughputs& t, const std::string& model, std::uint32_t gpus,
              const std::string& type) {
  const auto at = t.rates.find({model, gpus});
  return at != t.rates.end() &&
         std::ranges::find(at->second, type, &measured_rate::gpu_type) != at->second.end();
}

expected<throughputs> load_csv(const fs::path& file) {
  const auto text = read_text(file);
  if (!text) return refuse(text.error());
  findings found{file.string()};
  csv_reader csv{found, *text};
  csv.expect({"model", "gpu_type", "gpus", "samples_per_s"}, {"iterations"});
  throughputs t{file.string(), false, {}, {}};
  while (csv.next()) {
    const std::string model{csv.field("model")}, type{csv.field("gpu_type")};
    for (const auto* column : {"model", "gpu_type"})
      if (csv.field(column).empty()) csv.fail(column, "found nothing, expected a name");
    const auto gpus = static_cast<std::uint32_t>(csv.whole("gpus", gpus_of_run));
    if (is_given(t, model, gpus, type))
      csv.fail("gpu_type", "{} on {} {} occurs twice", shown(model), gpus, shown(type));
    t.rates[{model, gpus}].push_back({type, csv.number("samples_per_s", rate)});
    if (csv.field("iterations").empty()) continue;
    const auto iterations = static_cast<std::uint64_t>(csv.whole("iterations", {1, 1e12}));
    const auto [at, first] = t.iterations.emplace(model, iterations);
    if (!first && at->second != iterations)
      csv.fail("iterations", "found {}, but {} has {} above", iterations, shown(model), at->second);
  }
  if (found.good() && t.rates.empty()) found.add(csv.line(), "", "no rows below the header");
  return found.result(std::move(t));
}

/// "('model', 2)"; in older files "model (scale factor 2)", or the model's name for one GPU.
std::optional<std::pair<std::string, std::uint32_t>> job_type(std::string_view key) {
  const auto parts = [&](std::string_view before, std::string_view between,
                         std::string_view after) -> decltype(job_type(key)) {
    const auto at = key.rfind(between);
    if (!key.starts_with(before) || !key.ends_with(after) || at == key.npos) return {};
    const auto first = at + between.size();
    if (at <= before.size() || first + after.size() >= key.size()) return {};
    const auto gpus =
        whole_number<std::uint32_t>(key.substr(first, key.size() - after.size() - first));
    if (gpus.value_or(0) == 0) return {};
    return std::pair{std::string{key.substr(before.size(), at - before.size())}, *gpus};
  };
  if (key.starts_with("('")) return parts("('", "', ", ")");
  if (key.empty() || key.starts_with("(")) return {};
  if (auto scaled = parts("", " (scale factor ", ")")) return scaled;
  return std::pair{std::string{key}, 1u};
}

// Gavel also has rates of two jobs that share a GPU, by the other's name; "null" is the rate alone.
void read_type(findings& found, const std::string& type, const value& jobs, throughputs& out) {
  if (jobs.what != value::kind::map)
    return found.add(jobs.line, type, "found {}, expected a map", describe(jobs));
  for (std::size_t i = 0; i < jobs.keys.size() && found.good(); ++i) {
    const auto place = inside(type, jobs.keys[i]);
    const auto& rates = jobs.items[i];
    auto job = job_type(jobs.keys[i]);
    if (!job)
      return found.add(jobs.key_lines[i], place,
                       "expected a job type and its GPUs, such as \"('ResNet-18', 2)\"");
    if (rates.what != value::kind::map)
      return found.add(rates.line, place, "found {}, expected a map", describe(rates));
    if (!rates.has("null")) continue;  // measured beside others only
    double per_s = 0;
    const auto& alone = rates.items[rates.index_of("null")];
    read_number(found, alone, inside(place, "null"), per_s, rate);
    out.rates[std::move(*job)].push_back({type, per_s});
  }
}

throughputs read_gavel(findings& found, const value& root) {
  throughputs t{found.file(), true, {}, {}};
  if (root.what != value::kind::map)
    found.add(root.line, "", "found {}, expected a map of GPU types", describe(root));
  for (std::size_t i = 0; i < root.keys.size() && found.good(); ++i)
    read_type(found, root.keys[i], root.items[i], t);
  if (found.good() && t.rates.empty())
    found.add(0, "", "no job type has a throughput alone (null)");
  return t;
}

}  // namespace

expected<throughputs> load_throughputs(const fs::path& file) {
  return file.extension() == ".json" ? read_file(file, read_gavel) : load_csv(file);
}

// Gavel's "v100" stands for every V100 of the catalogue, whatever its memory.
bool means_gpu(const std::string& named, const gpu_type& gpu) {
  const auto a = lower(named), b = lower(gpu.name);
  return a == b || b.starts_with(a + "-");
}

}  // namespace troupe::formats
