#include <catch2/catch.hpp>

#include "frenzy/megatron_memory.hpp"
#include "planners/model/declared_memory.hpp"
#include "planners/model/job_memory.hpp"
#include "planners/model/model_chain.hpp"
#include "planners/model/stage_memory.hpp"
#include "planners/sample.hpp"

using namespace troupe;
using namespace troupe::planners;

namespace {

model of_outputs(const std::vector<double>& outputs) {
  model m;
  m.name = "ops";
  for (const double bytes : outputs) m.operators.push_back({"op", 1e9, 500, bytes});
  return m;
}

job_spec declared(const model& m, std::uint32_t batch, const memory_options& o = {}) {
  auto job = sample::job(m, batch);
  job.memory = o;
  return job;
}

memory_options trained_with(std::string precision, std::string optimizer) {
  memory_options o;
  o.precision = std::move(precision);
  o.optimizer = std::move(optimizer);
  return o;
}

}  // namespace

TEST_CASE("bytes per parameter follow from precision and optimizer") {
  struct row {
    const char *precision, *optimizer;
    double weight, gradient, states;
  };
  for (const row& r : std::vector<row>{{"fp32", "adam", 4, 4, 8},
                                       {"fp32", "momentum", 4, 4, 4},
                                       {"fp32", "sgd", 4, 4, 0},
                                       {"fp32", "adam8bit", 4, 4, 2},
                                       {"bf16", "adam", 2, 2, 4},
                                       {"bf16", "momentum", 2, 2, 2},
                                       {"bf16", "sgd", 2, 2, 0},
                                       {"bf16", "adam8bit", 2, 2, 2},
                                       {"mixed", "adam", 2, 2, 12},
                                       {"mixed", "momentum", 2, 2, 8},
                                       {"mixed", "sgd", 2, 2, 4},
                                       {"mixed", "adam8bit", 2, 2, 6}}) {
    CAPTURE(r.precision, r.optimizer);
    const auto job = declared(of_outputs({1, 1}), 1, trained_with(r.precision, r.optimizer));
    const auto parts = program_memory(job, 1, 2);
    CHECK(parts.weights == r.weight * 1000 / 2);
    CHECK(parts.gradients == r.gradient * 1000 / 2);
    CHECK(parts.optimizer == r.states * 1000 / 2);
  }
}

TEST_CASE("each ZeRO stage divides one more of the states among the replicas") {
  for (std::uint32_t zero = 0; zero <= 3; ++zero) {
    auto o = trained_with("mixed", "adam");
    o.zero = zero;
    const auto parts = program_memory(declared(of_outputs({1, 1}), 4, o), 4, 1);
    CHECK(parts.optimizer == 12000.0 / (zero >= 1 ? 4 : 1));
    CHECK(parts.gradients == 2000.0 / (zero >= 2 ? 4 : 1));
    CHECK(parts.weights == 2000.0 / (zero >= 3 ? 4 : 1));
    // All gradients fit a bucket; stages 1 and 2 update a quarter of the parameters with gradients
    // in single precision; stage 3 gathers two of the two operators.
    CHECK(parts.buffers == 2000.0 + (zero == 3 ? 2000 : zero > 0 ? 1000 : 0));
  }
  CHECK(program_memory(declared(of_outputs({1, 1}), 4), 1, 1).buffers == 0);
}

TEST_CASE(
    "flash kernels store no attention matrices or dropout masks, eager ones also autocast's "
    "copies") {
  const auto of = [](std::string kernels, std::string precision) {
    auto job = declared(sample::gpt("m", 64, 3, 4, 32, 1000), 1, trained_with(precision, "adam"));
    job.kernels = std::move(kernels);
    return program_memory(job, 1, 2);
  };
  const double sh = 32 * 64, matrix = 4 * 32 * 32 / 2.0, parameters = of("", "mixed").weights / 2;
  CHECK(of("flash", "mixed").activations == 3 * sh * (8 + 24 / 2));
  CHECK(of("eager", "mixed").activations == 3 * (sh * (14 + 24 / 2) + 7 * matrix));
  CHECK(of("eager", "mixed").buffers == 2 * parameters);  // copies in half precision
  CHECK(of("eager", "fp32").activations == of("fused", "fp32").activations);
  CHECK(of("eager", "fp32").buffers == 0);
}

TEST_CASE("gradient buckets are two of 25 MiB, or all gradients if those are smaller") {
  auto m = of_outputs({1});
  m.operators[0].parameters = 1e9;
  const auto parts = program_memory(declared(m, 2, trained_with("fp32", "sgd")), 2, 1);
  CHECK(parts.buffers == 2 * 25 * 1024 * 1024);
}

TEST_CASE("a model of operators keeps all outputs, or twice the largest if it recomputes") {
  const auto kept = [](const std::vector<double>& outputs, std::string checkpointing) {
    memory_options o;
    o.checkpointing = std::move(checkpointing);
    const auto parts = program_memory(declared(of_outputs(outputs), 1, o), 1, 1);
    CHECK(parts.ends == 0);
    return parts.activations;
  };
  CHECK(kept({10, 30, 50, 20}, "none") == 110);
  CHECK(kept({10, 30, 50, 20}, "full") == 100);
  CHECK(kept({10, 30, 20}, "full") == 60);
  CHECK(kept({10, 30, 20}, "selective") == 60);
}

TEST_CASE("a replica has as many samples in flight as its micro-batch") {
  const auto in_flight = [](std::uint32_t batch, std::uint32_t data, std::uint32_t micro_batch,
                            std::uint32_t microbatches) {
    memory_options o;
    o.micro_batch = micro_batch;
    auto job = declared(of_outputs({1}), batch, o);
    if (microbatches > 0) job.microbatches = microbatches;
    return program_memory(job, data, 1).activations;
  };
  CHECK(in_flight(10, 3, 0, 0) == 4);  // the largest replica's
  CHECK(in_flight(10, 3, 3, 0) == 3);
  CHECK(in_flight(10, 3, 8, 0) == 4);
  CHECK(in_flight(10, 3, 0, 2) == 2);
  CHECK(in_flight(10, 3, 0, 8) == 1);
}

TEST_CASE("a transformer's end keeps the inputs of its last norm and head, and its logits") {
  const auto m = sample::gpt("m", 64, 3, 4, 32, 1000);
  const auto parts = program_memory(declared(m, 2), 1, 2);
  CHECK(parts.ends == 2 * 32 * (4.0 * 64 + 8.0 * 1000 / 2));
  CHECK(parts.activations ==
        2 * 3 * (32 * 64 * (10 + 24 / 2) + 5.0 * 4 * 32 * 32 / 2));  // samples, layers, one layer
}

TEST_CASE("LoRA's adapters have rank rows and rank columns for each adapted matrix") {
  memory_options o;
  o.lora_rank = 2;
  o.lora_targets = "all";
  auto m = sample::gpt("m", 64, 3, 4, 32, 1000);
  CHECK(trained_parameters(declared(m, 1, o)) == 2 * 3 * (4 * 64 + 4 * 64 + 2 * (64 + 256)));
  m.family = "llama";
  m.kv_heads = 2;  // keys and values are half as wide
  m.intermediate = 100;
  CHECK(trained_parameters(declared(m, 1, o)) == 2 * 3 * (4 * 64 + 2 * (64 + 32) + 3 * (64 + 100)));
  o.lora_targets = "attention";
  CHECK(trained_parameters(declared(m, 1, o)) == 2 * 3 * (4 * 64 + 2 * (64 + 32)));
  CHECK(trained_parameters(declared(m, 1)) == shape_of(m).parameters);
}

TEST_CASE("a backward takes one forward more with full recomputation, and one less under LoRA") {
  memory_options o;
  const auto forwards = [&] { return backward_forwards(declared(sample::gpt2_small, 1, o), 2); };
  CHECK(forwards() == 2);
  o.checkpointing = "full";
  CHECK(forwards() == 3);
  o.lora_rank = 4;
  CHECK(forwards() == 2);
  o.checkpointing = "none";
  CHECK(forwards() == 1);
  CHECK(backward_forwards(sample::job(sample::gpt2_small, 1), 2) == 2);
}

TEST_CASE("headroom is added to computed memory, not to declared memory") {
  auto job = declared(of_outputs({1}), 1);
  CHECK(program_bytes(job, 1, 1, 0.25) == 1.25 * program_memory(job, 1, 1).total());
  job.memory->gb = 30;
  CHECK(program_bytes(job, 1, 1, 0.25) == 30e9);
}

TEST_CASE("Megatron-LM pads the vocabulary to 128 per rank, and replicates norms and positions") {
  const auto parts = frenzy::megatron_memory(sample::gpt2_small, 3, 1);
  // GPT-2 has 124,439,808 parameters, and 47 rows of padding here.
  CHECK(parts.weights == 2 * (124'439'808.0 + 47 * 768));
  CHECK(parts.gradients == 4 * (124'439'808.0 + 47 * 768));
  CHECK(parts.optimizer == 12 * (124'439'808.0 + 47 * 768));
  CHECK(parts.activations == 1024.0 * 3 * 768 * 12 * (34 + 5 * 12 * 1024 / 768.0));
  CHECK(parts.ends == 1024.0 * 3 * (5 * 768 + 4 * 50304.0));
  const auto half = frenzy::megatron_memory(sample::gpt2_small, 3, 2);
  const double layer = (12 * 768.0 * 768 + 7 * 768) / 2 + 6 * 768;
  CHECK(half.weights == 2 * (25216.0 * 768 + 1024 * 768 + 12 * layer + 2 * 768));
  CHECK(half.activations == 1024.0 * 3 * 768 * 12 * (22 + 5 * 12 * 1024 / (768.0 * 2)));
}

TEST_CASE("MARP counts no activations of the model's ends, and operators' outputs undivided") {
  const auto parts = marp_memory(of_outputs({10, 30}), 10, 3, 2);
  CHECK(parts.weights == 2 * 1000.0 / 2);
  CHECK(parts.activations == 4 * 40);
}

TEST_CASE(
    "a stage that recomputes keeps the inputs of its micro-batches, and one micro-batch whole") {
  const stage_part p{0, 2, 1, 0, 100, 1000, 10};
  const stage_load load{3, 4};
  const job_spec job;
  CHECK(memory_of(job, p, load).inputs == 3 * 4 * 10);
  CHECK(memory_of(job, p, load).total() == 100 * 20 + 120 + 3 * 1000);
  CHECK(memory_of(job, p, {.rows = 3, .held = 4, .recompute = false}).total() ==
        100 * 20 + 3 * 4 * 1000);
}

TEST_CASE("forward FLOPs are two per weight and sample, plus those of attention") {
  const double h = 64, s = 32, v = 1000, l = 3;
  auto m = sample::gpt("m", 64, 3, 4, 32, 1000);
  const double layers = l * (24 * s * h * h + 4 * s * s * h);
  CHECK(shape_of(m).forward_flops == layers + 2 * s * h * v);
  m.family = "bert";  // a dense layer before the head; pooler and next sentence on one token
  CHECK(shape_of(m).forward_flops ==
        layers + 2 * s * h * v + 2 * s * h * h + 2 * h * h + 2 * h * 2);
  m.family = "vit";
  CHECK(shape_of(m).forward_flops == layers + 2 * s * 768 * h + 2 * h * v);
  m.family = "llama";
  m.kv_heads = 2;
  m.intermediate = 100;
  CHECK(shape_of(m).forward_flops ==
        l * (2 * s * (2 * h * h + 2 * h * h / 2 + 3 * h * 100) + 4 * s * s * h) + 2 * s * h * v);
}

TEST_CASE("operators pass on half-precision activations, and reduce twice per layer") {
  auto m = sample::gpt("m", 64, 3, 4, 32, 1000);
  CHECK(shape_of(m).reduces == 6);
  CHECK(shape_of(m).reduced_bytes == 6 * 2 * 32 * 64);
  auto chain = expand(m);
  CHECK(chain.front().output_bytes == 2 * 32 * 64);
  CHECK(chain[1].output_bytes == 2 * 32 * 64);
  CHECK(chain.back().output_bytes == 2 * 32 * 1000);
  CHECK(chain[3].name == "layer 1 attention");
  m.family = "vit";
  CHECK(expand(m).back().output_bytes == 2 * 1000);  // of the class token
  const auto shape = shape_of(of_outputs({10, 30}));
  CHECK(shape.reduces == 2);
  CHECK(shape.reduced_bytes == 40);
}
