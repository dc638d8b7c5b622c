#include <catch2/catch.hpp>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <future>
#include <mutex>

#include "actors/serving/decoder/median_of_recent.hpp"
#include "actors/serving/prefill/guest_device.hpp"
#include "actors/serving/prefill/guests_fixture.hpp"
#include "gpu/device/clock.hpp"
#include "gpu/device/device_thread.hpp"
#include "gpu/inference/inference_device.hpp"
#include "gpu/inference/model_folder.hpp"
#include "runtime/host/pause.hpp"

// Guests with real layers: what the decoder gets is, to the last bit, what one device computes that
// has the whole model and the whole prompt.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;

namespace {

constexpr std::uint32_t layers = 4;

template <class T>
T loaded(expected<T> e) {
  if (!e) FAIL(e.error().text);
  return std::move(*e);
}

payload tokens_as_payload(const std::vector<std::uint32_t>& tokens) {
  return payload{tokens};
}

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

/// A prompt's cache and last hidden state, from one device.
struct whole_prefill {
  whole_prefill(const std::filesystem::path& folder, const std::vector<std::uint32_t>& prompt) {
    auto spec = gpu::whole_model(loaded(gpu::read_inference_model(folder)), 16);
    spec.weights = folder;
    device = loaded(gpu::make_cpu_inference_device(spec));
    const auto tokens = static_cast<std::uint32_t>(prompt.size());
    REQUIRE(device->reserve(1, tokens));
    const auto work = loaded(device->prefill(1, 0, tokens_as_payload(prompt)));
    hidden = gpu::finish(*work);
    row_bytes = spec.model.hidden * sizeof(float);
  }
  payload pages(std::uint32_t layer, std::uint32_t first, std::uint32_t count) const {
    return loaded(device->take_kv(1, layer, 1, first, count));
  }
  std::span<const std::byte> last() const {
    return hidden.bytes().subspan(hidden.bytes().size() - row_bytes);
  }

  std::unique_ptr<gpu::inference_device> device;
  payload hidden;
  std::size_t row_bytes = 0;
};

bubble_lending lending_of(const std::filesystem::path& folder, const std::string& rule) {
  const auto m = loaded(gpu::read_inference_model(folder));
  bubble_lending how;
  how.model.folder = folder.string();
  how.model.name = "served";
  auto& shape = how.model.shape;
  shape.family = m.kind == gpu::inference_model::family::gpt2 ? "gpt" : "llama";
  shape.layers = m.layers;
  shape.hidden = m.hidden;
  shape.heads = m.heads;
  shape.kv_heads = m.kv_heads;
  shape.vocabulary = m.vocabulary;
  shape.sequence = m.positions;
  how.rule = rule;
  how.chunk = 128;
  how.op_ms = 0.25;  // tiles of 64 tokens
  return how;
}

guest_group group_of_real(std::uint32_t guests) {
  auto g = group_of(guests);
  for (std::uint32_t i = 0; i < guests; ++i) {
    g.guests[i].first_layer = layers * i / guests;
    g.guests[i].layers = layers * (i + 1) / guests - g.guests[i].first_layer;
  }
  return g;
}

std::shared_ptr<guest_engine> open(guest_shape& shape, guest_engine::listener done) {
  return loaded(open_guest_device(shape, std::move(done), "cpu"));
}

/// Do the pages that came, and the last hidden state, have the bits of the whole prefill?
void check_bits(const received_prompt& d, const whole_prefill& reference, std::uint32_t tokens) {
  std::uint32_t pages = 0;
  for (const auto& [at, body] : d.pages) {
    const auto count = d.counts.at(at);
    pages += count;
    CHECK(same(body.bytes(), reference.pages(at.first, at.second, count).bytes()));
  }
  CHECK(pages == layers * gpu::pages_for(tokens));
  REQUIRE(d.last);
  CHECK(same(d.last->bytes(), reference.last()));
}

/// Computes nothing. Before each step it calls `step`, with the number of the step.
class device_by_hand final : public gpu::inference_device {
 public:
  explicit device_by_hand(std::function<void(std::uint32_t)> step) : step_{std::move(step)} {}

  const gpu::inference_spec& spec() const override { return spec_; }
  expected<void> reserve(gpu::sequence_id, std::uint32_t) override { return {}; }
  void release(gpu::sequence_id) override {}
  std::uint32_t free_pages() const override { return 1; }
  expected<void> keep(gpu::sequence_id, std::uint32_t, gpu::page_name) override { return {}; }
  expected<void> share(gpu::sequence_id, std::span<const gpu::page_name>) override { return {}; }
  void drop(gpu::page_name) override {}
  expected<std::unique_ptr<gpu::inference_work>> prefill(gpu::sequence_id, std::uint32_t,
                                                         const payload&,
                                                         const gpu::adapter_ref&) override {
    return std::make_unique<work>(*this);
  }
  expected<std::unique_ptr<gpu::inference_work>> decode(const std::vector<gpu::decode_row>&,
                                                        const payload&) override {
    return refuse(reason::kind::invalid, "");
  }
  expected<std::unique_ptr<gpu::inference_work>> head(const payload&) override {
    return refuse(reason::kind::invalid, "");
  }
  expected<payload> take_kv(gpu::sequence_id, std::uint32_t, std::uint32_t, std::uint32_t,
                            std::uint32_t) const override {
    return payload{};
  }
  expected<void> put_kv(gpu::sequence_id, std::uint32_t, std::uint32_t, std::uint32_t,
                        std::uint32_t, const payload&) override {
    return {};
  }

 private:
  class work final : public gpu::inference_work {
   public:
    explicit work(device_by_hand& of) : of_{of} {}
    std::uint32_t steps_left() const override { return left_; }
    void step() override {
      of_.step_(++of_.steps_);
      --left_;
    }
    payload result() override { return {}; }

   private:
    device_by_hand& of_;
    std::uint32_t left_ = 2 * layers;
  };

  gpu::inference_spec spec_;
  const std::function<void(std::uint32_t)> step_;
  std::uint32_t steps_ = 0;
};

/// A guest with such a device, and prompts of one tile, whose operations are predicted in 0.1 ms.
struct guest_by_hand {
  guest_by_hand(std::uint64_t prompts, std::function<void(std::uint32_t)> step)
      : guest{make_guest_device(group_of_real(1).guests[0], true,
                                std::make_unique<device_by_hand>(std::move(step)),
                                [this](guest_tile_result r) { results.push_back(std::move(r)); })} {
    for (std::uint64_t n = 1; n <= prompts; ++n) {
      guest_tile t;
      t.sequence = n;
      t.name.number = n;
      t.rows = t.all_rows = 64;
      t.operations = layers;
      t.each_s = 2e-4;
      guest->add(std::move(t));
    }
  }
  /// Bubbles of `room_s` with an operation that does not begin in them, one after the other.
  std::uint32_t refused(double room_s) {
    for (std::uint32_t n = 0;; ++n) {
      const auto run = guest->next(room_s);
      if (run.count == 0 || run.each_s <= room_s || n > 10'000) return n;
    }
  }

  std::vector<guest_tile_result> results;
  std::shared_ptr<guest_engine> guest;
};

/// Keeps the thread's processor busy.
void use_cpu(double s) {
  for (const double until_s = gpu::thread_cpu_s() + s; gpu::thread_cpu_s() < until_s;) {
  }
}

}  // namespace

TEST_CASE("Guests compute the bits that one device does, for all rules, depths and lengths") {
  for (const auto* name : {"gpt2", "llama"}) {
    const auto folder = test::model_folder(test::small_model_named(name));
    const auto vocabulary = loaded(gpu::read_inference_model(folder)).vocabulary;
    for (const std::uint32_t tokens : {1, 63, 64, 65, 300}) {
      const auto prompt = test::random_prompt(tokens, vocabulary, tokens);
      const whole_prefill reference{folder, prompt};
      for (const std::uint32_t guests : {1, 2, 4})
        for (const auto* rule : {"resumable", "chunked", "whole"}) {
          INFO(name << ", " << tokens << " tokens, " << guests << " guests, " << rule);
          guests_fixture g{group_of_real(guests), lending_of(folder, rule), {}, open};
          g.order(1, tokens, tokens_as_payload(prompt));
          g.compute();
          CHECK_FALSE(g.pending());
          check_bits(g.decoders.at(1), reference, tokens);
        }
    }
  }
}

TEST_CASE("Results are bitwise identical with several prompts, lost messages and a cancellation") {
  const auto folder = test::model_folder(test::small_model_named("gpt2"));
  const auto vocabulary = loaded(gpu::read_inference_model(folder)).vocabulary;
  guests_fixture g{group_of_real(2), lending_of(folder, "resumable"), {0.2, 0.001, 3, false}, open};
  std::vector<std::vector<std::uint32_t>> prompts;
  for (std::uint32_t n = 1; n <= 4; ++n) {
    prompts.push_back(test::random_prompt(50 + 70 * n, vocabulary, n));
    g.order(n, 50 + 70 * n, tokens_as_payload(prompts.back()));
  }
  g.compute(9);
  g.cancel(2);
  g.compute();
  CHECK(g.lost > 0);
  CHECK_FALSE(g.pending());
  for (const std::uint32_t n : {1, 3, 4})
    check_bits(g.decoders.at(n), whole_prefill{folder, prompts[n - 1]}, 50 + 70 * n);
}

TEST_CASE("Cancelled prompts leave no page of a guest's cache behind") {
  const auto folder = test::model_folder(test::small_model_named("gpt2"));
  const auto model = loaded(gpu::read_inference_model(folder));
  const auto longest = test::random_prompt(model.positions, model.vocabulary, 1);
  guests_fixture g{group_of_real(1), lending_of(folder, "resumable"), {}, open};
  for (std::uint64_t n = 1; n <= 8; ++n) {
    g.order(n, model.positions, tokens_as_payload(longest));
    g.compute(3 + 10 * n);
    g.cancel(n);
  }
  // It needs all pages that the guest has.
  g.order(9, model.positions, tokens_as_payload(longest));
  g.compute();
  CHECK_FALSE(g.pending());
  std::uint32_t pages = 0;
  for (const auto& [at, count] : g.decoders.at(9).counts) pages += count;
  CHECK(pages == layers * gpu::pages_for(model.positions));
}

TEST_CASE("A block whose bytes have changed on the way is refused, and sent again") {
  const auto folder = test::model_folder(test::small_model_named("llama"));
  const auto vocabulary = loaded(gpu::read_inference_model(folder)).vocabulary;
  const auto prompt = test::random_prompt(300, vocabulary, 1);
  guests_fixture::how h;
  h.corruption = 0.3;
  guests_fixture g{group_of_real(2), lending_of(folder, "resumable"), h, open};
  for (std::uint32_t n = 1; n <= 3; ++n) g.order(n, 300, tokens_as_payload(prompt));
  g.compute();
  CHECK(g.corrupted > 10);
  CHECK(g.prompts(1).rejected() > 0);
  CHECK_FALSE(g.pending());
  const whole_prefill reference{folder, prompt};
  for (std::uint32_t n = 1; n <= 3; ++n) check_bits(g.decoders.at(n), reference, 300);
}

TEST_CASE("A guest between the operations of a training on one thread computes the same bits") {
  const auto folder = test::model_folder(test::small_model_named("llama"));
  const auto vocabulary = loaded(gpu::read_inference_model(folder)).vocabulary;
  const auto prompt = test::random_prompt(200, vocabulary, 1);
  const whole_prefill reference{folder, prompt};
  auto shape =
      loaded(shape_of({lending_of(folder, "resumable"), group_of_real(1).guests[0], {}}, 1));
  std::mutex guard;
  std::condition_variable received;
  std::vector<guest_tile_result> results;
  const auto engine = loaded(open_guest_device(
      shape,
      [&](guest_tile_result r) {
        std::lock_guard lock{guard};
        results.push_back(std::move(r));
        received.notify_one();
      },
      "cpu"));
  gpu::device_thread device;
  device.lend(engine);
  std::uint32_t tile = 0;
  for (std::uint32_t first = 0; first < 200; first += 64, ++tile) {
    guest_tile t;
    t.sequence = 1;
    t.tile = tile;
    t.first = first;
    t.rows = std::min(64u, 200 - first);
    t.all_rows = 200;
    const auto all = tokens_as_payload(prompt);
    t.in = {all.owner(), all.bytes().subspan(first * 4, t.rows * 4)};
    t.each_s = 1e-4;
    t.operations = layers;
    engine->add(std::move(t));
  }
  std::size_t trained = 0;
  for (bool done = false; !done;) {
    device.idle_for(0.002);
    std::promise<void> ended;
    device.submit([&] {
      ++trained;
      ended.set_value();
    });
    ended.get_future().wait();
    device.idle_for(0.01);
    std::unique_lock lock{guard};
    received.wait_for(lock, std::chrono::milliseconds{2});
    done = results.size() == tile;
  }
  CHECK(trained > 0);
  REQUIRE(results.size() == 4);
  for (std::uint32_t i = 0; i < tile; ++i) {
    CHECK(results[i].why.text == "");
    CHECK(results[i].steps == 2 * layers);
    for (std::uint32_t l = 0; l < layers; ++l)
      CHECK(same(results[i].pages[l].bytes(), reference.pages(l, i, 1).bytes()));
  }
  CHECK(same(results[3].hidden.bytes().last(reference.row_bytes), reference.last()));
  device.lend(nullptr);
}

TEST_CASE("What a guest's device throws ends that prompt, and the next one is computed") {
  guest_by_hand g{2, [](std::uint32_t step) {
                    if (step == 3) throw std::runtime_error{"a step failed"};
                  }};
  while (g.guest->next(1).count > 0) g.guest->execute(1);
  REQUIRE(g.results.size() == 2);
  CHECK(g.results[0].name.number == 1);
  CHECK(g.results[0].why.text == "the guest's device failed: a step failed");
  CHECK(g.results[1].name.number == 2);
  CHECK(g.results[1].why.text == "");
  CHECK(g.results[1].steps == 2 * layers);
}

TEST_CASE("The expected time of an operation is CPU time, not wall-clock time") {
  guest_by_hand g{1, [](std::uint32_t step) {
                    if (step > 4) return;
                    if (step % 2 == 1) runtime::pause(0.02);
                    use_cpu(0.001);
                  }};
  for (int i = 0; i < 4; ++i) g.guest->execute(1);
  const double expected_s = g.guest->next(1).each_s;
  CHECK(expected_s >= 0.001);
  CHECK(expected_s < 0.01);
}

TEST_CASE("An operation that has not fit a hundred offers of time begins anyway") {
  // The first eight take longer than the bubbles, the others do not.
  guest_by_hand g{4, [](std::uint32_t step) { use_cpu(step <= 2 * layers ? 0.01 : 0); }};
  for (std::uint32_t i = 0; i <= 2 * layers; ++i) g.guest->execute(1);
  REQUIRE(g.results.size() == 1);
  CHECK(g.guest->next(0.002).each_s > 0.002);
  std::uint32_t refused = 0, operations = 0;
  while (g.results.size() < 4) {
    const auto n = g.refused(0.002);
    REQUIRE(n <= 100);
    refused += n;
    g.guest->execute(1);
    REQUIRE(++operations <= 3 * (2 * layers + 1));
  }
  CHECK(refused > 100);                      // not at once
  CHECK(refused <= (2 * layers + 1) * 100);  // as many short ones as long ones are enough
}

TEST_CASE("A guest measures its speed before its first prompt") {
  const auto folder = test::model_folder(test::small_model_named("gpt2"));
  for (const std::uint32_t guest : {0, 1}) {  // one embeds tokens, the other gets hidden states
    auto place = group_of_real(2).guests[guest];
    const auto factor = [&] {
      auto shape = loaded(shape_of({lending_of(folder, "resumable"), place, {}}, 1));
      return open(shape, [](guest_tile_result) {})->time_factor();
    };
    place.token_s = 1e-9;
    const auto slow = factor();
    place.token_s = 1e-3;
    const auto fast = factor();
    REQUIRE((slow && fast));
    CHECK(*fast > 0);
    CHECK(*fast < 1);  // no row of this model takes a millisecond
    CHECK(*slow > 1000 * *fast);
    place.token_s = place.pair_s = 0;
    CHECK_FALSE(factor());
  }
}

TEST_CASE("An operation that was interrupted once is not expected to be as slow again") {
  median_of_recent t;
  CHECK(t.value(7) == 7);
  t.add(50);  // the first one
  CHECK(t.value(7) == 50);
  for (int i = 0; i < 3; ++i) t.add(1);
  CHECK(t.value(7) == 1);
  for (int i = 0; i < 14; ++i) t.add(60);
  for (int i = 0; i < 20; ++i) t.add(2);
  CHECK(t.value(7) == 2);
  for (int i = 0; i < 17; ++i) t.add(9);  // it has become slower
  CHECK(t.value(7) == 9);
}

TEST_CASE("A guest says why its layers cannot be opened") {
  const auto folder = test::model_folder(test::small_model_named("gpt2"));
  const auto place = group_of_real(2).guests[1];
  const auto refused = [&](const bubble_lending& how) {
    auto shape = loaded(shape_of({how, place, {}}, 1));
    const auto made = open_guest_device(
        shape, [](guest_tile_result) {}, "cpu");
    REQUIRE_FALSE(made);
    return made.error().text;
  };
  auto how = lending_of(folder, "resumable");
  how.memory_gb = 1e-4;
  CHECK(refused(how).find("do not hold 2 layers") != std::string::npos);
  how = lending_of(folder, "resumable");
  how.model.shape.hidden = 96;
  CHECK(refused(how).find("has 4 layers of 48") != std::string::npos);
  how = lending_of(folder, "resumable");
  how.model.folder += "/nothing";
  CHECK(refused(how).find("nothing") != std::string::npos);
}
