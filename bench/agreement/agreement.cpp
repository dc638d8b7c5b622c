// bench_agreement [ROUNDS] [JOB...]: the same training as processes on this machine, over an
// emulated WAN, and in virtual time with the stages' times that a real run measured. Prints both
// iteration times for each schedule; ends with 1 if any two differ by more than 5 %.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double most_percent = 5;
const std::vector<std::string> schedules{"gpipe", "megatron", "varuna", "atlas"};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.size() % 2 ? v[v.size() / 2] : (v[v.size() / 2 - 1] + v[v.size() / 2]) / 2;
}

/// Where the runs' files lie; it goes with the program.
struct place {
  place() : at{fs::temp_directory_path() / fmt::format("bench-agreement-{}", ::getpid())} {
    fs::create_directories(at);
  }
  ~place() {
    std::error_code ignored;
    fs::remove_all(at, ignored);
  }
  place(const place&) = delete;
  fs::path at;
};

/// What `troupe train` prints.
json trained(const place& in, const std::string& arguments) {
  const auto command =
      fmt::format("cd '{}' && '{}' train {} --json", in.at.string(), TROUPE_PROGRAM, arguments);
  std::FILE* out = ::popen(command.c_str(), "r");
  std::string text;
  char some[4096];
  for (std::size_t n; out && (n = std::fread(some, 1, sizeof some, out)) > 0;) text.append(some, n);
  const int status = out ? ::pclose(out) : -1;
  auto said = json::parse(text, nullptr, false);
  if (status == 0 && said.is_object()) return said;
  fmt::print(stderr, "{} has ended with status {}\n", command, status);
  std::exit(2);
}

double iteration_ms(const json& run) {
  return run["iteration_s"]["p50"].get<double>() * 1e3;
}

struct both {
  std::vector<double> real_ms, virtual_ms, percent;  // by round
};

/// Every schedule, really and virtually, from a profile measured just before: the machine's own
/// speed may change from minute to minute. Both are planned from that profile.
void one_round(const place& in, const std::string& job, std::map<std::string, both>& results) {
  const auto profile = (in.at / "profile.json").string();
  for (const auto& s : schedules) {
    std::ofstream{profile} << trained(in, fmt::format("'{}' --world local --schedule {}", job, s));
    const auto how = fmt::format("'{}' --schedule {} --profile '{}'", job, s, profile);
    auto& r = results[s];
    r.real_ms.push_back(iteration_ms(trained(in, how + " --world local")));
    r.virtual_ms.push_back(iteration_ms(
        trained(in, fmt::format("{} --world virtual --cluster '{}'", how, TROUPE_BENCH_CLUSTER))));
    r.percent.push_back(100 * (r.virtual_ms.back() / r.real_ms.back() - 1));
  }
}

bool agrees(const place& in, const std::string& job, int rounds) {
  std::map<std::string, both> results;
  for (int i = 0; i < rounds; ++i) one_round(in, job, results);
  fmt::print(
      "{}, median of {} rounds:\n\n"
      "| schedule | real ms | virtual ms | difference | of the rounds |\n"
      "|---|---:|---:|---:|---:|\n",
      fs::path{job}.filename().string(), rounds);
  bool all = true;
  for (const auto& s : schedules) {
    const auto& r = results[s];
    const double percent = median(r.percent);
    all = all && std::abs(percent) <= most_percent;
    const auto [low, high] = std::minmax_element(r.percent.begin(), r.percent.end());
    fmt::print("| {} | {:.0f} | {:.0f} | {:+.1f} % | {:+.1f} to {:+.1f} % |\n", s,
               median(r.real_ms), median(r.virtual_ms), percent, *low, *high);
  }
  fmt::print("\n");
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 3;
  std::vector<std::string> jobs;
  for (int i = 2; i < argc; ++i) jobs.push_back(fs::absolute(argv[i]).string());
  if (jobs.empty())
    for (const auto* name : {"compute.yaml", "transfer.yaml"})
      jobs.push_back((fs::path{TROUPE_BENCH_JOBS} / name).string());
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // the run takes minutes
  const place in;
  bool all = true;
  for (const auto& job : jobs) all = agrees(in, job, rounds) && all;
  fmt::print("{} at most {:g} % everywhere.\n", all ? "They differ by" : "They do not differ by",
             most_percent);
  return all ? 0 : 1;
}
