// The Crius paper's Tables 1 and 2 and Figures 12 to 21: README.md. Standard output has only
// results in virtual time.
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "crius/figures.hpp"
#include "messages/base/time.hpp"
#include "planners/cluster/gpu_pools.hpp"
#include "planners/model/model_chain.hpp"

namespace {

void table1() {
  fmt::print("Table 1: the simulated cluster, paper / here\n  {:12}{:>16}{:>14}{:>16}\n", "GPU",
             "memory, GiB", "nodes", "GPUs a node");
  const struct {
    const char* gpu;
    std::uint32_t memory_gib, nodes, node_gpus;
  } paper[] = {{"A100-40GB", 40, 80, 4},
               {"A40", 48, 160, 2},
               {"A10", 24, 160, 2},
               {"V100-32GB", 32, 20, 16}};
  const auto c = cluster_named("crius-sim");
  const auto pools = planners::pools_of(*c, planners::idle_index{*c});
  for (const auto& p : pools)
    for (const auto& row : paper)
      if (c->gpus[p.gpu].name == row.gpu)
        fmt::print("  {:12}{:>16}{:>14}{:>16}\n", row.gpu,
                   fmt::format("{} / {:.0f} GB", row.memory_gib, c->gpus[p.gpu].memory_gb),
                   fmt::format("{} / {}", row.nodes, p.nodes.size()),
                   fmt::format("{} / {}", row.node_gpus, p.node_gpus));
}

void table2() {
  fmt::print("\nTable 2: parameters in billions\n  {:18}{:>8}{:>8}\n", "model", "paper", "here");
  double max = 0;
  for (const auto& m : table2_models) {
    const double here = planners::shape_of(model_named(m.name)).parameters / 1e9;
    max = std::max(max, std::abs(here / m.billions - 1));
    fmt::print("  {:18}{:8.2f}{:8.2f}\n", m.name, m.billions, here);
  }
  compared.push_back({"Table 2: parameters", "0.5 to 27 billion",
                      fmt::format("at most {:.1f} % off", 100 * max),
                      "layers and widths are not published"});
}

}  // namespace

/// example_crius [--long] [PHILLY.csv [HOURS]]
int main(int argc, char** argv) {
  extent e{{512}, 5, 8};
  int next = 1;
  if (next < argc && std::strcmp(argv[next], "--long") == 0) {
    e = {{256, 512, 1024}, 10, 16};
    ++next;
  }
  table1();
  table2();
  figures12_and13(e);
  figure14(e);
  figures16_17_and20(fmt::format("philly-6h x {}", e.copies),
                     superposed(trace_named("philly-6h"), e.copies, 6));
  if (next < argc) {
    const double hours = next + 1 < argc ? std::atof(argv[next + 1]) : 168;
    figures16_17_and20(
        fmt::format("Philly, {:g} hours", hours),
        must(formats::import_jobs("philly", argv[next], {"2017-10-16", hours, {}})).rows);
  }
  figure19(e);
  figure20(e);
  figure21(e);
  compared.push_back({"18: Helios Venus, Alibaba PAI", "JCT -64.7, -66.3 %", "not run",
                      "the traces are not available to us"});
  print_compared(62, 20, 34);
}
