#include "actors/training/curve_file.hpp"

#include <charconv>
#include <deque>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "gpu/model/checkpoint_fence.hpp"
#include "messages/whole_file.hpp"

namespace troupe::actors {

namespace {

namespace fs = std::filesystem;

constexpr const char* header = "iteration,end_unix_s,seconds,loss,gradient_norm,busy_s\n";
constexpr std::size_t max_given = 1000;  // as many as the controller keeps

fs::path curve_in(const std::string& directory) {
  return fs::path{directory} / "curve.csv";
}

/// Loss and norm as they were, bit for bit. A curve of an earlier release has no busy_s.
std::string line_of(const iteration_record& i) {
  return fmt::format("{},{:.6f},{:.9g},{},{},{:.9g}\n", i.iteration, i.end_s, i.end_s - i.begin_s,
                     i.loss, i.gradient_norm, i.busy_s);
}

/// Iteration 0: the line is not an iteration's.
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

/// A curve up to an iteration, and its records after another.
struct kept_curve {
  std::string text = header;
  std::deque<iteration_record> unknown;
};

/// A trainer that was killed while writing leaves an incomplete last line, which is dropped.
kept_curve keep_lines(std::istream& from, std::uint64_t iterations, std::uint64_t known) {
  kept_curve kept;
  std::string line;
  while (std::getline(from, line) && !from.eof()) {
    const auto i = record_of(line);
    if (i.iteration == 0 || i.iteration > iterations) continue;
    kept.text += line + '\n';
    if (i.iteration > known) kept.unknown.push_back(i);
    if (kept.unknown.size() > max_given) kept.unknown.pop_front();
  }
  return kept;
}

}  // namespace

expected<std::vector<iteration_record>> curve_file::resume(std::uint64_t iterations,
                                                           std::uint64_t known) {
  std::vector<iteration_record> unknown;
  if (directory_.empty()) return unknown;
  const auto ok = gpu::write_fenced(directory_, lease_, [&] {
    const auto file = curve_in(directory_);
    std::ifstream from{file, std::ios::binary};
    const auto kept = keep_lines(from, iterations, known);
    unknown.assign(kept.unknown.begin(), kept.unknown.end());
    return write_whole_file(file.string(), kept.text);
  });
  if (!ok) return refuse(ok.error());
  return unknown;
}

expected<void> curve_file::write() {
  if (unwritten_.empty()) return {};
  auto ok = gpu::write_fenced(directory_, lease_, [&]() -> expected<void> {
    const auto file = curve_in(directory_);
    std::ofstream to{file, std::ios::binary | std::ios::app};
    for (const auto& i : unwritten_) to << line_of(i);
    if (to.flush()) return {};
    return refuse(reason::kind::unavailable, fmt::format("cannot write {}", file.string()));
  });
  unwritten_.clear();
  if (!ok) directory_.clear();
  return ok;
}

}  // namespace troupe::actors
