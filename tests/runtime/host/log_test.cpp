#include "runtime/host/log.hpp"

#include <ctime>

#include "runtime/host/log_limiter.hpp"
#include "runtime/world.hpp"

using namespace troupe::runtime;

TEST_CASE("a log line has time, level, component, text and fields, and quotes untrusted values") {
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
  std::time_t now = std::time(nullptr);
  char day[] = "2000-01-01";
  std::strftime(day, sizeof day, "%Y-%m-%d", std::gmtime(&now));
  CHECK(lines[0].substr(0, 10) <= day);  // it may be past midnight by now
  now -= 60;
  std::strftime(day, sizeof day, "%Y-%m-%d", std::gmtime(&now));
  CHECK(lines[0].substr(0, 10) >= day);
  REQUIRE(lines[0].substr(25) ==
          R"(warn test: refused a peer name="a b\x0a\"c\"" port=7 plain=tcp://x:1)");
}

TEST_CASE("untrusted text is escaped in the log: valid UTF-8 without control characters") {
  std::string line;
  set_log_sink([&](log_level, std::string_view l) { line = l; });
  const auto value = [&](const std::string& v) {
    log(log_level::info, "who", "text", {{"v", v}});
    return line.substr(line.find(" v=") + 3);
  };
  CHECK(value("plain") == "plain");
  CHECK(value("Zürich 東京 🚀") == "\"Zürich 東京 🚀\"");
  CHECK(value("a\xff\xfez") == "\"a\\xff\\xfez\"");
  CHECK(value("\xc3") == "\"\\xc3\"");                             // cut off
  CHECK(value("\xc0\xaf") == "\"\\xc0\\xaf\"");                    // longer than need be
  CHECK(value("\xed\xa0\x80") == "\"\\xed\\xa0\\x80\"");           // a surrogate
  CHECK(value("\xed\xbf\xbf") == "\"\\xed\\xbf\\xbf\"");           // the last of these
  CHECK(value("\xee\x80\x80") == "\"\xee\x80\x80\"");              // behind them
  CHECK(value("\xf4\x90\x80\x80") == "\"\\xf4\\x90\\x80\\x80\"");  // beyond the last
  CHECK(value("\xf4\x8f\xbf\xbf") == "\"\xf4\x8f\xbf\xbf\"");      // the last
  CHECK(value("\xf0\x90\x80\x80") == "\"\xf0\x90\x80\x80\"");      // the first of four bytes
  CHECK(value("a\\b") == "\"a\\\\b\"");
  CHECK(value("a=b") == "\"a=b\"");
  CHECK(value("\x7f") == "\"\\x7f\"");
  CHECK(value("\xc2\x9b"
              "31m") == "\"\\xc2\\x9b31m\"");  // a control of eight bits
  CHECK(value("\x1b]0;owned\x07") == "\"\\x1b]0;owned\\x07\"");
  log(log_level::info, "who", "two\nlines \x1b[2J", {});
  CHECK(line.find("two\\x0alines \\x1b[2J") != std::string::npos);
  set_log_sink({});
}

TEST_CASE(
    "a log limiter passes one line a minute per subject, with the number of lines it stands for") {
  log_limiter limiter;
  CHECK(limiter.pass("a", 0) == 1);
  CHECK(limiter.pass("a", 1) == 0);
  CHECK(limiter.pass("b", 1) == 1);
  CHECK(limiter.pass("a", 59) == 0);
  CHECK(limiter.pass("a", 61) == 3);
  std::uint64_t lines = 0;
  for (int i = 0; i < 100'000; ++i) lines += limiter.pass(std::to_string(i), 62) > 0 ? 1 : 0;
  CHECK(lines <= 1000);  // many subjects share one line
}
