#include <catch2/catch.hpp>

#include "planners/cost/program_time.hpp"
#include "planners/model/model_chain.hpp"
#include "planners/sample.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

plan split(std::uint32_t d, std::uint32_t t) {
  plan out;
  out.data_parallel = d;
  out.tensor_parallel = t;
  return out;
}

model of_family(std::string family, std::uint32_t h, std::uint32_t l, std::uint32_t a,
                std::uint32_t s, std::uint32_t v) {
  auto m = sample::gpt(family, h, l, a, s, v);
  m.family = std::move(family);
  return m;
}

}  // namespace

TEST_CASE("parameters match those of the published models exactly") {
  CHECK(shape_of(sample::gpt2_small).parameters == 124'439'808);  // gpt2
  auto llama = of_family("llama", 4096, 32, 32, 4096, 32000);
  llama.intermediate = 11008;
  llama.tied_head = false;
  CHECK(shape_of(llama).parameters == 6'738'415'616);  // Llama-2-7B
  auto mistral = of_family("llama", 4096, 32, 32, 4096, 32000);
  mistral.intermediate = 14336;
  mistral.kv_heads = 8;
  mistral.tied_head = false;
  CHECK(shape_of(mistral).parameters == 7'241'732'096);  // Mistral-7B-v0.1
  CHECK(shape_of(of_family("bert", 768, 12, 12, 512, 30522)).parameters ==
        110'106'428);  // bert-base, pre-training
  CHECK(shape_of(of_family("vit", 768, 12, 12, 197, 1000)).parameters ==
        86'567'656);  // vit-base-patch16-224
}

TEST_CASE("a model's operators add up to its totals") {
  for (const auto& m :
       {sample::gpt2_7b, of_family("llama", 512, 4, 8, 256, 1000),
        of_family("bert", 768, 12, 12, 512, 30522), of_family("vit", 768, 12, 12, 197, 1000)}) {
    const auto shape = shape_of(m);
    const auto chain = expand(m);
    REQUIRE(chain.size() == 2 + 2 * m.layers);
    model_operator sum;
    for (const auto& op : chain) {
      sum.flops += op.flops;
      sum.parameters += op.parameters;
    }
    CHECK(sum.flops == Approx(shape.forward_flops).epsilon(1e-12));
    CHECK(sum.parameters == Approx(shape.parameters).epsilon(1e-12));
    model given = m;
    given.operators = chain;
    CHECK(shape_of(given).parameters == Approx(shape.parameters).epsilon(1e-12));
    CHECK(shape_of(given).forward_flops == Approx(shape.forward_flops).epsilon(1e-12));
  }
}

TEST_CASE("the time of an iteration matches a computation by hand") {
  // h 1000, l 2, s 100, V 500: a layer is 24*100*1e6 + 4*1e4*1000 = 2.44e9 FLOPs, the head 1e8.
  const auto m = sample::gpt("hand", 1000, 2, 10, 100, 500);
  const double forward = 2 * 2.44e9 + 2 * 100 * 1000.0 * 500;
  CHECK(shape_of(m).forward_flops == forward);

  cluster c;
  auto gpu = sample::gpu("G", 40, 100, 2.0);  // 45 % of 100 TFLOPS
  sample::add_nodes(c, gpu, 2, 4);  // pcie 25 GB/s 5 us inside, ethernet 12.5 GB/s 10 us outside
  const auto job = sample::job(m, 8);
  const double one = 3 * forward / 45e12;  // a sample on one GPU

  SECTION("one GPU only computes") {
    const auto e = estimate_iteration(c, job, split(1, 1), {{0, 1}});
    CHECK(e.compute_s == Approx(8 * one));
    CHECK(e.iteration_s == Approx(8 * one));
    CHECK(e.samples_per_s == Approx(1 / one));
    CHECK(e.cost_per_hour == 2.0);
  }
  SECTION("tensor parallel in a node: 4 all-reduces a layer over intra") {
    const auto e = estimate_iteration(c, job, split(1, 4), {{0, 4}});
    CHECK(e.compute_s == Approx(8 * one / 4));
    const double bytes = 2.0 * 8 * 100 * 1000;
    CHECK(e.tensor_s == Approx(8 * (2 * 0.75 * bytes / 25e9 + 6 * 5e-6)));
    CHECK(e.data_s == 0);
  }
  SECTION("a tensor group that crosses nodes goes over inter") {
    const auto e = estimate_iteration(c, job, split(1, 4), {{0, 2}, {1, 2}});
    const double bytes = 2.0 * 8 * 100 * 1000;
    CHECK(e.tensor_s == Approx(8 * (2 * 0.75 * bytes / 12.5e9 + 6 * 10e-6)));
  }
  SECTION("two tensor groups, each in its node, stay on intra; their gradients share the way out") {
    const auto e = estimate_iteration(c, job, split(2, 4), {{0, 4}, {1, 4}});
    const double bytes = 2.0 * 4 * 100 * 1000;
    CHECK(e.tensor_s == Approx(8 * (2 * 0.75 * bytes / 25e9 + 6 * 5e-6)));
    const double gradients = 2 * shape_of(m).parameters / 4;
    const double ring = 2 * 0.5 * gradients * 4 / 12.5e9 + 2 * 10e-6;
    const double hidden = 0.5 * (2.0 / 3) * e.compute_s;
    CHECK(e.data_s == Approx(ring - hidden));
  }
  SECTION("data parallel in a node") {
    const auto e = estimate_iteration(c, job, split(4, 1), {{0, 4}});
    CHECK(e.compute_s == Approx(2 * one));
    const double ring = 2 * 0.75 * 2 * shape_of(m).parameters / 25e9 + 6 * 5e-6;
    CHECK(e.data_s == Approx(ring - 0.5 * (2.0 / 3) * e.compute_s));
    CHECK(e.iteration_s == Approx(e.compute_s + e.data_s));
    CHECK(e.cost_per_hour == 8.0);
  }
  SECTION("a batch that does not divide waits for the fullest replica") {
    const auto e = estimate_iteration(c, job, split(3, 1), {{0, 3}});
    CHECK(e.compute_s == Approx(3 * one));
  }
  SECTION("mixed types run at the slowest one's speed") {
    sample::add_nodes(c, sample::gpu("slow", 40, 50, 1.0), 1, 4);
    const auto e = estimate_iteration(c, job, split(2, 1), {{0, 1}, {2, 1}});
    CHECK(e.compute_s == Approx(4 * 2 * one));
    CHECK(e.cost_per_hour == 3.0);
  }
  SECTION("between datacenters the WAN counts") {
    c.datacenters.push_back({"far", ""});
    c.nodes[1].datacenter = 1;
    c.wan.push_back({0, 1, 40, 5, 0.3});
    const auto e = estimate_iteration(c, job, split(2, 1), {{0, 1}, {1, 1}});
    const double ring = 2 * 0.5 * 2 * shape_of(m).parameters / 0.625e9 + 2 * 20e-3;
    CHECK(e.data_s == Approx(ring - 0.5 * (2.0 / 3) * e.compute_s));
  }
  SECTION("on a type, the plan is packed tightly") {
    const auto packed =
        estimate_iteration(c, job, split(2, 4), pack(c, nodes_of_type(c, 0), split(2, 4).gpus()));
    const auto placed = estimate_iteration(c, job, split(2, 4), {{0, 4}, {1, 4}});
    CHECK(packed.iteration_s == placed.iteration_s);
  }
}
