#include <algorithm>
#include <catch2/catch.hpp>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/program.hpp"
#include "harness/shell.hpp"
#include "harness/source_dir.hpp"

// The objects that a policy in Python sees, against the records that they are views of.

using namespace troupe::test;

namespace {

/// The fields of a record, as its header lists them.
std::vector<std::string> fields_of(const std::string& header, const std::string& record) {
  const auto text = read_file(source_dir() + "/messages/domain/" + header);
  const auto begin = text.find("TROUPE_FIELDS(" + record + ",");
  REQUIRE(begin != std::string::npos);
  const auto list = text.substr(begin, text.find(')', begin) - begin);
  const std::regex word{R"(,\s*([a-z0-9_]+))"};
  std::vector<std::string> out;
  for (std::sregex_iterator at{list.begin(), list.end(), word}, end; at != end; ++at)
    out.push_back((*at)[1]);
  return out;
}

/// Plans a job by a policy whose decide() has these lines.
result planned(const std::string& lines) {
  const scratch in;
  const auto cluster = in.write(
      "cluster.yaml",
      "name: two\n"
      "datacenters:\n"
      "  - name: here\n    nodes:\n"
      "      - name: a\n        gpu: H100-80GB\n        gpus: 4\n        count: 2\n"
      "        nvlink_domain: 2\n"
      "        intra: {gbps: 3600, latency_us: 3, group_rates: [[2, 2400, 5], [4, 3000]]}\n"
      "        inter: {gbps: 48, latency_us: 50, rates: [[65536, 16.9], [8388608, 45.4]],\n"
      "                flow_gbps: 12}\n"
      "  - name: there\n    nodes:\n"
      "      - {name: b, gpu: V100-16GB, gpus: 1, intra: pcie3, inter: eth25}\n"
      "wan:\n"
      "  - {between: [here, there], rtt_ms: 20, node_gbps: 5, connection_gbps: 5, rates: [[65536, "
      "2], [1048576, "
      "5]]}\n");
  const auto job = in.write("job.yaml",
                            "name: one\nmodel: gpt2-350m\nglobal_batch: 8\niterations: 9\n"
                            "command: [\"true\"]\n");
  const auto policy = in.write("mine.py",
                               "import troupe\n\n\nclass Mine(troupe.Policy):\n"
                               "    name = \"views\"\n\n    def decide(self, s, random):\n" +
                                   lines +
                                   "        for job in s.waiting:\n"
                                   "            if at := s.place(job):\n"
                                   "                yield troupe.start(job, at.plan, at.where)\n");
  return troupe::test::troupe({"plan", job, "--cluster", cluster, "--policy", policy, "--json"});
}

}  // namespace

TEST_CASE("a policy in Python sees all fields of GPU types, nodes, links and plans") {
  // All but those that have another form there, or are no matter of a policy's.
  const struct {
    const char *object, *header, *record;
    std::set<std::string> left_out;
  } cases[] = {
      {"s.cluster.gpu_types[0]", "cluster.hpp", "gpu_type", {"profile"}},
      {"s.cluster.nodes[0]", "cluster.hpp", "node", {"address"}},
      {"s.cluster.nodes[0].inter", "cluster.hpp", "link", {}},
      {"s.cluster.wan[0]", "cluster.hpp", "wan_link", {}},
      {"s.waiting[0].plans[0]", "plan.hpp", "plan", {}},
      {"s.waiting[0].plans[0].stages", "plan.hpp", "plan_stage", {}},
  };
  std::string lines = "        missing = []\n";
  for (const auto& c : cases) {
    auto fields = fields_of(c.header, c.record);
    REQUIRE(fields.size() >= 5);
    for (const auto& name : c.left_out) REQUIRE(std::erase(fields, name) == 1);
    // A plan of a program has no stages to look at: their class has them.
    const std::string of =
        std::string{c.record} == "plan_stage" ? "__import__('_troupe_policies').Stage" : c.object;
    lines +=
        fmt::format("        missing += [f'{} {{n}}' for n in '{}'.split() if n not in dir({})]\n",
                    c.record, fmt::join(fields, " "), of);
  }
  const auto r = planned(lines + "        assert not missing, missing\n");
  INFO(r.out << r.err);
  CHECK(r.status == 0);
}

TEST_CASE("a policy in Python reads the rates of links, NVLink domains and a type's 8 bits") {
  const auto r = planned(
      "        h100, v100 = s.cluster.gpu_types\n"
      "        assert (h100.name, h100.fp8_tflops, v100.fp8_tflops) == ('H100-80GB', 1979, None)\n"
      "        assert h100.compute_capability == 9 and h100.tf32_tflops > h100.fp32_tflops\n"
      "        assert 0 < h100.efficiency < 1 and h100.kernel_us > 0 and 'NVIDIA' in h100.source\n"
      "        a, b, c = s.cluster.nodes\n"
      "        assert (a.nvlink_domain, b.nvlink_domain, c.nvlink_domain) == (0, 0, None)\n"
      "        assert (a.removed, a.emulate_speed) == (False, 1)\n"
      "        assert (a.intra.gbps, a.intra.latency_us, a.intra.rates) == (3600, 3, None)\n"
      "        assert [g[:2] for g in a.intra.group_rates] == [(2, 2400), (4, 3000)]\n"
      "        assert a.intra.group_rates[0][2] == 5\n"
      "        assert a.inter.rates == [(65536, 16.9), (8388608, 45.4)]\n"
      "        assert {gbps for _, gbps in a.inter.flow_rates} == {12}\n"
      "        assert (c.intra.name, c.inter.rates, c.inter.flow_rates) == ('pcie3', None, None)\n"
      "        w = s.cluster.wan[0]\n"
      "        assert len(s.cluster.wan) == 1 and {w.a, w.b} == {'here', 'there'}\n"
      "        assert (w.rtt_ms, w.node_gbps, w.jitter_ms, w.emulate) == (20, 5, 0, False)\n"
      "        assert w.rates == [(65536, 2), (1048576, 5)] and w.flow_rates is None\n"
      "        p = s.waiting[0].plans[0]\n"
      "        assert (len(p.stages), p.tensor_in_node) == (0, True)\n");
  INFO(r.out << r.err);
  CHECK(r.status == 0);
}
