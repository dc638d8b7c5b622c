#include "actors/process_launcher.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include <fmt/format.h>

#include "actors/launch.hpp"
#include "runtime/log.hpp"
#include "runtime/process.hpp"
#include "runtime/real_clock.hpp"

namespace troupe::actors {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t chunk_bytes = 64 * 1024;
constexpr double grace_s = 5;  // between asking a program to end and making it

std::string tail_of(const fs::path& file, std::size_t bytes) {
  std::ifstream in{file, std::ios::binary | std::ios::ate};
  if (!in) return {};
  const auto size = static_cast<std::size_t>(in.tellg());
  const auto from = size > bytes ? size - bytes : 0;
  std::string text(size - from, '\0');
  in.seekg(static_cast<std::streamoff>(from));
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  return text;
}

/// What a program wrote to $TROUPE_REPORT: lines of "key: number"; the last of a key counts.
std::map<std::string, double> read_report(const fs::path& file) {
  std::map<std::string, double> result;
  std::ifstream in{file};
  for (std::string line; std::getline(in, line);)
    if (const auto colon = line.find(':'); colon != std::string::npos)
      result[line.substr(0, colon)] = std::strtod(line.c_str() + colon + 1, nullptr);
  return result;
}

class process_launcher final : public launcher {
 public:
  explicit process_launcher(const fs::path& state)
      : logs_{state / "logs"}, records_{state / "processes"} {}

  expected<void> prepare() {
    std::error_code failed;
    fs::create_directories(logs_, failed);
    if (!failed) fs::create_directories(records_, failed);
    if (failed)
      return refuse(reason::kind::invalid,
                    fmt::format("{}: cannot be made: {}", logs_.string(), failed.message()));
    if (const auto killed = runtime::reap_orphans(records_.string()); !killed.empty())
      runtime::log(runtime::log_level::warn, "node", "killed programs of an earlier start",
                   {{"groups", killed.size()}});
    return {};
  }

  expected<void> start(const work_order& w) override {
    runtime::process_options o;
    o.command = w.command;
    for (const auto& pair : w.environment)
      if (const auto equals = pair.find('='); equals != std::string::npos)
        o.environment.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
    o.environment.emplace_back("TROUPE_REPORT", fs::absolute(report_of(w.lease)).string());
    o.directory = w.working_directory;
    o.output = log_of(w.lease).string();
    o.records = records_.string();
    auto started = runtime::process::start(o);
    if (!started) {
      std::ofstream{log_of(w.lease), std::ios::app} << "troupe: " << started.error().text << '\n';
      return tl::unexpected<reason>(started.error());
    }
    running_[w.lease].process = std::move(*started);
    return {};
  }

  void stop(lease_id lease, bool at_once) override {
    auto it = running_.find(lease);
    if (it == running_.end()) return;
    auto& r = it->second;
    if (at_once)
      r.process->kill();
    else if (r.kill_at_s == 0)
      r.process->terminate();
    if (r.kill_at_s == 0) r.kill_at_s = clock_.now_s() + grace_s;
  }

  std::vector<part_report> poll() override {
    std::vector<part_report> result;
    for (auto it = running_.begin(); it != running_.end();) {
      auto& [lease, r] = *it;
      if (r.kill_at_s != 0 && clock_.now_s() >= r.kill_at_s) r.process->kill();
      const auto status = r.process->poll();
      result.push_back(report_on(lease, r, status));
      it = status ? running_.erase(it) : std::next(it);
    }
    return result;
  }

  void note(lease_id lease, const std::string& line) override {
    std::ofstream{log_of(lease), std::ios::app} << line << '\n';
  }

  expected<payload> read_log(lease_id lease, std::uint64_t offset) const override {
    std::ifstream in{log_of(lease), std::ios::binary};
    if (!in)
      return refuse(reason::kind::unknown, fmt::format("lease {} has written no log here", lease));
    in.seekg(0, std::ios::end);
    const auto size = static_cast<std::uint64_t>(in.tellg());
    std::vector<std::byte> bytes(offset < size ? std::min<std::uint64_t>(chunk_bytes, size - offset)
                                               : 0);
    in.seekg(static_cast<std::streamoff>(offset));
    in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return payload{std::move(bytes)};
  }

 private:
  struct running {
    std::unique_ptr<runtime::process> process;
    double kill_at_s = 0;  // 0: nobody asked it to stop
  };

  fs::path log_of(lease_id lease) const { return logs_ / fmt::format("{}.log", lease); }
  fs::path report_of(lease_id lease) const { return logs_ / fmt::format("{}.report", lease); }

  part_report report_on(lease_id lease, const running& r, std::optional<int> status) const {
    part_report p;
    p.lease = lease;
    const auto said = read_report(report_of(lease));
    if (auto it = said.find("iterations"); it != said.end())
      p.iterations = static_cast<std::uint64_t>(std::max(0.0, it->second));
    if (auto it = said.find("peak_bytes"); it != said.end()) p.peak_bytes = it->second;
    if (!status) return p;
    p.exit_code = *status;
    const auto last_output = *status == 0 ? std::string{} : tail_of(log_of(lease), chunk_bytes);
    if (*status == 0)
      p.now = part_report::state::succeeded;
    else if (r.kill_at_s != 0)
      p.now = part_report::state::stopped;
    else if (ran_out_of_memory(*status, last_output))
      p.now = part_report::state::out_of_memory;
    else
      p.now = part_report::state::failed;
    if (p.now == part_report::state::failed) p.detail = fmt::format("exit status {}", *status);
    if (p.now == part_report::state::out_of_memory)
      p.detail = fmt::format("out of memory (exit status {})", *status);
    return p;
  }

  fs::path logs_, records_;
  runtime::real_clock clock_;
  std::map<lease_id, running> running_;
};

}  // namespace

bool ran_out_of_memory(int exit_code, std::string_view last_output) {
  if (exit_code == out_of_memory_exit) return true;
  if (exit_code == 0) return false;
  for (std::string_view words :
       {"CUDA out of memory", "OutOfMemoryError", "CUDA_ERROR_OUT_OF_MEMORY",
        "cudaErrorMemoryAllocation", "HIP out of memory"})
    if (last_output.find(words) != std::string_view::npos) return true;
  return false;
}

expected<std::shared_ptr<launcher>> make_process_launcher(const std::string& state_directory) {
  auto result = std::make_shared<process_launcher>(state_directory);
  if (auto ok = result->prepare(); !ok) return tl::unexpected<reason>(ok.error());
  return result;
}

}  // namespace troupe::actors
