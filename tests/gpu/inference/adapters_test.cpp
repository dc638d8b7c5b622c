#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "gpu/inference/adapter_folder.hpp"
#include "gpu/inference/batch_queue.hpp"
#include "gpu/inference/generate.hpp"
#include "gpu/inference/host_memory.hpp"
#include "gpu/inference/service.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;
using Catch::Contains;

// Adapters that are served beside their base: against a merged model, and against each alone.

namespace {

struct adapted_answer {
  std::vector<std::uint32_t> tokens;
  std::vector<double> values;  // log probabilities
  bool operator==(const adapted_answer&) const = default;
};

struct adapted_logits {
  adapted_answer answer;
  std::vector<float> logits;
};

std::unique_ptr<inference_device> device_of(const std::filesystem::path& folder,
                                            std::uint32_t pages, std::uint32_t threads = 1) {
  auto spec = whole_model(loaded(read_inference_model(folder)), pages);
  spec.weights = folder;
  spec.threads = threads;
  return loaded(make_cpu_inference_device(spec));
}

completion_request asked_for(std::uint32_t max_tokens, std::uint64_t seed) {
  completion_request r;
  r.max_tokens = max_tokens;
  r.how = {.temperature = 0.8, .seed = seed};
  return r;
}

adapted_logits alone(inference_device& d, const completion_request& what,
                     const std::vector<std::uint32_t>& prompt, const adapter_ref& adapter,
                     std::uint32_t chunk = 512) {
  generation g;
  g.what = what;
  g.what.prompt_tokens = static_cast<std::uint32_t>(prompt.size());
  g.prompt = prompt;
  g.chunk = chunk;
  g.keep_logits = true;
  g.adapter = adapter;
  completion out{g.what, {}, nullptr};
  auto made = loaded(generate(d, g, out));
  return {{out.tokens(), out.log_probabilities()}, std::move(made.logits)};
}

/// A queue and its device, with sequences of several adapters.
class adapted_batch {
 public:
  adapted_batch(inference_device& d, const batch_queue::limits& l)
      : device_{d}, queue_{l, d.free_pages()} {}

  sequence_id add(completion_request what, const std::vector<std::uint32_t>& prompt,
                  const adapter_ref& adapter) {
    const auto id = ++ids_;
    what.prompt_tokens = static_cast<std::uint32_t>(prompt.size());
    left_[id] = what.max_tokens;
    batch_sequence s{id, what, prompt, {}};
    s.adapter = adapter;
    queue_.add(std::move(s));
    return id;
  }
  void run() {
    for (queue_.admit(); !queue_.idle(); queue_.admit())
      execute(device_, queue_.next(), [this](const batch_result& r) { take(r); });
  }
  const adapted_answer& of(sequence_id id) { return answers_[id]; }
  const batch_queue& queue() const { return queue_; }

 private:
  void take(const batch_result& r) {
    if (r.failed) FAIL(r.failed->text);
    REQUIRE(r.next);
    auto& a = answers_[r.sequence];
    a.tokens.push_back(r.next->chosen.token);
    a.values.push_back(r.next->chosen.log_probability);
    queue_.took(r.sequence, r.next->chosen.token);
    if (--left_[r.sequence] == 0) queue_.end(r.sequence);
  }

  inference_device& device_;
  batch_queue queue_;
  std::map<sequence_id, adapted_answer> answers_;
  std::map<sequence_id, std::uint32_t> left_;
  sequence_id ids_ = 0;
};

/// Three of different ranks: of all matrices, of some, of those of one kind.
std::vector<adapter_ref> three_adapters(const inference_model& m) {
  const bool gpt2 = m.kind == inference_model::family::gpt2;
  using names = std::vector<std::string>;
  const names some = gpt2 ? names{"c_attn"} : names{"q_proj", "v_proj"},
              one = gpt2 ? names{"c_proj"} : names{"up_proj", "down_proj", "k_proj"};
  return {read_back(adapter_folder("first", random_adapter(m, 8, 1)), m),
          read_back(adapter_folder("second", random_adapter(m, 3, 2, some)), m),
          read_back(adapter_folder("third", random_adapter(m, 17, 3, one)), m)};
}

double largest(const std::vector<float>& values) {
  double max = 0;
  for (const auto v : values) max = std::max(max, std::abs(static_cast<double>(v)));
  return max;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double max = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    max = std::max(max, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return max;
}

}  // namespace

TEST_CASE("logits with an adapter are those of a model that it was merged into in double") {
  for (const auto& kind : small_models()) {
    INFO(kind.name);
    const auto base = model_folder(kind);
    const auto m = loaded(read_inference_model(base));
    auto files = random_adapter(m, 6, 4);
    files.config["use_rslora"] = true;
    files.config["lora_alpha"] = 3.5;
    const double scale = 3.5 / std::sqrt(6.0);
    const auto adapter = read_back(adapter_folder("merged-from", files), m);
    CHECK(adapter->scale == Approx(scale));
    const auto merged = merged_folder("merged", base, files, scale);
    const auto prompt = random_prompt(131, m.vocabulary, 9);
    const auto what = asked_for(6, 1);
    const auto by_adapter = alone(*device_of(base, 8), what, prompt, adapter);
    const auto by_merged = alone(*device_of(merged, 8), what, prompt, {});
    const auto by_base = alone(*device_of(base, 8), what, prompt, {});
    CHECK(by_adapter.answer.tokens == by_merged.answer.tokens);
    const auto size = largest(by_merged.logits);
    const auto rows = 131 * m.vocabulary;
    CHECK(largest_difference(by_adapter.logits, by_merged.logits) <= 1e-4 * size);
    CHECK(largest_difference({by_base.logits.begin(), by_base.logits.begin() + rows},
                             {by_merged.logits.begin(), by_merged.logits.begin() + rows}) >
          0.1 * size);
  }
}

TEST_CASE("16 sequences of three adapters and the base have the bits that each has alone") {
  for (const auto* name : {"gpt2", "llama", "qwen3"}) {
    INFO(name);
    const auto folder = model_folder(small_model_named(name));
    const auto m = loaded(read_inference_model(folder));
    auto adapters = three_adapters(m);
    adapters.insert(adapters.begin(), nullptr);
    constexpr std::size_t lengths[] = {1, 63, 64, 65, 127, 300};
    for (const std::uint32_t threads : {1, 3}) {
      const auto together = device_of(folder, 40, threads), one = device_of(folder, 8);
      adapted_batch batch{*together, {.running = 16, .prefill = 128}};
      std::vector<sequence_id> ids;
      std::vector<adapted_answer> expected_ones;
      for (std::uint64_t i = 0; i < 16; ++i) {
        // The same prompts for all adapters, in an order in which neighbours differ.
        const auto prompt = random_prompt(lengths[i / 4 + i % 3], m.vocabulary, i / 4 + i % 3);
        const auto what = asked_for(static_cast<std::uint32_t>(5 + i), i);
        const auto chunk = 64 * static_cast<std::uint32_t>(1 + 2 * (i % 3));
        ids.push_back(batch.add(what, prompt, adapters[i % 4]));
        expected_ones.push_back(alone(*one, what, prompt, adapters[i % 4], chunk).answer);
      }
      batch.run();
      for (std::size_t i = 0; i < 16; ++i) {
        INFO("sequence " << i << ", " << threads << " threads");
        CHECK(batch.of(ids[i]) == expected_ones[i]);
      }
      CHECK(expected_ones[0].tokens != expected_ones[1].tokens);
    }
  }
}

TEST_CASE("with an adapter the bits depend on no chunks, parts, company or suspensions") {
  const auto folder = model_folder(small_model_named("llama"));
  const auto m = loaded(read_inference_model(folder));
  const auto adapters = three_adapters(m);
  test::service s{folder};
  for (const std::size_t length : {1, 64, 65, 300}) {
    const auto prompt = random_prompt(length, m.vocabulary, length);
    serving_way plain;
    plain.adapter = adapters[0];
    const auto reference = s.serve(prompt, 5, plain);
    for (const std::uint32_t parts : {1, 2, 4})
      for (const std::uint32_t company : {0, 3, 12}) {
        serving_way way{192, parts, company, company == 3};
        way.adapter = adapters[0];
        way.company_adapters = {adapters[1], nullptr, adapters[0], adapters[2]};
        INFO(length << ", " << parts << " parts, " << company << " others");
        CHECK(s.serve(prompt, 5, way) == reference);
      }
  }
}

TEST_CASE("pages of a prompt begin no prompt of another adapter, nor of the base") {
  const auto folder = model_folder(small_model_named("llama"));
  const auto m = loaded(read_inference_model(folder));
  auto adapters = three_adapters(m);
  adapters.push_back(nullptr);
  // The same files, read again: a folder may have changed meanwhile.
  adapters.push_back(read_back(adapters[0]->folder, m));
  CHECK(adapters[4]->key != adapters[0]->key);
  const auto prompt = random_prompt(200, m.vocabulary, 3);
  const auto what = asked_for(3, 1);
  const auto d = device_of(folder, 60);
  adapted_batch batch{*d, {}};
  std::uint64_t computed = 0;
  for (std::uint64_t again : {0, 1})
    for (const auto& a : adapters) {
      const auto id = batch.add(what, prompt, a);
      batch.run();
      CHECK(batch.of(id) == alone(*device_of(folder, 8), what, prompt, a).answer);
      const auto now = batch.queue().counted().computed_prompt;
      CHECK(now - computed == (again == 0 ? 200 : 200 - 192));
      computed = now;
    }
  // Those that come together wait for their own adapter's pages alone.
  std::vector<sequence_id> ids;
  const auto other = device_of(folder, 60);
  adapted_batch at_once{*other, {}};
  for (int i = 0; i < 2; ++i)
    for (const auto& a : adapters) ids.push_back(at_once.add(what, prompt, a));
  at_once.run();
  for (std::size_t i = 0; i < ids.size(); ++i)
    CHECK(at_once.of(ids[i]) ==
          alone(*device_of(folder, 8), what, prompt, adapters[i % adapters.size()]).answer);
  CHECK(at_once.queue().counted().computed_prompt == 5 * (200 + 200 - 192));
}

TEST_CASE("an adapter of another model is refused, and its bytes count") {
  const auto llama = model_folder(small_model_named("llama")),
             gpt2 = model_folder(small_model_named("gpt2"));
  const auto m = loaded(read_inference_model(llama));
  const auto adapter = three_adapters(m)[0];
  CHECK(adapter->tensors == 4 * 7);
  // A and B of q, k, v, o, gate, up and down, of rank 8.
  const std::uint64_t ends = 2 * (64 + 64) + 2 * (64 + 16) + 3 * (64 + 96);
  CHECK(adapter->bytes() == 4 * 8 * 4 * ends);
  const auto d = device_of(gpt2, 8);
  REQUIRE(d->reserve(1, 1));
  const auto work = d->prefill(1, 0, payload{std::vector<std::uint32_t>{1}}, adapter);
  REQUIRE_FALSE(work);
  CHECK_THAT(work.error().text, Contains("is of the model llama, and this one is gpt2"));
  CHECK_FALSE(d->decode({{1, 0, 1, adapter}}, {}));
  const auto memory = weight_bytes(m) + attention_bytes(m, 10, 1) + cache_bytes(m, 10);
  CHECK(check_cache(m, 10, 1, memory, "--kv-pages"));
  CHECK_FALSE(check_cache(m, 10, 1, memory, "--kv-pages", adapter->bytes()));
  CHECK(check_cache(m, 10, 1, memory + adapter->bytes(), "--kv-pages", adapter->bytes()));
  CHECK(affordable_pages(m, 1, memory, memory) == 1);
}
