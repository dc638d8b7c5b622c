#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "cli/program.hpp"
#include "harness/source_dir.hpp"
#include "runtime/host/wait.hpp"
#include "runtime/process/process.hpp"
#include "web/raw_client.hpp"

namespace troupe::test {

inline constexpr double long_s = 60, soon_s = 15;
inline const std::string completions = "/v1/completions", chats = "/v1/chat/completions";

inline std::string read_file(const std::string& path) {
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

/// A document, without the notices before it.
inline std::string document_of(const std::string& output) {
  const auto begin = output.find('{');
  return begin == std::string::npos ? "" : output.substr(begin);
}

/// A `troupe serve` of the model that ships, which ends with this.
class server {
 public:
  explicit server(std::vector<std::string> more = {}) {
    more.insert(more.begin(),
                {TROUPE_PROGRAM, "serve", shipped("models/scribe"), "--port", "0", "--json"});
    auto started = runtime::process::start({more, {}, {}, dir_ / "out"});
    REQUIRE(started);
    process_ = std::move(*started);
    REQUIRE(runtime::wait_until(
        [&] { return nlohmann::json::accept(document_of(output())) || process_->poll(); }, long_s));
    const auto text = output();
    INFO(text);
    REQUIRE(nlohmann::json::accept(document_of(text)));
    const auto url = nlohmann::json::parse(document_of(text)).at("url").get<std::string>();
    port = static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
  }

  raw_answer ask(const std::string& request) const {
    raw_client c{port};
    c.send(request);
    return c.answer(request.starts_with("HEAD"));
  }
  raw_answer generate(nlohmann::json body, const std::string& path = completions) const {
    body["model"] = "scribe";
    return ask(post(path, body.dump()));
  }
  /// A line of /metrics.
  double metric(const std::string& name, const std::string& fields = {}) const {
    const auto text = "\n" + ask(get("/metrics", fields)).body;
    const auto at = text.find("\n" + name + " ");
    REQUIRE(at != std::string::npos);
    return std::stod(text.substr(at + name.size() + 2));
  }
  bool all_pages_free(const std::string& fields = {}) const {
    return runtime::wait_until(
        [&] { return metric("troupe_kv_pages{state=\"used\"}", fields) == 0; }, soon_s, 0.02);
  }
  /// The same, and no sequence runs or waits: one that ended is counted until the batch is next
  /// looked at, and one that was just read has no pages yet.
  bool is_idle() const {
    return runtime::wait_until(
        [&] {
          return metric("troupe_sequences{state=\"running\"}") == 0 &&
                 metric("troupe_sequences{state=\"waiting\"}") == 0 &&
                 metric("troupe_kv_pages{state=\"used\"}") == 0;
        },
        soon_s, 0.02);
  }
  /// The text that it has printed, notices first.
  std::string output() const { return read_file(dir_ / "out"); }
  runtime::process& process() { return *process_; }

  std::uint16_t port = 0;

 private:
  const scratch dir_;
  std::unique_ptr<runtime::process> process_;
};

}  // namespace troupe::test
