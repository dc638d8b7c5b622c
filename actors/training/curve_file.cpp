#include "actors/training/curve_file.hpp"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <functional>

#include <fmt/format.h>

#include "gpu/model/checkpoint_fence.hpp"

namespace troupe::actors {

namespace {

namespace fs = std::filesystem;

constexpr const char* header = "iteration,end_unix_s,seconds,loss,gradient_norm\n";

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

/// The iteration of a line; 0: the line is not an iteration's.
std::uint64_t iteration_of(const std::string& line) {
  std::uint64_t n = 0;
  std::from_chars(line.data(), line.data() + line.size(), n);
  return n;
}

/// A trainer that was killed while writing leaves an incomplete last line, which is dropped.
void copy_lines(std::istream& from, std::ostream& to, std::uint64_t iterations) {
  std::string line;
  while (std::getline(from, line) && !from.eof())
    if (const auto n = iteration_of(line); n > 0 && n <= iterations) to << line << '\n';
}

}  // namespace

expected<void> curve_file::resume(std::uint64_t iterations) {
  if (directory_.empty()) return {};
  return fenced(directory_, lease_, [&]() -> reason {
    const auto file = curve_in(directory_);
    auto fresh = file;
    fresh += ".new";
    {
      std::ofstream to{fresh, std::ios::binary | std::ios::trunc};
      to << header;
      std::ifstream from{file, std::ios::binary};
      copy_lines(from, to, iterations);
      if (!to.flush()) return failed(fresh);
    }
    std::error_code wrong;
    fs::rename(fresh, file, wrong);
    return wrong ? failed(file) : reason{};
  });
}

expected<void> curve_file::write() {
  if (unwritten_.empty()) return {};
  auto ok = fenced(directory_, lease_, [&]() -> reason {
    const auto file = curve_in(directory_);
    std::ofstream to{file, std::ios::binary | std::ios::app};
    for (const auto& i : unwritten_)
      to << fmt::format("{},{:.6f},{:.9g},{:.9g},{:.9g}\n", i.iteration, i.end_s,
                        i.end_s - i.begin_s, i.loss, i.gradient_norm);
    return to.flush() ? reason{} : failed(file);
  });
  unwritten_.clear();
  if (!ok) directory_.clear();
  return ok;
}

}  // namespace troupe::actors
