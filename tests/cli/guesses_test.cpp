#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "cli/program.hpp"
#include "harness/scratch.hpp"

// Figures that nobody has measured are called so by `plan` and `estimate`, in text and JSON.

using Catch::Contains;
using nlohmann::json;
using troupe::test::scratch;

namespace {

/// Two nodes of four GPUs each, with these keys.
std::string cluster_of(const std::string& gpu, const std::string& intra) {
  return "name: c\ndatacenters:\n  - name: d\n    nodes:\n      - name: n\n        gpu: " + gpu +
         "\n        gpus: 4\n        count: 2\n        intra: " + intra +
         "\n        inter: eth25\n";
}

struct asked {
  scratch in;
  std::string job = in.write("job.yaml",
                             "name: j\nmodel: gpt2-350m\nglobal_batch: 64\niterations: 10\n"
                             "memory_gb: 10\n");

  json plan(const std::string& cluster) const {
    return of({"plan", job, "--cluster", in.write("c.yaml", cluster)});
  }
  json estimate(const std::string& cluster, const std::string& stages) const {
    return of({"estimate", job, "--cluster", in.write("c.yaml", cluster), "--stages", stages,
               "--tensor-parallel", "2"});
  }

 private:
  /// The guesses of the document, which the text has as notes.
  static json of(std::vector<std::string> words) {
    const auto text = troupe::test::troupe(words);
    words.push_back("--json");
    const auto document = troupe::test::troupe(words);
    INFO(text.out << text.err << document.out << document.err);
    REQUIRE(text.status == 0);
    REQUIRE(document.status == 0);
    auto guesses = document.document()["guesses"];
    REQUIRE(guesses.is_array());
    for (const auto& g : guesses)
      CHECK_THAT(text.out, Contains("Note: " + g.get<std::string>() + "."));
    CHECK((text.out.find("guess") != std::string::npos) == !guesses.empty());
    return guesses;
  }
};

bool has(const json& guesses, const std::string& words) {
  for (const auto& g : guesses)
    if (g.get<std::string>().find(words) != std::string::npos) return true;
  return false;
}

}  // namespace

TEST_CASE("plan and estimate say which speeds are guesses, and which all-reduces") {
  const asked a;
  const std::string speed = "the speed of L4 is a guess", sums = "all-reduces among ";
  const auto pcie = cluster_of("L4", "pcie4");
  CHECK(has(a.plan(pcie), speed));
  CHECK(has(a.plan(pcie), sums));
  CHECK(has(a.estimate(pcie, "L4:24"), speed));
  CHECK(has(a.estimate(pcie, "L4:24"), sums));
  // Neither, where the type's runs and the link's rates are published.
  const auto nvlink = cluster_of("A100-80GB", "nvlink");
  CHECK(a.plan(nvlink).empty());
  CHECK(a.estimate(nvlink, "A100-80GB:24").empty());
  // A measurement of the node, or of trainings on the type, takes its guess away.
  const auto measured =
      cluster_of("L4", "{gbps: 252, latency_us: 3, group_rates: [[2, 150], [4, 100]]}");
  CHECK_FALSE(has(a.plan(measured), sums));
  CHECK_FALSE(has(a.estimate(measured, "L4:24"), sums));
  const auto given = pcie + "gpus:\n  L4: {efficiency: 0.4}\n";
  CHECK_FALSE(has(a.plan(given), speed));
  CHECK_FALSE(has(a.estimate(given, "L4:24"), speed));
  CHECK(has(a.plan(given), sums));
}
