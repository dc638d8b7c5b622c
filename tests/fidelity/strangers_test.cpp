#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "harness/scratch.hpp"
#include "harness/shell.hpp"
#include "harness/source_dir.hpp"

// bench_fidelity FILE: rows of a stranger, in the columns of tests/planners/published_runs.csv.
// What is wrong with a file is one sentence with its line and exit status 2; no row is left out
// silently.

using namespace troupe::test;
using Catch::Contains;
using nlohmann::json;

namespace {

const std::vector<std::string> columns{
    "source",     "set",          "gpu",         "gpus_per_node", "nodes",        "intra_gbps",
    "inter_gbps", "family",       "layers",      "hidden",        "heads",        "sequence",
    "vocabulary", "intermediate", "precision",   "checkpointing", "kernels",      "zero",
    "data",       "tensor",       "pipeline",    "virtual",       "microbatches", "rows",
    "published",  "unit",         "iteration_s", "note"};

using row = std::map<std::string, std::string>;

/// A run of GPT-2 on an A40, with these fields in place of its own.
row run_with(const row& other = {}) {
  row r{{"source", "mine"},      {"set", "held"},
        {"gpu", "A40"},          {"gpus_per_node", "1"},
        {"nodes", "1"},          {"intra_gbps", "252"},
        {"inter_gbps", "100"},   {"family", "gpt"},
        {"layers", "12"},        {"hidden", "768"},
        {"heads", "12"},         {"sequence", "1024"},
        {"vocabulary", "50257"}, {"intermediate", "0"},
        {"precision", "mixed"},  {"checkpointing", "none"},
        {"kernels", "flash"},    {"zero", "0"},
        {"data", "1"},           {"tensor", "1"},
        {"pipeline", "1"},       {"virtual", "1"},
        {"microbatches", "1"},   {"rows", "8"},
        {"published", "1"},      {"unit", "s"},
        {"iteration_s", "0.25"}, {"note", ""}};
  for (const auto& [column, field] : other) r[column] = field;
  return r;
}

std::string line_of(const row& r, const std::vector<std::string>& order, const char* end) {
  std::string out;
  for (const auto& column : order) out += r.at(column) + ",";
  out.pop_back();
  return out + end;
}

std::string file_of(const std::vector<row>& rows, std::vector<std::string> order = columns,
                    const char* end = "\n") {
  row header;
  for (const auto& column : order) header[column] = column;
  auto out = line_of(header, order, end);
  for (const auto& r : rows) out += line_of(r, order, end);
  return out;
}

struct judged {
  scratch in;
  command_result result;

  explicit judged(const std::string& text, const std::string& more = "--json") {
    const auto file = in.write("mine.csv", text);
    result = run(BENCH_FIDELITY " " + more + " " + file);
  }
  json document() const {
    INFO(result.said);
    REQUIRE(result.status == 0);
    return json::parse(result.said);
  }
  /// Refused with exactly one line, which begins with the file and the line's number.
  void check_refused(int line, const std::string& sentence) const {
    INFO(result.said);
    CHECK(result.status == 2);
    CHECK_THAT(result.said, Catch::StartsWith(fmt::format("{}:{}: ", in / "mine.csv", line)) &&
                                Contains(sentence));
    CHECK(std::count(result.said.begin(), result.said.end(), '\n') == 1);
  }
};

std::vector<std::string> without(const std::string& column) {
  auto left = columns;
  std::erase(left, column);
  return left;
}

}  // namespace

TEST_CASE("rows of a stranger are judged whatever the order of columns and the ends of lines") {
  const auto plain = judged{file_of({run_with()})}.document();
  REQUIRE(plain["runs"].size() == 1);
  const auto& first = plain["runs"][0];
  CHECK(first["source"] == "mine");
  CHECK(first["measured_s"] == 0.25);
  CHECK(first["predicted_s"] > 0);
  CHECK(first["error"] ==
        Approx(first["predicted_s"].get<double>() / first["measured_s"].get<double>() - 1));
  CHECK(first["kind"] == "A40, none, below 8192");
  CHECK_FALSE(first["name"].get<std::string>().empty());
  REQUIRE(plain["kinds"].size() == 1);
  CHECK(plain["kinds"][0]["kind"] == first["kind"]);
  CHECK(plain["kinds"][0]["bias"] == first["error"]);

  auto reversed = columns;
  std::reverse(reversed.begin(), reversed.end());
  CHECK(judged{file_of({run_with()}, reversed)}.document() == plain);
  CHECK(judged{file_of({run_with()}, columns, "\r\n")}.document() == plain);
  CHECK(judged{file_of({run_with()}, columns, "\n\n# a note\n   \n")}.document() == plain);
  CHECK(judged{"\xef\xbb\xbf" + file_of({run_with()})}.document() == plain);
  auto text = file_of({run_with()});
  text.pop_back();
  CHECK(judged{text}.document() == plain);
}

TEST_CASE("every row of a stranger is a run, or is listed with the reason why it is none") {
  const auto d =
      judged{file_of({run_with(), run_with({{"gpu", "TPU-v9"}}), run_with({{"gpu", "\"A40\""}}),
                      run_with({{"gpus_per_node", "4"},
                                {"pipeline", "4"},
                                {"microbatches", "1"},
                                {"note", "no interleaving"}})})}
          .document();
  CHECK(d["runs"].size() == 2);
  REQUIRE(d["unsaid"].size() == 2);
  CHECK(d["unsaid"][0]["reason"] == "no GPU 'TPU-v9' in the catalogue");
  CHECK_THAT(d["unsaid"][1]["reason"].get<std::string>(), Contains("no GPU"));
  const auto text = judged{file_of({run_with({{"gpu", "TPU-v9"}})}), ""};
  CHECK(text.result.status == 0);
  CHECK_THAT(text.result.said, Contains("no GPU 'TPU-v9' in the catalogue"));
}

TEST_CASE("a stranger's file without a column, or without rows, is refused by its line") {
  for (const auto& column : columns) {
    CAPTURE(column);
    judged{file_of({run_with()}, without(column))}.check_refused(1,
                                                                 "missing column '" + column + "'");
  }
  auto more = columns;
  more.push_back("color");
  judged{file_of({run_with({{"color", "red"}})}, more)}.check_refused(1, "unknown column 'color'");
  more.back() = "source";
  judged{file_of({run_with()}, more)}.check_refused(1, "duplicate column 'source'");
  judged{file_of({})}.check_refused(1, "found no rows");
  judged{"# nothing else\n"}.check_refused(1, "no header line");
  const judged empty{""};
  CHECK(empty.result.status == 2);
  CHECK(empty.result.said == empty.in / "mine.csv" + ": the file is empty\n");
}

TEST_CASE("a stranger's field that is no number or word of its column is refused by its line") {
  const struct {
    const char *column, *field, *sentence;
  } cases[] = {
      {"nodes", "two", "nodes: found 'two'"},
      {"layers", "", "layers: found ''"},
      {"layers", "12.5", "layers: found '12.5', expected a whole number"},
      {"hidden", "0x300", "hidden: found '0x300'"},
      {"iteration_s", "nan", "iteration_s: found 'nan'"},
      {"iteration_s", "-1", "iteration_s: found '-1'"},
      {"iteration_s", "0", "iteration_s: found '0'"},
      {"iteration_s", "1e999", "iteration_s: found '1e999'"},
      {"intra_gbps", "pcie4", "intra_gbps: found 'pcie4'"},
      {"set", "mine", "known: fit, held, ratio"},
      {"family", "mamba", "family: found 'mamba'"},
      {"precision", "int8", "precision: found 'int8'"},
      {"checkpointing", "yes", "known: none, selective, full"},
      {"kernels", "flash3", "kernels: found 'flash3'"},
      {"zero", "4", "zero: found '4'"},
      {"data", "2", "data: 2 data x 1 tensor"},
      {"heads", "11", "heads: "},
      {"heads", "x", "heads: found 'x'"},
      {"rows", "1000000", ""},  // as many as may be
      {"virtual", "2", "virtual: found 2, expected 1 where pipeline is 1"},
  };
  for (const auto& c : cases) {
    CAPTURE(c.column, c.field);
    const judged j{file_of({run_with(), run_with({{c.column, c.field}})})};
    if (*c.sentence == 0)
      CHECK(j.result.status == 0);
    else
      j.check_refused(3, c.sentence);
  }
  const auto many = run_with({{"microbatches", "1000000"}, {"rows", "5000"}});
  judged{file_of({run_with(), many})}.check_refused(3, "micro-batches x 5000 rows are 5000000000");
  const auto deep = run_with({{"gpus_per_node", "32"}, {"pipeline", "32"}});
  judged{file_of({run_with(), deep})}.check_refused(3, "found 32 stages x 1 virtual");
}

TEST_CASE("a stranger's quoted name with a comma is refused with what quotes are here") {
  const judged quoted{file_of({run_with({{"note", "\"MPT, 30 b\""}})})};
  quoted.check_refused(2, "found 29 fields, expected 28; quotes are text here");
  judged{file_of({run_with()}) + "mine,held,A40\n"}.check_refused(3, "found 3 fields, expected 28");
}

TEST_CASE("layouts and runs with memory of a stranger are refused by their line, too") {
  const std::string layout =
      "model,gpu,gpus,gpus_per_node,precision,data,tensor,pipeline,virtual,context,microbatches,"
      "rows,sequence,step_s\n";
  const auto layouts = [&](const std::string& fields) { return judged{layout + fields + "\n"}; };
  const auto good = layouts("llama-3-8b,H100-80GB,8,8,fp8,8,1,1,1,1,16,1,8192,9.3").document();
  CHECK(good["runs"].size() == 1);
  layouts("llama-3-8b,H100-80GB,8,x,fp8,8,1,1,1,1,16,1,8192,9.3")
      .check_refused(2, "gpus_per_node: found 'x'");
  layouts("llama-3-8b,H100-80GB,12,8,fp8,12,1,1,1,1,16,1,8192,9.3")
      .check_refused(2, "gpus: found 12, expected a multiple of gpus_per_node (8)");
  layouts("llama-3-8b,H100-80GB,8,8,bfloat,8,1,1,1,1,16,1,8192,9.3")
      .check_refused(2, "precision: found 'bfloat'");
  layouts("llama-3-8b,H100-80GB,8,8,fp8,4,1,1,1,1,16,1,8192,9.3")
      .check_refused(2, "4 data x 1 tensor");
  layouts("gpt-9,H100-80GB,8,8,fp8,8,1,1,1,1,16,1,8192,9.3")
      .check_refused(2, "model: found 'gpt-9'");

  const std::string peaks =
      "kind,model,lora_rank,gpu,gpus,sequence,microbatches,rows,recompute,outcome,step_s,"
      "peak_gib\n";
  const auto with_peak = [&](const std::string& fields) { return judged{peaks + fields + "\n"}; };
  CHECK(with_peak("sft,qwen3-4b,0,H100-80GB,8,8192,1,1,full,ran,1.5,30")
            .document()["memory"]
            .size() == 1);
  with_peak("dpo,qwen3-4b,0,H100-80GB,8,8192,1,1,full,ran,1.5,30")
      .check_refused(2, "kind: found 'dpo'");
  with_peak("sft,qwen3-4b,0,H100-80GB,8,8192,1,1,some,ran,1.5,30")
      .check_refused(2, "recompute: found 'some'");
  with_peak("sft,qwen3-4b,0,H100-80GB,8,8192,1,1,full,crashed,1.5,30")
      .check_refused(2, "outcome: found 'crashed'");
}

TEST_CASE("a stranger's file that is not there, and an unknown option, are refused in a sentence") {
  const auto missing = run(BENCH_FIDELITY " /nowhere/mine.csv");
  CHECK(missing.status == 2);
  CHECK_THAT(missing.said, Contains("/nowhere/mine.csv"));
  const auto option = run(BENCH_FIDELITY " --jason");
  CHECK(option.status == 2);
  CHECK_THAT(option.said, Contains("found '--jason', expected files, --runs or --json"));
  const scratch in;
  const auto folder = run(BENCH_FIDELITY " " + in.path());
  CHECK(folder.status == 2);
}

TEST_CASE("the document of all public rows has every run by name, source and kind") {
  const auto all = run(BENCH_FIDELITY " --json");
  REQUIRE(all.status == 0);
  const auto d = json::parse(all.said);
  CHECK(d["runs"].size() + d["unsaid"].size() >= 319);
  std::set<std::string> kinds;
  for (const auto& r : d["runs"]) {
    for (const auto* key : {"name", "source", "kind", "measured_s", "predicted_s", "error"})
      REQUIRE(r.contains(key));
    REQUIRE(r["error"].is_number());
    kinds.insert(r["source"].get<std::string>() + r["kind"].get<std::string>());
  }
  CHECK(d["kinds"].size() == kinds.size());
}
