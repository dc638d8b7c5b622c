#include "actors/training/curve_file.hpp"

#include <charconv>
#include <deque>
#include <filesystem>
#include <functional>
#include <span>

#include <fmt/format.h>

#include "gpu/model/checkpoint_fence.hpp"
#include "messages/base/untrusted_file.hpp"
#include "messages/base/whole_file.hpp"

namespace troupe::actors {

namespace {

namespace fs = std::filesystem;

constexpr const char* header = "iteration,end_unix_s,seconds,loss,gradient_norm,busy_s\n";
constexpr std::size_t max_line_bytes = 4096;
constexpr std::size_t max_given = 1000;  // as many as the controller keeps

fs::path curve_in(const std::string& directory) {
  return fs::path{directory} / "curve.csv";
}

/// Loss and norm as they were, bit for bit. A curve of an earlier release has no busy_s.
std::string line_of(const iteration_record& i) {
  return fmt::format("{},{:.6f},{:.9g},{},{},{:.9g}\n", i.iteration, i.end_s, i.end_s - i.begin_s,
                     i.loss, i.gradient_norm, i.busy_s);
}

/// Numbers are read as far as they are valid, so that a damaged line costs one iteration of the
/// curve and not the training. Missing columns are 0. Iteration 0: the line is not an iteration's.
iteration_record record_of(const std::string& line) {
  iteration_record i;
  const auto* at = line.data();
  const auto* const end = at + line.size();
  const auto read = [&](auto& value) {
    at = std::from_chars(at, end, value).ptr;
    if (at != end && *at == ',') ++at;
  };
  double seconds = 0;
  read(i.iteration);
  for (auto* value : {&i.end_s, &seconds, &i.loss, &i.gradient_norm, &i.busy_s}) read(*value);
  i.begin_s = i.end_s - seconds;
  return i;
}

/// Copies the lines up to an iteration, in blocks: a long curve takes no memory. A trainer that was
/// killed while writing leaves an incomplete last line, which is dropped.
bool copy_lines(line_reader& from, std::uint64_t iterations, const byte_sink& to,
                const std::function<void(const iteration_record&)>& on_copied,
                expected<void>& read) {
  constexpr std::size_t block_bytes = 1 << 16;
  std::string block = header;
  const auto write = [&] { return to(std::as_bytes(std::span{block})); };
  for (;;) {
    const auto line = from.next();
    if (!line) read = refuse(line.error());
    if (!line) return false;
    if (!*line) return write();
    const auto i = record_of(**line);
    if (i.iteration == 0 || i.iteration > iterations) continue;
    on_copied(i);
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
expected<std::vector<iteration_record>> curve_file::resume(std::uint64_t iterations,
                                                           std::uint64_t known) {
  if (directory_.empty()) return std::vector<iteration_record>{};
  std::deque<iteration_record> newest;
  const auto keep_newest = [&](const iteration_record& i) {
    if (i.iteration > known) newest.push_back(i);
    if (newest.size() > max_given) newest.pop_front();
  };
  const auto ok = gpu::write_fenced(directory_, lease_, [&]() -> expected<void> {
    const auto file = curve_in(directory_);
    auto opened = untrusted_file::open(file.string(), links::refused);
    if (!opened && opened.error().code == reason::kind::unknown)
      return write_whole_file(file.string(), header);
    if (!opened) return refuse(opened.error());
    line_reader from{std::move(*opened), max_line_bytes};
    expected<void> read;
    auto written = write_whole_file(file.string(), [&](const byte_sink& to) {
      return copy_lines(from, iterations, to, keep_newest, read);
    });
    return read ? written : read;
  });
  if (!ok) return refuse(ok.error());
  return std::vector<iteration_record>{newest.begin(), newest.end()};
}

// Failing to write a curve does not fail a training, so that after one error the file is given up.
expected<void> curve_file::write() {
  if (unwritten_.empty()) return {};
  auto ok = gpu::write_fenced(directory_, lease_, [&]() -> expected<void> {
    std::string lines;
    for (const auto& i : unwritten_) lines += line_of(i);
    return append_to(curve_in(directory_).string(), lines);
  });
  unwritten_.clear();
  if (!ok) directory_.clear();
  return ok;
}

}  // namespace troupe::actors
