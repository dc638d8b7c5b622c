#include "cli/connection/key_file.hpp"

#include <atomic>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "runtime/host/log.hpp"

namespace troupe::cli {

namespace {

// The handler only sets a flag: reading a file is not async-signal-safe.
std::atomic<bool> hung_up{false};
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void on_hangup(int) {
  hung_up = true;
}

}  // namespace

expected<std::optional<web::api_keys>> key_file::read(const std::string& path,
                                                      const std::string& host,
                                                      const std::string& option) {
  const auto loopback = web::is_loopback(host);
  if (!loopback) return refuse(loopback.error());
  if (path.empty() && !*loopback)
    return refuse(
        reason::kind::invalid,
        fmt::format("--host {}: not a loopback address, so API keys are required: {} FILE "
                    "with the SHA-256 of each key",
                    host, option));
  if (path.empty()) return std::nullopt;
  auto keys = web::api_keys::read(path);
  if (!keys) return refuse(keys.error());
  return std::move(*keys);
}

key_file::key_file(std::string path, web::service& service)
    : path_{std::move(path)}, service_{service} {
  hung_up = false;
  std::signal(SIGHUP, on_hangup);
}

key_file::~key_file() {
  std::signal(SIGHUP, SIG_DFL);
}

bool key_file::look() {
  if (!hung_up.exchange(false)) return false;
  if (!path_.empty()) read_again();
  return true;
}

void key_file::read_again() {
  // An empty file is valid here: withdrawing the last key must work, and must not open the server.
  auto keys = web::api_keys::read(path_, true);
  if (!keys) {
    // A file that is half written or unreadable must not lock everybody out.
    runtime::log(runtime::log_level::error, "serve", "the keys stay as they were",
                 {{"why", keys.error().text}});
    return;
  }
  if (keys->empty())
    runtime::log(runtime::log_level::warn, "serve",
                 "the file has no keys any more: requests are refused until it has one",
                 {{"file", path_}});
  service_.change_keys(std::move(*keys));
  runtime::log(runtime::log_level::info, "serve", "read the keys again", {{"file", path_}});
}

}  // namespace troupe::cli
