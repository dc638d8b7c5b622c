#include "actors/training/curve_file.hpp"

#include <charconv>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>

#include <fmt/format.h>

#include "gpu/model/checkpoint_fence.hpp"

namespace troupe::actors {

namespace {

namespace fs = std::filesystem;

constexpr const char* header = "iteration,end_unix_s,seconds,loss,gradient_norm,busy_s\n";
constexpr std::size_t max_given = 1000;  // as many as the controller keeps

fs::path curve_in(const std::string& directory) {
  return fs::path{directory} / "curve.csv";
}

reason failed(const fs::path& file) {
  return {reason::kind::unavailable, fmt::format("cannot write {}", file.string())};
}

expected<void> fenced(const std::string& directory, lease_id lease,
                      const std::function<reason()>& write) {
  auto why = gpu::write_fenced(directory, lease, write);
  if (!why.text.empty()) return tl::unexpected<reason>(std::move(why));
  return {};
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

/// A trainer that was killed while writing leaves an incomplete last line, which is dropped.
/// Returns the records after iteration `known`.
std::vector<iteration_record> copy_lines(std::istream& from, std::ostream& to,
                                         std::uint64_t iterations, std::uint64_t known) {
  std::deque<iteration_record> unknown;
  std::string line;
  while (std::getline(from, line) && !from.eof()) {
    const auto i = record_of(line);
    if (i.iteration == 0 || i.iteration > iterations) continue;
    to << line << '\n';
    if (i.iteration > known) unknown.push_back(i);
    if (unknown.size() > max_given) unknown.pop_front();
  }
  return {unknown.begin(), unknown.end()};
}

}  // namespace

expected<std::vector<iteration_record>> curve_file::resume(std::uint64_t iterations,
                                                           std::uint64_t known) {
  std::vector<iteration_record> unknown;
  if (directory_.empty()) return unknown;
  const auto ok = fenced(directory_, lease_, [&]() -> reason {
    const auto file = curve_in(directory_);
    auto fresh = file;
    fresh += ".new";
    {
      std::ofstream to{fresh, std::ios::binary | std::ios::trunc};
      to << header;
      std::ifstream from{file, std::ios::binary};
      unknown = copy_lines(from, to, iterations, known);
      if (!to.flush()) return failed(fresh);
    }
    std::error_code wrong;
    fs::rename(fresh, file, wrong);
    return wrong ? failed(file) : reason{};
  });
  if (!ok) return tl::unexpected<reason>(ok.error());
  return unknown;
}

expected<void> curve_file::write() {
  if (unwritten_.empty()) return {};
  auto ok = fenced(directory_, lease_, [&]() -> reason {
    const auto file = curve_in(directory_);
    std::ofstream to{file, std::ios::binary | std::ios::app};
    for (const auto& i : unwritten_) to << line_of(i);
    return to.flush() ? reason{} : failed(file);
  });
  unwritten_.clear();
  if (!ok) directory_.clear();
  return ok;
}

}  // namespace troupe::actors
