#include <catch2/catch.hpp>

#include "formats/load/load.hpp"
#include "harness/files.hpp"

using namespace troupe;
using test::loaded;
using test::temporary;

namespace {

part_times times(double s) {
  return {s, s * 1.1, s * 2, s / 3, s / 7, 0.0123, 12'345'678'901};
}

device_profile measured() {
  device_profile p;
  p.device = "A \"GPU\" of \\ a kind";
  p.kind = "cuda";
  p.driver = "580.65";
  p.runtime = "CUDA 13.0";
  p.libraries = "cuBLASLt 13.0.2, NCCL 2.27";
  p.date = "2026-11-21T18:00:00Z";
  p.busy = 2;
  p.clocks = {1980, 1980, 0, 2619};
  p.total_bytes = 85'000'000'000, p.free_bytes = 84'123'456'789;
  p.copies = {55.25, 54.5, 1200, {{2, 310.5, 14.25}, {4, 1e3 / 3, 21}}, "by NCCL: \"quickly\""};
  for (const auto* name : {"small", "large"}) {
    model_profile m{name, 768, 12, 3072, 50257, name[0] == 's', {}};
    for (const std::uint32_t sequence : {256, 1024})
      for (const std::uint32_t rows : {1, 8}) {
        const double s = rows * sequence * 1e-7 / 3;
        m.points.push_back({sequence, rows, times(s), times(2 * s), times(s / 100), times(s / 10),
                            times(s * 5), times(s * 5.1)});
      }
    m.points.push_back({256, 8, times(1), times(2), {}, times(3), times(4), times(5), 2});
    p.models.push_back(std::move(m));
  }
  layers_profile layers{"its", "0123456789abcdef", 2, 3.25, {}};
  for (const std::uint32_t rows : {2, 4})
    layers.points.push_back({rows,
                             {{"0-Embedding", times(rows)}, {"1-\"Head\"", times(rows / 7.0)}},
                             times(0.1),
                             times(0.2),
                             times(0.3)});
  p.programs = {layers};
  return p;
}

/// A good profile with one text in it replaced.
std::string with(const std::string& from, const std::string& to) {
  auto text = formats::profile_text(measured());
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string refused(const std::string& text) {
  const auto p = formats::load_profile(temporary("bad-profile.yaml", text));
  REQUIRE_FALSE(p);
  return p.error().text;
}

}  // namespace

TEST_CASE("a profile is read as it was written, to the last bit") {
  const auto file = temporary("profile.yaml", formats::profile_text(measured()));
  CHECK(loaded(formats::load_profile(file)) == measured());
  device_profile bare;
  bare.kind = "cpu";
  CHECK(loaded(formats::load_profile(temporary("bare.yaml", formats::profile_text(bare)))) == bare);
}

TEST_CASE("a bad profile is refused with file, line, key and what was expected") {
  using Catch::Contains;
  CHECK_THAT(refused(with("profile: 1", "profile: 2")),
             Contains("bad-profile.yaml:2: profile: found ") && Contains("expected"));
  CHECK_THAT(refused(with("kind: cuda", "kind: cudo")),
             Contains(":4: kind") && Contains("did you mean 'cuda'?"));
  CHECK_THAT(refused(with("date", "dat")),
             Contains("missing key 'date'; did you misspell it as 'dat'"));
  CHECK_THAT(refused(with("forward_s: ", "forward_s: -")),
             Contains("models[0].points[0].attention.forward_s: found"));
  CHECK_THAT(refused(with("        mlp", "        mpl")), Contains("missing key 'mlp'"));
  CHECK_THAT(refused(with("rows: 8", "rows: 1")),
             Contains("models[0].points[1]: duplicate point: 1 rows of 256 tokens"));
  CHECK_THAT(refused(with("core_mhz", "core_ghz")), Contains("clocks: unknown key 'core_ghz'"));
  CHECK_THAT(refused("profile: 1\n"), Contains("missing key 'device'"));
  CHECK_THAT(refused(with("devices: 4", "devices: 2")),
             Contains(":19: copies.all_reduces[1]: duplicate entry for 2 devices"));
  CHECK_THAT(
      refused(with("devices: 2", "devices: 1")),
      Contains(":18: copies.all_reduces[0].devices: found '1', expected a whole number from 2"));
  CHECK_THAT(refused(with("small_us: 21", "small_us: 0")),
             Contains(":19: copies.all_reduces[1].small_us: found '0', expected a number above 0"));
  CHECK_THAT(refused(with("gbytes_s: 310.5, ", "")),
             Contains("copies.all_reduces[0]: missing key 'gbytes_s'"));
  // A program's layers.
  CHECK_THAT(refused(with("- rows: 4", "- rows: 2")), Contains("duplicate point: 2 rows"));
  CHECK_THAT(refused(with("threads: 2", "threads: 0")), Contains("models[2].threads: found '0'"));
  CHECK_THAT(refused(with("        loss:", "        los:")),
             Contains("models[2].points[0]: missing key 'loss'"));
  CHECK_THAT(refused(with("{name: \"0-Embedding\", ", "{")),
             Contains("models[2].points[0].layers[0]: missing key 'name'"));
  const auto first = formats::profile_text(measured()).find("          - {name: \"0-Emb");
  auto fewer = formats::profile_text(measured());
  fewer.erase(first, fewer.find('\n', first) + 1 - first);
  CHECK_THAT(refused(fewer),
             Contains("models[2].points[1]: found 2 layers, expected 1, as in the first point"));
  // A key of earlier versions.
  CHECK_THAT(refused(with("  all_reduce:", "  all_reduce_gbytes_s: 0\n  all_reduce:")),
             Contains(":16: copies: unknown key 'all_reduce_gbytes_s'"));
}

TEST_CASE("a catalogue, a cluster and a job may name a profile relative to their own file") {
  temporary("named/p.yaml", formats::profile_text(measured()));
  const std::string gpu = "{memory_gb: 40, fp16_tflops: 312, fp32_tflops: 19.5, memory_gbytes_s: 1";
  const auto catalogue =
      loaded(formats::load_catalogue(temporary("named/gpus.yaml", "A: " + gpu +
                                                                      ", profile: p.yaml}\n"
                                                                      "B: " +
                                                                      gpu + "}\n")));
  REQUIRE(catalogue[0].profile);
  CHECK(*catalogue[0].profile == measured());
  CHECK_FALSE(catalogue[1].profile);
  const std::string cluster =
      "name: c\n"
      "datacenters: [{name: d, nodes: [{name: n, gpu: B, gpus: 1, intra: pcie4, inter: ib100}]}]\n"
      "gpus: {B: {profile: ";
  const auto c = loaded(formats::load_cluster(temporary("named/c.yaml", cluster + "p.yaml}}\n")));
  CHECK(c.gpus[0].profile == measured());
  const auto none = formats::load_cluster(temporary("named/no.yaml", cluster + "q.yaml}}\n"));
  REQUIRE_FALSE(none);
  CHECK_THAT(none.error().text, Catch::Contains("no.yaml:3: gpus.B.profile: no file 'q.yaml'"));
  const auto job = loaded(
      formats::load_job(temporary("named/job.yaml",
                                  "name: j\nmodel: gpt2-124m\nglobal_batch: 1\niterations: 1\n"
                                  "train: {device: sim, profile: p.yaml}\n")));
  REQUIRE(job.train->profile.size() == 1);
  CHECK(job.train->profile[0] == measured());
}
