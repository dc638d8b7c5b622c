#include <algorithm>
#include <filesystem>
#include <string>

#include <fmt/format.h>

#include "cli/output/output_file.hpp"
#include "cli/output/table.hpp"
#include "cli/programs/described_program.hpp"
#include "cli/verbs/verb.hpp"
#include "formats/load/load.hpp"
#include "formats/traces/trace.hpp"
#include "messages/base/absolute_path.hpp"

namespace troupe::cli {

namespace {

std::string table_of(const json& found) {
  table t{{"layer", "class", "parameters", "MFLOPs", "kept KB", "output KB", ""}};
  std::size_t i = 0;
  for (const auto& layer : found.at("layers"))
    t.row({fmt::format("{}", i++), layer.at("name").get<std::string>(),
           fmt::format("{}", layer.at("parameters").get<std::uint64_t>()),
           fmt::format("{:.3f}", layer.at("forward_flops").get<double>() / 1e6),
           fmt::format("{:.1f}", layer.at("kept_bytes").get<double>() / 1e3),
           fmt::format("{:.1f}", layer.at("output_bytes").get<double>() / 1e3),
           layer.at("in_place").get<bool>() ? "in place" : ""});
  return t.text(terminal_columns());
}

/// The layers of a program, of one sample each, as plans count with them.
class describe_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("PROGRAM", program_.file, "Python file with model(), loss(), dataset() ...")
        ->required();
    app.add_option("--arguments", program_.arguments,
                   "Arguments of the program's functions: NAME=VALUE,.. or a JSON object");
    app.add_option("--python", program_.python,
                   "Interpreter (default: $TROUPE_PYTHON, or python3)");
    app.add_option("--out", out_, "Write a model file, for `model:` of a job file");
  }

  int run(output& out) override {
    std::error_code error;
    if (!std::filesystem::exists(program_.file, error))
      return out.bad(fmt::format("{}: no such file", program_.file));
    auto whole = absolute_path(program_.file);
    if (!whole) return out.bad(whole.error());
    program_.file = std::move(*whole);
    if (!out_.empty())
      if (auto ok = can_write(out_); !ok) return out.bad(ok.error());
    const auto found = describe_program(program_);
    if (!found) return out.bad(found.error());
    if (!out_.empty())
      if (auto ok = formats::save_text(out_, formats::model_text(found->model)); !ok)
        return out.failure(ok.error());
    out.document(found->document);
    show(found->document, out);
    return exit_done;
  }

 private:
  void show(const json& found, output& out) const {
    out.text(table_of(found));
    if (!found.at("tied").is_null())
      out.line("tied: {} and {}", found.at("tied")[0].get<std::string>(),
               found.at("tied")[1].get<std::string>());
    for (const auto& range : found.at("glued"))
      out.line("layers {} to {} share '{}' and are not cut apart",
               range.at("first").get<std::uint64_t>(), range.at("last").get<std::uint64_t>(),
               range.at("name").get<std::string>());
    for (const auto& warning : found.at("warnings"))
      out.note("warning: {}", warning.get<std::string>());
    if (!out_.empty()) out.line("{}: for `model:` of a job file", out_);
  }

  layer_file program_;
  std::string out_;
};

}  // namespace

std::unique_ptr<verb> make_describe() {
  return std::make_unique<describe_verb>();
}

}  // namespace troupe::cli
