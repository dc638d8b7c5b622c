#include "actors/training/trainer/curve_file.hpp"

#include <algorithm>
#include <charconv>
#include <deque>
#include <filesystem>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "actors/training/trainer/worker_reports.hpp"
#include "gpu/model/checkpoint_fence.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/whole_file.hpp"

namespace troupe::actors {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view first_columns = "iteration,end_unix_s,seconds,loss,gradient_norm,busy_s";
// A header with 256 names of values.
constexpr std::size_t max_line_bytes = std::size_t{1} << 16;
constexpr std::size_t max_columns = 256;  // of values
constexpr std::size_t max_given = 1000;   // as many as the controller keeps

fs::path curve_in(const std::string& directory) {
  return fs::path{directory} / "curve.csv";
}

/// A name of the first columns, or no name at all.
bool is_own_column(std::string_view name) {
  std::string_view rest = first_columns;
  while (!rest.empty()) {
    const auto end = std::min(rest.find(','), rest.size());
    if (rest.substr(0, end) == name) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return name.empty();
}

/// A name that is one column's, and none of the curve's own: the worker that has sent it may have
/// sent anything. `loss` becomes `value_loss`.
std::string column_of(std::string name) {
  const auto is_other = [](char c) {
    return c == ',' || c == '"' || static_cast<unsigned char>(c) < ' ';
  };
  std::ranges::replace_if(name, is_other, '_');
  return is_own_column(name) ? "value_" + name : name;
}

/// `columns`: of values.
std::string header_of(const std::vector<std::string>& columns) {
  std::string line{first_columns};
  for (const auto& name : columns) line += ',' + name;
  return line + '\n';
}

std::vector<std::string> columns_in(std::string_view header) {
  std::vector<std::string> columns;
  if (!header.starts_with(first_columns)) return columns;
  header.remove_prefix(first_columns.size());
  while (header.starts_with(',')) {
    header.remove_prefix(1);
    const auto end = std::min(header.find(','), header.size());
    auto name = column_of(std::string{header.substr(0, end)});
    // A curve of an earlier release may have one twice.
    while (std::ranges::find(columns, name) != columns.end()) name += '_';
    columns.push_back(std::move(name));
    header.remove_prefix(end);
  }
  return columns;
}

/// Loss and norm as they were, bit for bit. A curve of an earlier release has no busy_s. An
/// iteration without a value leaves its column empty.
std::string line_of(const iteration_record& i, const std::vector<std::string>& columns) {
  auto line = fmt::format("{},{:.6f},{:.9g},{},{},{:.9g}", i.iteration, i.end_s,
                          i.end_s - i.begin_s, i.loss, i.gradient_norm, i.busy_s);
  for (const auto& name : columns) {
    line += ',';
    if (!i.program) continue;
    const auto v = std::ranges::find(i.program->values, name,
                                     [](const auto& value) { return column_of(value.name); });
    if (v != i.program->values.end()) line += fmt::format("{}", v->sum / v->weight);
  }
  return line + '\n';
}

/// Numbers are read as far as they are valid, so that a damaged line costs one iteration of the
/// curve and not the training. Missing columns are 0. Iteration 0: the line is not an iteration's.
iteration_record record_of(const std::string& line, const std::vector<std::string>& columns) {
  iteration_record i;
  const auto* at = line.data();
  const auto* const end = at + line.size();
  const auto read = [&](auto& value) {
    const auto [after, error] = std::from_chars(at, end, value);
    at = after;
    if (at != end && *at == ',') ++at;
    return error == std::errc{};
  };
  double seconds = 0;
  read(i.iteration);
  for (auto* value : {&i.end_s, &seconds, &i.loss, &i.gradient_norm, &i.busy_s}) read(*value);
  i.begin_s = i.end_s - seconds;
  for (const auto& name : columns) {
    named_value v{name, 0, 1};
    if (!read(v.sum)) continue;
    if (!i.program) i.program.emplace();
    i.program->values.push_back(std::move(v));
  }
  return i;
}

/// Writes a header, and the lines for which `keep` is true, in blocks: a long curve takes no
/// memory. A trainer that was killed while writing leaves an incomplete last line, which is
/// dropped.
bool copy_lines(line_reader& from, const std::string& header, const byte_sink& to,
                const std::function<bool(const std::string&)>& keep, expected<void>& read) {
  constexpr std::size_t block_bytes = 1 << 16;
  std::string block = header;
  const auto write = [&] { return to(std::as_bytes(std::span{block})); };
  for (;;) {
    const auto line = from.next();
    if (!line) read = refuse(line.error());
    if (!line) return false;
    if (!*line) return write();
    if (!keep(**line)) continue;
    block += **line + '\n';
    if (block.size() < block_bytes) continue;
    if (!write()) return false;
    block.clear();
  }
}

}  // namespace

// The file is rewritten as a whole under the checkpoint's fence: a trainer that was killed leaves
// the old curve or the new one, and one whose lease has been replaced cannot write into its
// successor's. A directory without a curve gets an empty one.
expected<std::vector<iteration_record>> curve_file::resume(
    std::uint64_t iterations, std::uint64_t known,
    const std::function<void(const iteration_record&)>& each) {
  if (directory_.empty()) return std::vector<iteration_record>{};
  std::deque<iteration_record> newest;
  const auto keep = [&](const std::string& line) {
    const auto i = record_of(line, columns_);
    if (i.iteration == 0 || i.iteration > iterations) return false;
    if (each) each(i);
    if (i.iteration > known) newest.push_back(with_few_values(i));
    if (newest.size() > max_given) newest.pop_front();
    return true;
  };
  const auto ok = gpu::write_fenced(directory_, lease_, [&]() -> expected<void> {
    auto from = open();
    if (!from && from.error().code == reason::kind::unknown)
      return write_whole_file(curve_in(directory_).string(), header_of({}));
    if (!from) return refuse(from.error());
    const auto header = from->next();
    if (!header) return refuse(header.error());
    columns_ = columns_in(header->value_or(""));
    return rewrite(*from, keep);
  });
  if (!ok) return refuse(ok.error());
  return std::vector<iteration_record>{newest.begin(), newest.end()};
}

expected<line_reader> curve_file::open() const {
  auto opened = untrusted_file::open(curve_in(directory_).string(), links::refused);
  if (!opened) return refuse(opened.error());
  return line_reader{std::move(*opened), max_line_bytes};
}

expected<void> curve_file::rewrite(line_reader& from,
                                   const std::function<bool(const std::string&)>& keep) const {
  expected<void> read;
  auto written = write_whole_file(curve_in(directory_).string(), [&](const byte_sink& to) {
    return copy_lines(from, header_of(columns_), to, keep, read);
  });
  return read ? written : read;
}

/// True: some of the unwritten iterations have values without a column, which get one.
bool curve_file::add_columns() {
  const auto before = columns_.size();
  for (const auto& i : unwritten_) {
    if (!i.program) continue;
    for (const auto& v : i.program->values)
      if (auto name = column_of(v.name);
          columns_.size() < max_columns && std::ranges::find(columns_, name) == columns_.end())
        columns_.push_back(std::move(name));
  }
  return columns_.size() > before;
}

// Failing to write a curve does not fail a training, so that after one error the file is given up.
// Lines of before a column was added lack it.
expected<void> curve_file::write() {
  if (unwritten_.empty()) return {};
  auto ok = gpu::write_fenced(directory_, lease_, [&]() -> expected<void> {
    if (add_columns()) {
      auto from = open();
      if (!from) return refuse(from.error());
      if (auto old = from->next(); !old) return refuse(old.error());
      if (auto done = rewrite(*from, [](const auto&) { return true; }); !done) return done;
    }
    std::string lines;
    for (const auto& i : unwritten_) lines += line_of(i, columns_);
    return append_to(curve_in(directory_).string(), lines);
  });
  unwritten_.clear();
  if (!ok) directory_.clear();
  return ok;
}

}  // namespace troupe::actors
