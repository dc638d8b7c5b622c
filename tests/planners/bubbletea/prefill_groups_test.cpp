#include <algorithm>
#include <catch2/catch.hpp>

#include "bubbletea/pipeline_overhead.hpp"
#include "formats/load/load.hpp"
#include "messages/base/units.hpp"
#include "planners/bubbletea/inference_memory.hpp"
#include "planners/bubbletea/prefill_groups.hpp"
#include "planners/bubbletea/prefill_times.hpp"

using namespace troupe;
using namespace troupe::planners;
using bubbletea::pipeline_overhead_s;

namespace {

served_layer llama_8b() {
  const auto m = formats::load_model(formats::configs_directory() / "models/llama3-8b.json");
  REQUIRE(m);
  const auto layer = served_layer_of(*m);
  REQUIRE(layer);
  return *layer;
}

gpu_type fast_gpu() {
  gpu_type g;
  g.name = "fast";
  g.fp16_tflops = 100;
  g.efficiency = 0.5;
  g.memory_gbytes_s = 1000;
  return g;
}

/// Stages over two datacenters; every stage of every pipeline on a node of its own.
struct laid_out {
  cluster c;
  pipeline_layout layout;

  laid_out(std::uint32_t stages, std::uint32_t pipelines) {
    c.gpus.push_back(fast_gpu());
    c.datacenters = {{"a", ""}, {"b", ""}};
    layout.stages = stages;
    layout.pipelines = pipelines;
    layout.parts.emplace_back(stages);
    layout.group_of.assign(pipelines, 0);
    for (std::uint32_t p = 0; p < pipelines; ++p)
      for (std::uint32_t s = 0; s < stages; ++s) {
        node n;
        n.name = "n" + std::to_string(c.nodes.size());
        n.datacenter = s < stages - stages / 2 ? 0 : 1;
        n.gpus = 1;
        n.intra = n.inter = {"lan", 80, 5};  // 10 GB/s
        layout.places.push_back({static_cast<node_index>(c.nodes.size()), {0}, n.datacenter});
        c.nodes.push_back(n);
      }
  }
  std::uint32_t datacenter(std::uint32_t device) const {
    return c.nodes[layout.places[device].node].datacenter;
  }
};

}  // namespace

TEST_CASE("a layer of Llama 3 8B has its parameters, its cache and its hidden vectors") {
  const auto layer = llama_8b();
  CHECK(layer.layers == 32);
  CHECK(layer.parameters ==
        218'112'000);  // 2 x 4096^2 + 2 x 4096 x 1024 + 3 x 4096 x 14336 + 2 x 4096
  CHECK(layer.weight_bytes() == 436'224'000);
  CHECK(layer.kv_bytes == 4096);  // 8 of 32 heads: 1,024 keys and 1,024 values of two bytes
  CHECK(layer.hidden_bytes(8192) == 67'108'864);
}

TEST_CASE("models that do not generate text are not served") {
  for (const auto* name : {"vit.yaml", "bert-large.yaml", "moe-1.3b.yaml"}) {
    const auto m = formats::load_model(formats::configs_directory() / "models" / name);
    REQUIRE(m);
    const auto refused = served_layer_of(*m);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().text.find(m->name) != std::string::npos);
  }
}

TEST_CASE("the time of a prefill counts the FLOPs of the weights and of attention") {
  const auto layer = llama_8b();
  const auto rate = prefill_rate_of(layer, fast_gpu(), 0);
  double flops = 0;
  constexpr int cached = 100, tokens = 64;
  for (int i = 0; i < tokens; ++i)
    flops += 2 * layer.parameters + 4 * layer.hidden * (cached + i + 0.5);
  CHECK(prefill_s(rate, 3, tokens, cached) == Approx(3 * flops / 50e12));
}

TEST_CASE("chunks of a prompt take as long as the whole, but for what small operations lose") {
  const auto layer = llama_8b();
  const auto whole = [&](double half, std::initializer_list<double> chunks) {
    const auto rate = prefill_rate_of(layer, fast_gpu(), half);
    double sum = 0, cached = 0;
    for (const auto n : chunks) sum += prefill_s(rate, 32, n, cached), cached += n;
    return sum;
  };
  CHECK(whole(0, {1000}) == Approx(whole(0, {300, 64, 636})));
  CHECK(whole(128, {1000}) < whole(128, {500, 500}));
  const auto rate = prefill_rate_of(layer, fast_gpu(), 256);
  const auto ideal = prefill_rate_of(layer, fast_gpu(), 0);
  CHECK(rate.layer_s(256, 0) == Approx(2 * ideal.layer_s(256, 0)));
}

TEST_CASE("decoding one sequence takes the reading of the weights, many their products") {
  const auto layer = llama_8b();
  const auto gpu = fast_gpu();
  CHECK(decode_s(layer, gpu, 32, 1, 1000) == Approx(32 * (436'224'000 + 4096 * 1000.0) / 1e12));
  const double flops = 2 * layer.parameters * 512 + 4 * 4096 * 512 * 10.0;
  CHECK(decode_s(layer, gpu, 32, 512, 5120) == Approx(32 * flops / 50e12));
}

TEST_CASE("Figure 13: 32 hops of 8,192 tokens take 85.9 ms at 200 Gbit/s") {
  const auto layer = llama_8b();
  CHECK(1e3 * pipeline_overhead_s(layer, 200, 8192, 32) == Approx(85.9).margin(0.05));
  CHECK(1e3 * pipeline_overhead_s(layer, 200, 8192, 31) == Approx(83.2).margin(0.05));
  CHECK(1e3 * pipeline_overhead_s(layer, 200, 8192, 16) == Approx(42.9).margin(0.06));
  CHECK(hop_s(layer, {"lan", 200, 7}, 8192) ==
        Approx(pipeline_overhead_s(layer, 200, 8192, 1) + 7e-6));
}

TEST_CASE(
    "a prefill pipeline consists of one stage's peers in one datacenter, with all layers in "
    "order") {
  const auto layer = llama_8b();
  for (std::uint32_t pipelines = 1; pipelines <= 7; ++pipelines)
    for (std::uint32_t depth = 1; depth <= pipelines; ++depth) {
      INFO(pipelines << " pipelines, depth " << depth);
      const laid_out x{5, pipelines};
      const auto groups = prefill_groups(x.c, x.layout, layer, {depth, 40e9, 4096, 512});
      REQUIRE(groups);
      const auto each_stage = pipelines / depth;
      REQUIRE(groups->size() == 5 * each_stage);
      std::vector<int> used(x.layout.places.size(), 0);
      for (std::size_t g = 0; g < groups->size(); ++g) {
        const auto& guests = (*groups)[g].guests;
        CHECK(guests.size() >= depth);
        std::uint32_t next_layer = 0;
        for (const auto& guest : guests) {
          ++used[guest.device];
          CHECK(guest.device % 5 == g / each_stage);
          CHECK(guest.device / 5 % each_stage == g % each_stage);
          CHECK(x.datacenter(guest.device) == x.datacenter(guests[0].device));
          CHECK(guest.first_layer == next_layer);
          CHECK(guest.layers + 1 > 32 / guests.size());
          CHECK(guest.layers <= 32 / guests.size() + 1);
          next_layer += guest.layers;
        }
        CHECK(next_layer == 32);
        if (guests.size() == 1) continue;
        CHECK((*groups)[g].hop_token_s == Approx(8192 / 10e9));
        CHECK((*groups)[g].hop_latency_s == Approx(5e-6));
      }
      CHECK(std::ranges::all_of(used, [](int n) { return n == 1; }));
    }
}

TEST_CASE("depth fit is the smallest whose layers fit beside the training") {
  const auto layer = llama_8b();
  const laid_out x{2, 8};
  for (const double gb : {0.4, 0.9, 1.8, 2.0, 2.5, 3.6, 4.0, 7.3, 7.8, 14.0, 14.5, 15.0, 20.0}) {
    INFO(gb << " GB");
    // By hand: a guest of n layers holds n x (weights + cache of 4,096 tokens) and hidden vectors.
    std::optional<std::uint32_t> smallest;
    for (std::uint32_t depth = 1; depth <= 8 && !smallest; ++depth) {
      const auto fewest = 8 / (8 / depth);
      const auto max_layers = (32 + fewest - 1) / fewest;
      if (max_layers * (436'224'000 + 4096.0 * 4096) + 4 * 4096.0 * 512 <= gb * 1e9)
        smallest = fewest;
    }
    const auto groups = prefill_groups(x.c, x.layout, layer, {{}, gb * 1e9, 4096, 512});
    REQUIRE(groups.has_value() == smallest.has_value());
    if (!groups) {
      CHECK(groups.error().text.find("weights") != std::string::npos);
      continue;
    }
    std::size_t fewest = 100;
    for (const auto& g : *groups) {
      fewest = std::min(fewest, g.guests.size());
      for (const auto& guest : g.guests)
        CHECK(inference_memory(layer, guest.layers, 4096, 512).total() <= gb * 1e9);
    }
    CHECK(fewest == *smallest);
  }
}

TEST_CASE("prefill pipelines that cannot be formed are refused with the reason") {
  const auto layer = llama_8b();
  laid_out x{2, 2};
  const auto deep = prefill_groups(x.c, x.layout, layer, {3u, 40e9, 4096, 512});
  REQUIRE_FALSE(deep);
  CHECK(deep.error().text ==
        "prefill pipelines of depth 3 need as many peers of a stage; the training has 2 pipelines");
  const auto small = prefill_groups(x.c, x.layout, layer, {1u, 10e9, 4096, 512});
  REQUIRE_FALSE(small);
  CHECK(small.error().text ==
        "32 of 32 layers on a GPU need 14.50 GB (weights 13.96, cache of 4096 tokens 0.54, hidden "
        "vectors 0.01); guests have 10.00 GB");
  x.layout.parts[0][1].tensor_parallel = 4;
  const auto shared = prefill_groups(x.c, x.layout, layer, {1u, 40e9, 4096, 512});
  REQUIRE_FALSE(shared);
  CHECK(shared.error().text.find("4 GPUs share a stage") != std::string::npos);
}
