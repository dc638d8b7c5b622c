#include "cli/verbs/files/check_examples.hpp"

#include <fmt/ranges.h>

#include "cli/output/human.hpp"
#include "formats/load/example_settings.hpp"
#include "gpu/examples/example_file.hpp"
#include "gpu/examples/row_file.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::cli {

namespace {

/// Who ends an answer: the template, the reader with the tokenizer's token, or nobody.
std::string ends_of(const gpu::example_set& s) {
  if (s.added_ends == 0) return "template";
  return s.has_end ? "added" : "none";
}

json figures_of(const gpu::example_set& s, const gpu::tokenizer& words) {
  const auto first = gpu::shown_example_of(words, s.examples.front());
  auto trained = json::array();
  for (const auto& [from, to] : first.trained) trained.push_back({from, to});
  return {{"examples", s.examples.size()},
          {"rows", s.rows.size()},
          {"sequence", s.sequence},
          {"tokens", s.tokens},
          {"trained_tokens", s.trained_tokens},
          {"longest", s.longest},
          {"too_long", s.too_long},
          {"dropped", s.dropped},
          {"fill", s.fill()},
          {"bos_per_example", s.begins},
          {"format", s.form},
          {"ends", ends_of(s)},
          {"split_answers", s.split_answers},
          {"boundary_cuts", s.boundary_cuts},
          {"unused_keys", s.more_keys},
          {"first", {{"text", first.text}, {"trained", std::move(trained)}}}};
}

std::vector<std::string> warnings_of(const gpu::example_set& s) {
  std::vector<std::string> all;
  if (s.begins > 1)
    all.push_back(fmt::format(
        "an example starts with {} BOS tokens, expected one: the tokenizer adds it, and "
        "the template or the text has it, too",
        s.begins));
  if (s.added_ends > 0 && !s.has_end)
    all.emplace_back(
        "answers have no end token: neither the template nor the tokenizer defines one, so a "
        "trained model will not stop");
  if (!s.more_keys.empty())
    all.push_back(fmt::format("keys that nothing reads: {}", fmt::join(s.more_keys, ", ")));
  return all;
}

}  // namespace

expected<checked_examples> check_examples(const std::string& file, const example_files& with) {
  if (with.model.empty())
    return refuse(reason::kind::invalid,
                  "{}: examples become tokens by a model's tokenizer and template: give --model, "
                  "its folder",
                  file);
  example_settings how;
  if (!with.job.empty()) {
    const auto read = formats::load_example_settings(with.job);
    if (!read) return refuse(read.error());
    how = *read;
  }
  const auto model = gpu::open_example_model(with.model);
  if (!model) return refuse(model.error());
  const auto set = gpu::read_examples(file, *model, how);
  if (!set) return refuse(set.error());
  if (!with.rows.empty())
    if (auto ok = gpu::write_rows(with.rows, *set, *model); !ok) return refuse(ok.error());
  return checked_examples{
      fmt::format("{} in {}, {}, {} of them targets, {:.0f} % full",
                  counted(set->examples.size(), "example"), counted(set->rows.size(), "row"),
                  counted(set->tokens, "token"), grouped(set->trained_tokens), 100 * set->fill()),
      warnings_of(*set), figures_of(*set, *model->words)};
}

}  // namespace troupe::cli
