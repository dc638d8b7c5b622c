#include "actors/node/program_files.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "messages/admission/measured.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/untrusted_file.hpp"
#include "messages/base/whole_file.hpp"

namespace troupe::actors {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t report_bytes = 4096;
constexpr std::size_t probe_bytes = 4096;
constexpr double max_rank = 1e9;

std::string_view trimmed(std::string_view s) {
  const auto first = s.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return s.substr(first, s.find_last_not_of(" \t\r") - first + 1);
}

}  // namespace

/// The program's own number from the job's beginning is best; else what it did is added to where it
/// began.
std::optional<std::uint64_t> program_report::reached(std::uint64_t done) const {
  if (iteration) return iteration;
  if (resumed || iterations > 0) return resumed.value_or(done) + iterations;
  return {};
}

/// The file is a program's, written while it is read: whatever does not parse is skipped, and what
/// it says later counts. A number outside of a job file's bounds is no measurement, and skipped
/// too.
program_report parse_program_report(std::string_view text) {
  program_report result;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const auto colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const auto key = trimmed(line.substr(0, colon)), value = trimmed(line.substr(colon + 1));
    double n = 0;
    const auto [end, wrong] = std::from_chars(value.data(), value.data() + value.size(), n);
    const bool whole = wrong == std::errc{} && end == value.data() + value.size();
    if (whole && key == "loss" && std::isfinite(n)) result.loss = n;
    if (!whole || !std::isfinite(n) || n < 0) continue;
    if (key == "peak_bytes" && admission::is_memory(n)) result.peak_bytes = n;
    if (key == "step_s" && admission::is_step(n)) result.step_s = n;
    if (key == "finished") result.finished = n > 0;
    if (key == "control") result.control = n > 0;
    if (key == "failed_rank" && n <= max_rank) result.failed_rank = static_cast<std::uint32_t>(n);
    if (n > static_cast<double>(admission::max_iterations)) continue;
    const auto count = static_cast<std::uint64_t>(n);
    if (key == "iterations") result.iterations = count;
    if (key == "iteration") result.iteration = count;
    if (key == "saved") result.saved = count;
    if (key == "resumed") result.resumed = count;
    if (key == "last" && count > 0) result.last = count;
  }
  return result;
}

/// A tail, since a program may append a line for each iteration.
program_report read_program_report(const std::string& path) {
  const auto tail = troupe::read_tail(path, report_bytes);
  if (!tail) return {};
  std::string_view text{tail->bytes};
  // The first line may be incomplete.
  if (tail->offset > 0) text.remove_prefix(std::min(text.size(), text.find('\n')));
  return parse_program_report(text);
}

fs::path program_files::directory(lease_id lease) const {
  return logs_ / fmt::format("{}-{:016x}", lease, incarnation_);
}

std::error_code program_files::make(lease_id lease) const {
  std::error_code failed;
  fs::create_directories(directory(lease), failed);
  // Output may contain secrets: only the node's user can read it.
  if (!failed) fs::permissions(directory(lease), fs::perms::owner_all, failed);
  return failed;
}

expected<void> program_files::prepare(lease_id lease) const {
  if (const auto failed = make(lease))
    return refuse(reason::kind::unavailable, "cannot create a directory in {}: {}", logs_.string(),
                  failed.message());
  // On a full disk there may be room for a directory, but not for any output.
  const auto probe = directory(lease) / "probe";
  const auto written = troupe::append_to(probe.string(), std::string(probe_bytes, '.'));
  std::error_code ignored;
  fs::remove(probe, ignored);
  if (!written) return refuse(reason::kind::unavailable, written.error().text);
  return {};
}

expected<void> program_files::request_stop(lease_id lease, double within_s) const {
  return write_whole_file(control(lease), fmt::format("stop: 1\nwithin_s: {:g}\n", within_s));
}

expected<void> program_files::try_out() const {
  auto result = prepare(0);  // no lease has this number
  std::error_code ignored;
  fs::remove_all(directory(0), ignored);
  return result;
}

/// Incarnations are numbers of fixed width that grow, so the greatest name is the newest.
std::string program_files::newest_log(lease_id lease) const {
  const auto prefix = fmt::format("{}-", lease);
  std::string newest;
  std::error_code failed;
  for (fs::directory_iterator it{logs_, failed}, end; !failed && it != end; it.increment(failed)) {
    const auto name = it->path().filename().string();
    if (name.starts_with(prefix)) newest = std::max(newest, name);
  }
  return newest.empty() ? newest : (logs_ / newest / "output.log").string();
}

}  // namespace troupe::actors
