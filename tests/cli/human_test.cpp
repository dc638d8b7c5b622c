#include <catch2/catch.hpp>

#include "cli/connection/job_selection.hpp"
#include "cli/output/human.hpp"
#include "cli/output/progress.hpp"
#include "cli/output/table.hpp"
#include "web/dashboard/job_json.hpp"

using namespace troupe;
using namespace troupe::cli;

TEST_CASE("durations, sizes and counts are formatted for people") {
  CHECK(duration_text(0) == "0 s");
  CHECK(duration_text(0.00085) == "850 us");
  CHECK(duration_text(0.0765964) == "76.6 ms");
  CHECK(duration_text(3.2) == "3.2 s");
  CHECK(duration_text(59.96) == "1m 00s");
  CHECK(duration_text(125) == "2m 05s");
  CHECK(duration_text(3599.7) == "1h 00m");
  CHECK(duration_text(3720) == "1h 02m");
  CHECK(duration_text(4 * 86400 + 5 * 3600) == "4d 05h");
  CHECK(size_text(512) == "512 B");
  CHECK(size_text(21.57e9) == "21.6 GB");
  CHECK(size_text(39'320'000) == "39.3 MB");
  CHECK(size_text(999'999) == "1 MB");
  CHECK(grouped(100'000'000) == "100,000,000");
  CHECK(grouped(999) == "999");
  CHECK(counted(1, "stage") == "1 stage");
  CHECK(counted(1000, "stage") == "1,000 stages");
}

TEST_CASE("untrusted text cannot control the terminal") {
  CHECK(printable("\x1b]0;owned\x07") == "\\x1b]0;owned\\x07");
  CHECK(printable("a\nb\tc") == "a\\x0ab\\x09c");
  CHECK(printable("a\nb", true) == "a\nb");
  CHECK(printable("Zürich \u2026") == "Zürich \u2026");
  CHECK(printable("\xc2\x9b"
                  "2J") == "\\xc2\\x9b2J");      // a C1 control
  CHECK(printable("\xff\xfe") == "\\xff\\xfe");  // no UTF-8
  CHECK(printable("\xe2\x82") == "\\xe2\\x82");  // half a character
  table t{{"name", "n"}};
  t.row({"\x1b[2J\n", "1"});
  CHECK(t.text() == "name         n\n\\x1b[2J\\x0a  1\n");
}

TEST_CASE("a table wraps its last column at the terminal's width") {
  table t{{"job", "reason"}};
  t.row({"1", "one two three four five six seven"});
  CHECK(t.text() == "job  reason\n  1  one two three four five six seven\n");
  CHECK(t.text(26) ==
        "job  reason\n"
        "  1  one two three four\n"
        "     five six seven\n");
}

TEST_CASE("a pattern of names has * and ?, and matches the whole name") {
  CHECK(matches_pattern("train-1", "train-*"));
  CHECK(matches_pattern("train-", "train-*"));
  CHECK(matches_pattern("a-b-a-c", "a*a-?"));
  CHECK(matches_pattern("", "*"));
  CHECK(!matches_pattern("train-12", "train-?"));
  CHECK(!matches_pattern("my-train-1", "train-*"));
  CHECK(!matches_pattern("train", "train?"));
  CHECK(!matches_pattern("", "?"));
  CHECK(!matches_pattern("x", ""));
}

TEST_CASE("a waiting job's document has no allocation, and unknown values are null") {
  job_status j;
  j.job = 5;
  j.where = {{0, 2}};  // of its last attempt
  j.how.bytes_per_gpu = 1.5e9;
  query_reply reply;
  reply.nodes = {{0, "b", "T4", true, 4, 4}};
  auto d = web::job_document(reply, j);
  CHECK(d["allocation"].empty());
  for (const auto* key : {"plan", "started_s", "ended_s", "peak_bytes", "predicted_bytes",
                          "exit_code", "loss", "tokens_per_s", "eta_s", "model", "lease"}) {
    INFO(key);
    CHECK(d.at(key).is_null());
  }
  j.state = job_state::running;
  j.exit_code = 3;
  j.peak_bytes = 1e9;
  j.started_s = 12.5;
  d = web::job_document(reply, j);
  CHECK(d["allocation"][0]["node"] == "b");
  CHECK(d["plan"]["bytes_per_gpu"].is_number_integer());
  CHECK(d["peak_bytes"].is_number_integer());
  CHECK(d["exit_code"] == 3);
  CHECK(d["started_s"] == 12.5);
}

TEST_CASE(
    "an elastic program's document has its stops and rates, others only say that they are not") {
  job_status j;
  const query_reply reply;
  auto d = web::job_document(reply, j);
  CHECK(d.at("elastic") == false);
  CHECK_FALSE(d.contains("stops"));
  auto& e = j.elastic.emplace();
  e.saved = 7, e.world_size = 2, e.stops = 3, e.start_s = 1.5;
  e.rates = {{{"T4", 2, 1, 30}, 25}};
  d = web::job_document(reply, j);
  CHECK(d.at("elastic") == true);
  CHECK(d.at("saved") == 7);
  CHECK(d.at("world_size") == 2);
  CHECK(d.at("stops") == 3);
  CHECK(d.at("start_s") == 1.5);
  CHECK(d.at("save_s").is_null());
  CHECK(d.at("pause_s").is_null());
  CHECK(d.at("lost_iterations") == 0);
  const auto& rate = d.at("rates").at(0);
  CHECK(rate.at("gpu") == "T4");
  CHECK(rate.at("gpus") == 2);
  CHECK(rate.at("data_parallel") == 1);
  CHECK(rate.at("samples_per_s") == 30);
  CHECK(rate.at("estimated_samples_per_s") == 25);
}

TEST_CASE(
    "a job's document has its newest and its best held-out loss, or says that there is none") {
  job_status j;
  const query_reply reply;
  CHECK(web::job_document(reply, j).at("evaluation").is_null());
  j.held_out = held_out_losses{40, 1.5, 30, 1.25};
  const auto d = web::job_document(reply, j).at("evaluation");
  CHECK(d.at("iteration") == 40);
  CHECK(d.at("loss") == 1.5);
  CHECK(d.at("best_iteration") == 30);
  CHECK(d.at("best_loss") == 1.25);
}

TEST_CASE("words of commands are quoted only where a shell would interpret them") {
  CHECK(shell_word("/var/lib/troupe-1") == "/var/lib/troupe-1");
  CHECK(shell_word("st v4 only") == "'st v4 only'");
  CHECK(shell_word("") == "''");
  CHECK(shell_word("a'b") == "'a'\\''b'");
  for (const char* text : {"$HOME", "a;b", "a\nb", "~", "*", "`x`", "a&b", "#a", "\\"}) {
    CAPTURE(text);
    CHECK(shell_word(text) == fmt::format("'{}'", text));
  }
}

TEST_CASE("the time left is what the rest takes at the pace until now, once that says something") {
  CHECK(with_time_left("half", 0.5, 60) == "half, 1m 00s left");
  CHECK(with_time_left("a quarter", 0.25, 10) == "a quarter, 30 s left");
  CHECK(with_time_left("begun", 0.001, 60) == "begun");
  CHECK(with_time_left("at once", 0.5, 0.2) == "at once");
  CHECK(with_time_left("done", 1, 60) == "done");
}

TEST_CASE(
    "progress in a log is a line each interval, if there is something new, and none on a tty") {
  progress_log log{10, false};
  CHECK_FALSE(log.is_due("a", 9));
  CHECK_FALSE(log.is_due("", 10));
  CHECK(log.is_due("a", 11));
  CHECK_FALSE(log.is_due("b", 20));
  CHECK_FALSE(log.is_due("a", 22));
  CHECK(log.is_due("b", 22));
  progress_log terminal{10, true};
  CHECK_FALSE(terminal.is_due("a", 100));
}
