#include <catch2/catch.hpp>

#include <algorithm>

#include "planners/model/declared_memory.hpp"
#include "planners/model/model_chain.hpp"
#include "planners/model/stage_memory.hpp"
#include "planners/plans/has.hpp"
#include "planners/sample.hpp"

using namespace troupe;
using namespace troupe::planners;

TEST_CASE("MARP's bytes of GPT2-7B at batch 2 match the paper") {
  const auto gb = [](std::uint32_t d, std::uint32_t t) {
    return marp_memory(sample::gpt2_7b, 2, d, t).total() / bytes_per_gb;
  };
  CHECK(gb(1, 4) == Approx(40.23).margin(0.005));
  CHECK(gb(2, 4) == Approx(36.74).margin(0.005));
  CHECK(gb(1, 8) == Approx(21.46).margin(0.005));
  CHECK(gb(2, 2) == Approx(72.14).margin(0.005));
}

TEST_CASE("on nodes of four A100-40GB, GPT2-7B at batch 2 takes eight GPUs with d 2 and t 4") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 3, 4);
  const auto plans = marp(c, sample::job(sample::gpt2_7b, 2));
  REQUIRE(plans);
  const idle_index idle(c);
  const auto choice = has(c, idle, *plans);
  REQUIRE(choice);
  const auto& how = (*plans)[choice->plan];
  CHECK(how.data_parallel == 2);
  CHECK(how.tensor_parallel == 4);
  CHECK(choice->where == allocation{{2, 4}, {0, 4}});
}

TEST_CASE("MARP's memory equals the paper's formula to the last bit, for random models") {
  random_source random{7};
  for (int i = 0; i < 1000; ++i) {
    model m;
    m.hidden = 64 * static_cast<std::uint32_t>(1 + random.below(256));
    m.layers = static_cast<std::uint32_t>(1 + random.below(120));
    m.heads = 1U << random.below(7);
    m.sequence = 1U << (7 + random.below(7));
    m.vocabulary = static_cast<std::uint32_t>(1000 + random.below(200'000));
    const auto batch = static_cast<std::uint32_t>(1 + random.below(2048));
    const auto d = static_cast<std::uint32_t>(1 + random.below(64));
    const auto tensor = 1U << random.below(5);
    const double V = m.vocabulary, h = m.hidden, l = m.layers, s = m.sequence, a = m.heads,
                 t = tensor, b = (batch + d - 1) / d;
    const double formula = 20 * (V * h + l * (12 * h * h + 13 * h)) / t +
                           s * b * h * l * (10 + 24 / t + 5 * a * s / (h * t));
    CHECK(marp_memory(m, batch, d, tensor).total() == formula);
    const auto parts = marp_memory(m, batch, d, tensor);
    CHECK(parts.weights == 2 * marp_parameters(m) / t);
    CHECK(parts.optimizer == 12 * marp_parameters(m) / t);
  }
}

TEST_CASE("a range of the chain is the sum of its pieces, and the whole chain is the model") {
  for (const auto* family : {"gpt", "llama", "bert", "vit"})
    for (const bool tied : {true, false}) {
      model m = sample::gpt2_small;
      m.family = family;
      m.layers = 5;
      m.tied_head = tied;
      if (m.family == "llama") m.kv_heads = 4;
      const model_chain chain{m};
      const auto each = expand(m);  // with the embedding apart
      REQUIRE(chain.size() == 2 * m.layers + 1);
      for (std::uint32_t first = 0; first < chain.size(); ++first)
        for (std::uint32_t count = 1; first + count <= chain.size(); ++count) {
          double flops = first == 0 ? each[0].flops : 0;
          double parameters = first == 0 ? each[0].parameters : 0;
          for (auto i = first; i < first + count; ++i) {
            flops += each[i + 1].flops;
            parameters += each[i + 1].parameters;
          }
          const auto range = chain.range(first, count);
          CHECK(range.flops.for_one_of(1) == flops);
          CHECK(range.parameters.for_one_of(1) == parameters);
        }
      const auto all = chain.range(0, chain.size());
      CHECK(all.parameters.for_one_of(1) == shape_of(m).parameters);
      CHECK(all.flops.for_one_of(1) == shape_of(m).forward_flops);
      const double s = m.sequence, h = m.hidden, a = m.heads;
      CHECK(all.kept_bytes.for_one_of(1) == m.layers * (34 * s * h + 5 * a * s * s));
      CHECK(all.kept_bytes.for_one_of(4) ==
            m.layers * (10 * s * h + (24 * s * h + 5 * a * s * s) / 4));
      const bool has_table_of_words = m.family != "vit";
      CHECK(chain.tied_parameters() ==
            (tied && has_table_of_words ? double{1} * m.vocabulary * m.hidden : 0));
    }
}

namespace {

job_spec program(const model& m, std::uint32_t batch, const memory_options& o) {
  auto job = sample::job(m, batch);
  job.memory = o;
  return job;
}

template <class Set>
memory_options with(Set set) {
  memory_options o;
  set(o);
  return o;
}

/// A model of 7.5 billion parameters, as in the ZeRO paper's example.
model zero_example() {
  model m;
  m.name = "7.5b", m.family = "wide-resnet";
  m.operators = {{"all", 1e12, 7.5e9, 0}};
  return m;
}

model llama_7b() {
  model m;
  m.name = "llama-7b", m.family = "llama", m.tied_head = false;
  m.hidden = 4096, m.layers = 32, m.heads = 32, m.intermediate = 11008;
  m.sequence = 2048, m.vocabulary = 32000;
  return m;
}

}  // namespace

TEST_CASE("each ZeRO stage leaves the bytes of states that its paper prints") {
  const double printed[] = {120, 31.4, 16.6, 1.9};
  for (std::uint32_t stage = 0; stage < 4; ++stage) {
    const auto m =
        program_memory(program(zero_example(), 64, with([&](auto& o) { o.zero = stage; })), 64, 1);
    CHECK((m.weights + m.gradients + m.optimizer) / bytes_per_gb ==
          Approx(printed[stage]).margin(0.05));
  }
}

TEST_CASE("LoRA trains only its adapters' parameters, and holds states for no others") {
  auto job = program(llama_7b(), 1, with([](auto& o) { o.lora_rank = 16; }));
  CHECK(trained_parameters(job) == 39'976'960);
  const auto m = program_memory(job, 1, 1);
  CHECK(m.optimizer == Approx(12 * 39'976'960.0));
  CHECK(m.weights == Approx(2 * (shape_of(job.model).parameters + 39'976'960.0)));
  job.memory->lora_targets = "attention";
  CHECK(trained_parameters(job) == 16'777'216);
}

TEST_CASE(
    "checkpointing, precision, optimizer and micro-batch each change their part of the memory") {
  const auto of = [](const memory_options& o) {
    return program_memory(program(sample::gpt2_7b, 8, o), 2, 1);
  };
  const auto plain = of(with([](auto& o) { o.micro_batch = 1; }));
  const double s = sample::gpt2_7b.sequence, h = sample::gpt2_7b.hidden;
  const double l = sample::gpt2_7b.layers, a = sample::gpt2_7b.heads;
  CHECK(plain.activations == Approx(s * h * l * (34 + 5 * a * s / h)));
  const auto selective = of(with([](auto& o) {
    o.checkpointing = "selective";
    o.micro_batch = 1;
  }));
  CHECK(selective.activations == Approx(s * h * (34 * l + 5 * a * s / h)));
  const auto full = of(with([](auto& o) {
    o.checkpointing = "full";
    o.micro_batch = 1;
  }));
  // Beside the layer at work are gradients of what its MLP multiplies (16) and of the stream (4).
  CHECK(full.activations == Approx(s * h * (2 * l + 34 + 20 + 5 * a * s / h)));
  CHECK(of({}).activations == Approx(4 * plain.activations));
  CHECK(of(with([](auto& o) {
          o.precision = "fp32";
          o.micro_batch = 1;
        })).activations == Approx(2 * plain.activations));
  CHECK(of(with([](auto& o) { o.optimizer = "sgd"; })).optimizer == Approx(plain.optimizer / 3));
  CHECK(of(with([](auto& o) { o.optimizer = "adam8bit"; })).optimizer ==
        Approx(plain.optimizer / 2));
  CHECK(of(with([](auto& o) {
          o.zero = 3;
          o.micro_batch = 1;
        })).buffers > plain.buffers);
}

TEST_CASE("a job with declared memory gets GPUs by that, under every split") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 3, 4);
  c.settings.memory_headroom = 0.1;
  const auto plans = marp(c, program(sample::gpt2_7b, 2, with([](auto& o) { o.gb = 30; })));
  REQUIRE(plans);
  for (const auto& p : *plans) CHECK(p.bytes_per_gpu == 30e9);
  const auto none = marp(c, program(sample::gpt2_7b, 2, with([](auto& o) { o.gb = 50; })));
  REQUIRE_FALSE(none);
  CHECK(none.error().code == reason::kind::infeasible);
}

TEST_CASE("a model too large for one GPU needs no tensor parallelism once its states are sharded") {
  cluster c;
  sample::add_nodes(c, sample::a100_40, 2, 8);
  CHECK_FALSE(marp(c, program(llama_7b(), 16, with([](auto& o) {
                                o.checkpointing = "full";
                                o.micro_batch = 1;
                              })))
                  ->front()
                  .tensor_parallel == 1);
  const auto sharded = marp(c, program(llama_7b(), 16, with([](auto& o) {
                                         o.zero = 3;
                                         o.checkpointing = "full";
                                         o.micro_batch = 1;
                                       })));
  REQUIRE(sharded);
  const auto alone = [](const plan& p) { return p.tensor_parallel == 1; };
  CHECK(std::ranges::any_of(*sharded, alone));
}
