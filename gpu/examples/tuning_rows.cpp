#include "gpu/examples/tuning_rows.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <set>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "gpu/examples/row_file.hpp"
#include "messages/base/random.hpp"
#include "messages/base/refuse.hpp"
#include "text/json/json_file.hpp"

namespace troupe::gpu {

namespace {

example_settings settings_of(const tuning& u) {
  using targets = example_settings::targets;
  using excess = example_settings::excess;
  example_settings s;
  s.sequence = u.sequence;
  s.packing = u.packing;
  s.train_on = u.train_on == "all"       ? targets::all
               : u.train_on == "answers" ? targets::answers
                                         : targets::usual;
  s.too_long = u.too_long == "drop"  ? excess::dropped
               : u.too_long == "cut" ? excess::cut
                                     : excess::refused;
  s.date = u.date;
  return s;
}

/// `count` of the lines, the same for the same seed.
std::set<std::uint64_t> chosen(std::vector<std::uint64_t> lines, std::size_t count,
                               std::uint64_t seed) {
  random_source random{seed};
  for (std::size_t i = 0; i < count; ++i)
    std::swap(lines[i], lines[i + random.below(lines.size() - i)]);
  return {lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(count)};
}

/// Moves a share of the lines into a set of its own.
expected<example_set> held_out_of(example_set& all, const tuning& u, std::uint64_t seed) {
  auto lines = all.line_of;
  lines.erase(std::unique(lines.begin(), lines.end()), lines.end());
  if (lines.size() < 2)
    return refuse(reason::kind::invalid,
                  "{}: found one example, expected at least two to split off held_out ({})", u.data,
                  u.held_out);
  const auto share = std::lround(u.held_out * static_cast<double>(lines.size()));
  const auto count = std::clamp<std::size_t>(static_cast<std::size_t>(share), 1, lines.size() - 1);
  const auto is_held = chosen(std::move(lines), count, seed);
  example_set held, kept;
  held.sequence = all.sequence;
  for (std::size_t i = 0; i < all.examples.size(); ++i) {
    auto& to = is_held.contains(all.line_of[i]) ? held : kept;
    to.examples.push_back(std::move(all.examples[i]));
    to.line_of.push_back(all.line_of[i]);
  }
  all.examples = std::move(kept.examples), all.line_of = std::move(kept.line_of);
  for (auto* s : {&all, &held}) make_rows(*s, u.packing);
  return held;
}

}  // namespace

expected<tuning_rows> read_tuning_rows(const tuning& u, std::uint64_t seed) {
  const auto how = settings_of(u);
  auto model = open_example_model(u.base);
  if (!model) return refuse(model.error());
  auto set = read_examples(u.data, *model, how);
  if (!set) return refuse(set.error());
  tuning_rows r{std::move(*model), std::move(*set), {}};
  if (!u.has_held_out()) return r;
  auto held = u.eval_data.empty() ? held_out_of(r.trained, u, seed)
                                  : read_examples(u.eval_data, r.model, how);
  if (!held) return refuse(held.error());
  r.held_out = std::move(*held);
  return r;
}

expected<row_files> write_tuning_rows(const std::string& folder, const tuning_rows& r) {
  row_files files{folder + "/rows.safetensors", {}};
  if (auto ok = write_rows(files.trained, r.trained, r.model); !ok) return refuse(ok.error());
  if (!r.held_out) return files;
  files.held_out = folder + "/held_out.safetensors";
  if (auto ok = write_rows(files.held_out, *r.held_out, r.model); !ok) return refuse(ok.error());
  return files;
}

expected<void> check_counts(const tuning_rows& r, const tuning& u) {
  const auto held = r.held_out ? r.held_out->rows.size() : 0;
  if (r.trained.rows.size() == u.rows && r.trained.trained_tokens == u.trained_tokens &&
      held == u.held_out_rows)
    return {};
  return refuse(
      reason::kind::invalid,
      "{}: found {} rows with {} targets and {} held-out rows, expected {}, {} and {} as "
      "when the job was read: the data, the tokenizer or the template is another one here",
      u.data, r.trained.rows.size(), r.trained.trained_tokens, held, u.rows, u.trained_tokens,
      u.held_out_rows);
}

std::string program_arguments(const tuning& u, const row_files& files, std::uint64_t updates) {
  nlohmann::json a{{"base", u.base},
                   {"base_hash", fmt::format("{:016x}", u.hash)},
                   {"rows", files.trained},
                   {"held_out_rows", files.held_out},
                   {"updates", updates},
                   {"learning_rate", u.learning_rate},
                   {"weight_decay", u.weight_decay},
                   {"warmup", u.warmup},
                   {"decay", u.decay},
                   {"final_rate", u.final_rate},
                   {"clip", u.clip},
                   {"beta_1", u.beta_1},
                   {"beta_2", u.beta_2},
                   {"format", u.precision},
                   {"initial", u.initial},
                   {"frozen_layers", u.frozen_layers}};
  if (u.adapter_rank > 0) {
    a["adapter_rank"] = u.adapter_rank;
    a["adapter_alpha"] = u.adapter_alpha;
    a["adapter_targets"] = u.adapter_targets;
    a["adapter_rslora"] = u.adapter_rslora;
  }
  return a.dump();
}

expected<std::optional<tuning>> tuning_of(const layer_file& p) {
  if (!p.file.empty()) return std::optional<tuning>{};
  const auto found = parse_json(p.arguments, "train");
  if (!found) return refuse(found.error());
  tuning u;
  try {
    const auto read = [&](const char* name, auto& out) {
      if (const auto it = found->find(name); it != found->end()) it->get_to(out);
    };
    for (const auto& [name, out] : {std::pair{"base", &u.base},
                                    {"initial", &u.initial},
                                    {"data", &u.data},
                                    {"train_on", &u.train_on},
                                    {"too_long", &u.too_long},
                                    {"date", &u.date},
                                    {"eval_data", &u.eval_data},
                                    {"decay", &u.decay},
                                    {"precision", &u.precision},
                                    {"adapter_targets", &u.adapter_targets}})
      read(name, *out);
    for (const auto& [name, out] : {std::pair{"hash", &u.hash},
                                    {"rows", &u.rows},
                                    {"trained_tokens", &u.trained_tokens},
                                    {"held_out_rows", &u.held_out_rows}})
      read(name, *out);
    for (const auto& [name, out] : {std::pair{"sequence", &u.sequence},
                                    {"evaluate_every", &u.evaluate_every},
                                    {"frozen_layers", &u.frozen_layers},
                                    {"adapter_rank", &u.adapter_rank}})
      read(name, *out);
    for (const auto& [name, out] : {std::pair{"held_out", &u.held_out},
                                    {"epochs", &u.epochs},
                                    {"learning_rate", &u.learning_rate},
                                    {"weight_decay", &u.weight_decay},
                                    {"warmup", &u.warmup},
                                    {"final_rate", &u.final_rate},
                                    {"clip", &u.clip},
                                    {"beta_1", &u.beta_1},
                                    {"beta_2", &u.beta_2},
                                    {"adapter_alpha", &u.adapter_alpha}})
      read(name, *out);
    read("packing", u.packing);
    read("adapter_rslora", u.adapter_rslora);
  } catch (const nlohmann::json::exception& e) {
    return refuse(reason::kind::malformed, "train: its keys are not those of a job file: {}",
                  e.what());
  }
  if (u.base.empty() || u.data.empty())
    return refuse(reason::kind::malformed, "train: found no program, expected base and data");
  return u;
}

void add_counts(layer_file& p, const tuning& u) {
  auto arguments = nlohmann::json::parse(p.arguments, nullptr, false);
  arguments["rows"] = u.rows;
  arguments["trained_tokens"] = u.trained_tokens;
  arguments["held_out_rows"] = u.held_out_rows;
  arguments["date"] = u.date;
  arguments["sequence"] = u.sequence;
  p.arguments = arguments.dump();
}

std::string today() {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm day{};
  ::localtime_r(&now, &day);
  char text[16];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d", &day)};
}

std::map<std::string, double> update_options(const std::string& arguments) {
  std::map<std::string, double> all;
  const auto found = nlohmann::json::parse(arguments, nullptr, false);
  if (!found.is_object()) return all;
  for (const auto* name :
       {"learning_rate", "weight_decay", "warmup", "final_rate", "clip", "beta_1", "beta_2"})
    if (const auto it = found.find(name); it != found.end() && it->is_number())
      all.emplace(name, it->get<double>());
  return all;
}

}  // namespace troupe::gpu
