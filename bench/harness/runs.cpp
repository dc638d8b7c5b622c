#include "harness/runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace troupe::bench {

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const auto n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

printed printed_by(const std::string& command) {
  printed p;
  std::FILE* out = ::popen(command.c_str(), "r");
  if (out == nullptr) return p;
  char piece[4096];
  for (std::size_t n; (n = std::fread(piece, 1, sizeof piece, out)) > 0;) p.text.append(piece, n);
  p.status = ::pclose(out);
  return p;
}

std::optional<nlohmann::json> try_troupe(const scratch& in, const std::string& words) {
  const auto complaints = in.path("complaints");
  const auto [status, text] = printed_by(fmt::format("cd '{}' && '{}' {} --json 2>'{}'", in.path(),
                                                     TROUPE_PROGRAM, words, complaints));
  auto reply = nlohmann::json::parse(text, nullptr, false);
  if (status == 0 && reply.is_object()) return reply;
  std::ifstream lines{complaints};
  for (std::string line; std::getline(lines, line);) fmt::print(stderr, "{}\n", line);
  fmt::print(stderr, "`troupe {}` has ended with status {}\n", words, status);
  return std::nullopt;
}

nlohmann::json troupe_json(const scratch& in, const std::string& words) {
  auto reply = try_troupe(in, words);
  if (!reply) std::exit(2);
  return std::move(*reply);
}

}  // namespace troupe::bench
