#include <catch2/catch.hpp>

#include "formats/load/load.hpp"
#include "formats/traces/trace.hpp"
#include "harness/files.hpp"
#include "messages/base/shown.hpp"

// Byte order marks and other bytes in front of a text, and invisible characters.

using namespace troupe;
using test::loaded;
using test::temporary;

namespace {

const std::string mark = "\xef\xbb\xbf";

std::string with_crlf(std::string text) {
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2)
    text.replace(at, 1, "\r\n");
  return text;
}

/// The reader accepts a text with a byte order mark, with CRLF, and with both.
template <class Reader>
void check_starts(const char* file, const std::string& text, const Reader& read) {
  INFO(file);
  const auto why = [&](const std::string& changed) {
    const auto r = read(temporary(file, changed));
    return r ? std::string{} : r.error().text;
  };
  CHECK(why(text) == "");
  CHECK(why(mark + text) == "");
  CHECK(why(with_crlf(text)) == "");
  CHECK(why(mark + with_crlf(text)) == "");
  CHECK(why(mark) != "");
}

}  // namespace

TEST_CASE("every reader of text accepts a byte order mark and lines that end with CRLF") {
  using namespace formats;
  check_starts("start.csv", "job_id,submit_s,duration_s,gpus\na,3,1,1\n",
               [](const auto& f) { return load_trace(f); });
  check_starts("start.csv", "arrival_s,prompt_tokens,generated_tokens\n0,1,1\n",
               [](const auto& f) { return load_inference_trace(f); });
  check_starts("start.csv",
               "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-03 00:00:10,5.0,2,10.0,b\n",
               [](const auto& f) { return import_jobs("philly", f); });
  check_starts("start.csv", "job_id,submission_time,duration,num_gpu\na,1,2,3\n",
               [](const auto& f) { return import_jobs("itp", f); });
  check_starts("start.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,4,5\n",
               [](const auto& f) { return import_azure_llm(f); });
  check_starts("start.yaml", "name: bom\nmodel: gpt2-124m\nglobal_batch: 4\niterations: 10\n",
               [](const auto& f) { return load_job(f); });
  check_starts("start.json",
               "{\"name\": \"bom\",\n\"model\": \"gpt2-124m\", \"global_batch\": 4, "
               "\"iterations\": 10}\n",
               [](const auto& f) { return load_job(f); });
  check_starts("config.json",
               "{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 2,\n\"n_head\": 2, "
               "\"n_positions\": 64, \"vocab_size\": 256}\n",
               [](const auto& f) { return load_model(f); });
  check_starts("start.yaml",
               "name: c\ndatacenters:\n  - name: d\n    nodes:\n"
               "      - {name: a, gpu: T4, gpus: 1, intra: pcie3, inter: eth10}\n",
               [](const auto& f) { return load_cluster(f); });
}

TEST_CASE("a character that nobody sees is shown escaped in an error") {
  CHECK(shown("a\xef\xbb\xbf") == "a\\ufeff");
  CHECK(shown("\xc2\xa0x\xe2\x80\x8b\xe2\x80\xae") == "\\xa0x\\u200b\\u202e");
  CHECK(shown("\xf3\xa0\x80\x81") == "\\U000e0001");
  CHECK(shown("\x1b[1m\x7f\t") == "\\x1b[1m\\x7f\\x09");
  CHECK(shown("K\xc3\xb6ln \xe2\x82\xac \xf0\x9f\x98\x80") ==
        "K\xc3\xb6ln \xe2\x82\xac \xf0\x9f\x98\x80");
  CHECK(shown("\xff\xc3(\xed\xa0\x80") == "\\xff\\xc3(\\xed\\xa0\\x80");
  CHECK(shown(std::string(60, 'x')) == std::string(60, 'x'));
  CHECK(shown(std::string(61, 'x')) == std::string(60, 'x') + "...");
  CHECK(shown(std::string(58, 'x') + "\xe2\x82\xac") == std::string(58, 'x') + "...");
  CHECK(shown(std::string(57, 'x') + "\xe2\x82\xac") == std::string(57, 'x') + "\xe2\x82\xac");
  const auto hidden = formats::load_trace(
      temporary("hidden.csv", "job_id,submit_s,duration_s,gpus\xe2\x80\x8b\na,3,1,1\n"));
  REQUIRE_FALSE(hidden);
  CHECK(hidden.error().text.find("unknown column 'gpus\\u200b'") != std::string::npos);
}
