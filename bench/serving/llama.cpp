#include "serving/llama.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace troupe::bench {

std::optional<std::string> llama_peer::installed() {
  const char* modules = std::getenv("TROUPE_NODE_MODULES");
  if (modules && std::filesystem::exists(std::string{modules} + "/node-llama-cpp")) return modules;
  fmt::print(
      "Not compared with llama.cpp: TROUPE_NODE_MODULES names no node_modules with node-llama-cpp "
      "and @node-llama-cpp/linux-x64\n");
  return {};
}

llama_peer::llama_peer(const std::string& modules, const std::string& gguf, unsigned threads) {
  int in[2], out[2];
  if (::pipe(in) != 0 || ::pipe(out) != 0) std::exit(2);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(in[0], STDIN_FILENO);
    ::dup2(out[1], STDOUT_FILENO);
    for (const int fd : {in[0], in[1], out[0], out[1]}) ::close(fd);
    const auto count = std::to_string(threads);
    ::execlp("node", "node", TROUPE_BENCH_PEER, modules.c_str(), gguf.c_str(), count.c_str(),
             nullptr);
    ::_exit(127);
  }
  ::close(in[0]);
  ::close(out[1]);
  to_ = in[1];
  from_ = ::fdopen(out[0], "r");
  version_ = nlohmann::json::parse(command("version")).at("version").get<std::string>();
}

llama_peer::~llama_peer() {
  ::close(to_);
  ::kill(pid_, SIGTERM);
  ::waitpid(pid_, nullptr, 0);
  std::fclose(from_);
}

std::string llama_peer::command(const std::string& line) {
  const auto text = line + "\n";
  char* answer = nullptr;
  std::size_t size = 0;
  const bool asked = ::write(to_, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const auto n = asked ? ::getline(&answer, &size, from_) : -1;
  std::string result{answer ? answer : ""};
  std::free(answer);
  if (n > 0) return result;
  fmt::print(stderr, "llama.cpp does not answer\n");
  std::exit(2);
}

double llama_peer::prefill(const std::vector<std::uint32_t>& tokens) {
  return nlohmann::json::parse(command(fmt::format("prefill {}", fmt::join(tokens, ",")))).at("s");
}

llama_peer::decoded llama_peer::decode(std::size_t count) {
  const auto d = nlohmann::json::parse(command(fmt::format("decode {}", count)));
  return {d.at("s"), d.at("tokens").get<std::vector<std::uint32_t>>()};
}

}  // namespace troupe::bench
