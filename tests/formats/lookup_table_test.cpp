#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "formats/load/lookup_table.hpp"
#include "harness/files.hpp"

using namespace troupe;
using test::loaded;
using test::temporary;

namespace {

lookup_row lut_row(std::string gpu, tuning_shape shape, double iteration_s, std::uint32_t tensor,
                   row_source from) {
  lookup_row r{std::move(gpu), "a \"model\"", shape, iteration_s, 1.5e9, {}, from};
  r.how.data_parallel = shape.gpus / tensor;
  r.how.tensor_parallel = tensor;
  return r;
}

std::vector<lookup_row> lut_rows() {
  return {lut_row("A40", {1, 1, 64, 0, false, false}, 1.0 / 3, 1, row_source::file),
          lut_row("A40", {4, 2, 64, 12, true, true}, 0.1, 2, row_source::profile),
          lut_row("A100-40GB", {4, 2, 64, 12, true, true}, 0.05, 4, row_source::cost_model)};
}

/// The contents of a file with these rows.
std::string table_text(const std::vector<lookup_row>& rows) {
  std::string out = "{\"rows\": [";
  for (const auto& r : rows)
    out += fmt::format(
        "{}\n  {{\"gpu\": {:?}, \"model\": {:?}, \"gpus\": {}, \"accumulate\": {}, \"batch\": "
        "{}, "
        "\"frozen_layers\": {}, \"amp\": {}, \"recompute\": {}, \"iteration_s\": {}, "
        "\"bytes_per_gpu\": {}, \"data_parallel\": {}, \"tensor_parallel\": {}, \"from\": \"{}\"}}",
        &r == rows.data() ? "" : ",", r.gpu, r.model, r.shape.gpus, r.shape.accumulate,
        r.shape.batch, r.shape.frozen_layers, r.shape.amp, r.shape.recompute, r.iteration_s,
        r.bytes_per_gpu, r.how.data_parallel, r.how.tensor_parallel, to_string(r.from));
  return out + "\n]}\n";
}

/// The refusal of a good table with one text in it replaced.
std::string refused_table(const std::string& from, const std::string& to) {
  auto text = table_text(lut_rows());
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  const std::vector<gpu_type> two{{.name = "A40", .source = ""},
                                  {.name = "A100-40GB", .source = ""}};
  const auto rows =
      formats::load_lookup_table(temporary("bad-lut.json", text.replace(at, from.size(), to)), two);
  REQUIRE_FALSE(rows);
  return rows.error().text;
}

}  // namespace

TEST_CASE("a lookup table is read as it was written, to the last bit") {
  const auto all = lut_rows();
  const auto file = temporary("lut.json", table_text(all));
  const auto rows = loaded(formats::load_lookup_table(file));
  REQUIRE(rows.size() == all.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto &got = rows[i], &written = all[i];
    CHECK(got.gpu == written.gpu);
    CHECK(got.model == written.model);
    CHECK(got.shape == written.shape);
    CHECK(got.iteration_s == written.iteration_s);
    CHECK(got.bytes_per_gpu == written.bytes_per_gpu);
    CHECK(got.how.data_parallel == written.how.data_parallel);
    CHECK(got.how.tensor_parallel == written.how.tensor_parallel);
    CHECK(got.from == written.from);
  }
  CHECK(rows[0].how.samples_per_s == Approx(192));
  CHECK(rows[0].how.bytes_per_gpu == 1.5e9);
}

TEST_CASE("keys that a row of a lookup table leaves out have their defaults") {
  const auto rows = loaded(formats::load_lookup_table(
      temporary("short.json", R"({"rows": [{"gpu": "A40", "model": "m", "gpus": 4, "batch": 8,
                                  "iteration_s": 2, "bytes_per_gpu": 1e9}]})")));
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].shape == tuning_shape{4, 1, 8, 0, false, false});
  CHECK(rows[0].how.data_parallel == 4);
  CHECK(rows[0].how.tensor_parallel == 1);
  CHECK(rows[0].from == row_source::file);
}

TEST_CASE("a bad lookup table is refused with file, line, key, what was found and expected") {
  using Catch::Contains;
  CHECK_THAT(refused_table("\"A40\"", "\"A4O\""),
             Contains("bad-lut.json:2: rows[0].gpu: ") && Contains("did you mean 'A40'?"));
  CHECK_THAT(refused_table("\"gpus\": 1", "\"gpus\": 0"),
             Contains(":2: rows[0].gpus: found '0', expected a whole number from 1"));
  CHECK_THAT(refused_table("\"batch\": 64", "\"batch\": 1.5"),
             Contains("rows[0].batch: found '1.5'"));
  CHECK_THAT(refused_table("\"amp\": true", "\"amp\": 1"),
             Contains(":3: rows[1].amp: found") && Contains("expected true or false"));
  CHECK_THAT(refused_table("\"iteration_s\": 0.1", "\"iteration_s\": 0"),
             Contains("rows[1].iteration_s: found '0', expected a number above 0"));
  CHECK_THAT(refused_table("\"bytes_per_gpu\"", "\"bytes\""),
             Contains("missing key 'bytes_per_gpu'"));
  CHECK_THAT(refused_table("\"data_parallel\": 2", "\"data_parallel\": 4"),
             Contains(":3: rows[1].data_parallel: found 4 x 2 (tensor_parallel), expected a "
                      "product of 4 (gpus)"));
  CHECK_THAT(refused_table("\"accumulate\": 2, \"batch\": 64", "\"accumulate\": 2, \"batch\": 3"),
             Contains("rows[1].batch: found 3, expected at least 4"));
  CHECK_THAT(refused_table("\"profile\"", "\"profil\""),
             Contains("rows[1].from: ") && Contains("did you mean 'profile'?"));
  CHECK_THAT(refused_table("\"A100-40GB\"", "\"A40\""),
             Contains(":4: rows[2]: duplicate row: a \"model\" on 4 A40, batch 64"));
  CHECK_THAT(refused_table("\"rows\"", "\"row\""), Contains("missing key 'rows'"));
  CHECK_THAT(refused_table("\"frozen_layers\"", "\"frozen\""), Contains("unknown key 'frozen'"));
}
