#include "runtime/log.hpp"

#include "runtime_real/world.hpp"

using namespace troupe::runtime;

TEST_CASE("A line says when, how bad, who and what, and a stranger's words stay on it, quoted") {
  std::vector<std::string> lines;
  set_log_sink([&](log_level, std::string_view line) { lines.emplace_back(line); });
  log(log_level::debug, "test", "below the level");
  log(log_level::warn, "test", "refused a peer",
      {{"name", "a b\n\"c\""}, {"port", 7}, {"plain", "tcp://x:1"}});
  set_log_level(log_level::error);
  log(log_level::warn, "test", "below the level now");
  set_log_level(log_level::info);
  set_log_sink({});
  REQUIRE(lines.size() == 1);
  REQUIRE(lines[0].size() > 24);
  REQUIRE(lines[0][23] == 'Z');
  REQUIRE(lines[0].substr(25) ==
          R"(warn test: refused a peer name="a b\x0a\"c\"" port=7 plain=tcp://x:1)");
  REQUIRE(log_level_from("debug") == log_level::debug);
  REQUIRE(log_level_from("loud") == log_level::info);
}
