#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <new>

#include "gpu/inference/batch_queue.hpp"
#include "gpu/inference/generate.hpp"
#include "gpu/inference/host_memory.hpp"
#include "gpu/inference/small_inference_model.hpp"
#include "harness/files.hpp"
#include "messages/base/random.hpp"
#include "messages/base/refuse.hpp"

using namespace troupe;
using namespace troupe::gpu;
using Catch::Contains;

// A queue and a device, round after round in one thread: pages that prompts share, pages that are
// taken when they are needed, and memory that is missing.

namespace {

std::unique_ptr<inference_device> device_with(std::uint32_t pages, std::uint32_t positions = 320,
                                              std::uint32_t vocabulary = 256) {
  auto m = test::small_inference_model();
  m.positions = positions;
  m.vocabulary = vocabulary;
  auto s = whole_model(m, pages);
  s.seed = 7;
  return test::loaded(make_cpu_inference_device(s));
}

struct outcome {
  std::vector<std::uint32_t> tokens;
  std::vector<double> values;  // log probabilities: of scored tokens, then of generated ones
  std::string failed;
  bool over = false;
  bool operator==(const outcome&) const = default;
};

/// A decoder without its actor: the queue and the device.
class batch {
 public:
  batch(inference_device& d, const batch_queue::limits& l, prefix_owner owner = {})
      : device_{d}, queue_{l, d.free_pages(), std::move(owner)} {}

  sequence_id add(const completion_request& what, std::vector<std::uint32_t> prompt) {
    const auto id = ++ids_;
    asked_[id] = what;
    asked_[id].prompt_tokens = static_cast<std::uint32_t>(prompt.size());
    queue_.add({id, asked_[id], std::move(prompt), {}});
    return id;
  }
  /// False: there is nothing to do.
  bool round() {
    queue_.admit();
    if (queue_.idle()) return false;
    execute(device_, queue_.next(), [this](const batch_result& r) { take(r); });
    return true;
  }
  void run() {
    std::uint32_t rounds = 0;
    while (round()) REQUIRE(++rounds < 100'000);
  }

  outcome& of(sequence_id id) { return outcomes_[id]; }
  batch_queue& queue() { return queue_; }

 private:
  void take(const batch_result& r) {
    if (r.unkept != 0) return queue_.forget(r.unkept);
    auto& o = outcomes_[r.sequence];
    if (o.over) return;
    const auto& what = asked_.at(r.sequence);
    for (const auto& t : r.scored) o.values.push_back(t.chosen.log_probability);
    if (r.failed) o.failed = r.failed->text;
    if (r.next) {
      queue_.took(r.sequence, r.next->chosen.token);
      o.tokens.push_back(r.next->chosen.token);
      o.values.push_back(r.next->chosen.log_probability);
    }
    o.over = r.failed || o.tokens.size() >= what.max_tokens ||
             (r.next && std::ranges::count(what.last_tokens, r.next->chosen.token) > 0);
    if (o.over) queue_.end(r.sequence);
  }

  inference_device& device_;
  batch_queue queue_;
  std::map<sequence_id, completion_request> asked_;
  std::map<sequence_id, outcome> outcomes_;
  sequence_id ids_ = 0;
};

outcome alone(const completion_request& what, const std::vector<std::uint32_t>& prompt,
              std::uint32_t positions = 320, std::uint32_t vocabulary = 256) {
  const auto d = device_with(pages_for(positions), positions, vocabulary);
  generation g;
  g.what = what;
  g.prompt = prompt;
  g.what.prompt_tokens = static_cast<std::uint32_t>(prompt.size());
  completion out{g.what, {}, nullptr};
  REQUIRE(generate(*d, g, out));
  return {out.tokens(), out.log_probabilities(), {}, true};
}

completion_request request(std::uint32_t max_tokens, std::uint64_t seed = 1) {
  completion_request r;
  r.max_tokens = max_tokens;
  r.how = {.temperature = 0.9, .top_p = 0.95, .seed = seed};
  return r;
}

std::vector<std::uint32_t> tokens_of(random_source& random, std::size_t n) {
  std::vector<std::uint32_t> all(n);
  for (auto& t : all) t = static_cast<std::uint32_t>(random.below(256));
  return all;
}

/// A device whose host has no memory for some sequences: for their pages, for a work that they are
/// in, or to note pages that they share or get from elsewhere.
class poor_device final : public inference_device {
 public:
  explicit poor_device(std::unique_ptr<inference_device> d) : device_{std::move(d)} {}

  sequence_id no_pages = 0, no_work = 0, no_keep = 0, no_share = 0, no_put = 0;

  const inference_spec& spec() const override { return device_->spec(); }
  expected<void> reserve(sequence_id s, std::uint32_t positions) override {
    if (s == no_pages && positions > tile_positions)
      return refuse(reason::kind::out_of_memory, "this host has no memory for another page");
    return device_->reserve(s, positions);
  }
  void release(sequence_id s) override { device_->release(s); }
  std::uint32_t free_pages() const override { return device_->free_pages(); }
  expected<void> keep(sequence_id s, std::uint32_t page, page_name name) override {
    if (s == no_keep) throw std::bad_alloc{};
    return device_->keep(s, page, name);
  }
  expected<void> share(sequence_id s, std::span<const page_name> names) override {
    if (s == no_share) throw std::bad_alloc{};
    return device_->share(s, names);
  }
  void drop(page_name name) override { device_->drop(name); }
  expected<std::unique_ptr<inference_work>> prefill(sequence_id s, std::uint32_t first,
                                                    const payload& in,
                                                    const adapter_ref& a) override {
    return device_->prefill(s, first, in, a);
  }
  expected<std::unique_ptr<inference_work>> decode(const std::vector<decode_row>& rows,
                                                   const payload& in) override {
    for (const auto& r : rows)
      if (r.sequence == no_work && r.position > 20) throw std::bad_alloc{};
    return device_->decode(rows, in);
  }
  expected<std::unique_ptr<inference_work>> head(const payload& in) override {
    return device_->head(in);
  }
  expected<payload> take_kv(sequence_id s, std::uint32_t first_layer, std::uint32_t layers,
                            std::uint32_t first_page, std::uint32_t pages) const override {
    return device_->take_kv(s, first_layer, layers, first_page, pages);
  }
  expected<void> put_kv(sequence_id s, std::uint32_t first_layer, std::uint32_t layers,
                        std::uint32_t first_page, std::uint32_t pages, const payload& in) override {
    if (s == no_put) throw std::bad_alloc{};
    return device_->put_kv(s, first_layer, layers, first_page, pages, in);
  }

 private:
  std::unique_ptr<inference_device> device_;
};

}  // namespace

TEST_CASE("in 1,000 random batches, answers have the same bits with shared pages and without") {
  constexpr std::uint32_t pages = 14;  // fewer than the prompts have: pages are dropped
  const auto first = device_with(pages), second = device_with(pages);
  batch shared{*first, {.running = 4, .prefill = 128}};
  batch separate{*second, {.running = 4, .prefill = 128, .shares = false}};
  random_source random{5};
  std::vector<std::vector<std::uint32_t>> beginnings;
  for (int i = 0; i < 3; ++i) beginnings.push_back(tokens_of(random, 256));
  std::uint32_t different = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto count = 1 + random.below(3);
    std::vector<std::pair<sequence_id, sequence_id>> ids;
    for (std::uint64_t k = 0; k < count; ++k) {
      auto prompt = beginnings[random.below(beginnings.size())];
      prompt.resize(1 + random.below(prompt.size()));
      const auto rest = tokens_of(random, random.below(20));
      prompt.insert(prompt.end(), rest.begin(), rest.end());
      auto what = request(static_cast<std::uint32_t>(1 + random.below(3)), random.next());
      what.scores_prompt = random.chance(0.05);
      ids.emplace_back(shared.add(what, prompt), separate.add(what, prompt));
    }
    shared.run();
    separate.run();
    for (const auto& [with, without] : ids) {
      REQUIRE(shared.of(with).over);
      REQUIRE(shared.of(with).failed.empty());
      different += !(shared.of(with) == separate.of(without));
    }
  }
  CHECK(different == 0);
  const auto& with = shared.queue().counted();
  const auto& without = separate.queue().counted();
  CHECK(without.cached_prompt == 0);
  CHECK(with.cached_prompt > without.computed_prompt / 4);
  CHECK(with.computed_prompt + with.cached_prompt == without.computed_prompt);
  CHECK(shared.queue().free_pages() == pages);
  CHECK(first->free_pages() + shared.queue().cached_pages() == pages);
  CHECK(second->free_pages() == pages);
}

TEST_CASE("of the same prompt with another end only the last page and the end are computed") {
  const auto d = device_with(100, 2048);
  batch b{*d, {}};
  random_source random{3};
  auto prompt = tokens_of(random, 1500);
  std::uint64_t before = 0;
  for (std::uint32_t i = 0; i < 3; ++i) {
    prompt.back() = i;
    const auto id = b.add(request(5), prompt);
    b.run();
    CHECK(b.of(id) == alone(request(5), prompt, 2048));
    const auto computed = b.queue().counted().computed_prompt - before;
    before += computed;
    CHECK(computed == (i == 0 ? 1500 : 1500 % tile_positions));
  }
  // Whole pages: the last one is computed, for its last hidden state.
  prompt.resize(1472);
  const auto id = b.add(request(2), prompt);
  b.run();
  CHECK(b.of(id) == alone(request(2), prompt, 2048));
  CHECK(b.queue().counted().computed_prompt - before == tile_positions);
}

TEST_CASE("choices of one long prompt compute it once, and hold it once") {
  const auto d = device_with(20);
  batch b{*d, {.prefill = 128}};
  random_source random{4};
  const auto prompt = tokens_of(random, 250);
  std::vector<sequence_id> ids;
  for (std::uint64_t seed = 0; seed < 4; ++seed) ids.push_back(b.add(request(9, seed), prompt));
  b.round();
  b.round();
  while (b.of(ids.back()).tokens.empty()) REQUIRE(b.round());
  b.round();
  CHECK(b.queue().counted().computed_prompt == 250 + 3 * (250 - 192));
  // Three pages of all, and the fourth of each, with a fifth for none.
  CHECK(b.queue().pages() - b.queue().free_pages() == 3 + 4);
  b.run();
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    CHECK(b.of(ids[seed]) == alone(request(9, seed), prompt));
}

TEST_CASE("a prompt of another model's page, or whose computation failed, is computed") {
  const auto d = device_with(20);
  poor_device poor{device_with(20)};
  random_source random{6};
  const auto prompt = tokens_of(random, 200);
  batch b{poor, {.prefill = 64}, {.model = 1}};
  // Its second page finds no memory: only the first can begin another prompt.
  poor.no_pages = 1;
  const auto failing = b.add(request(3), prompt);
  b.run();
  CHECK_THAT(b.of(failing).failed, Contains("no memory"));
  const auto computed = b.queue().counted().computed_prompt;
  const auto again = b.add(request(3), prompt);
  b.run();
  CHECK(b.of(again) == alone(request(3), prompt));
  CHECK(b.queue().counted().computed_prompt - computed == 200 - tile_positions);
}

TEST_CASE("a sequence takes pages as it comes to them, however many it may have") {
  const auto d = device_with(2048, 131072);
  batch b{*d, {}};
  const auto id = b.add(request(131072 - 2), {1, 2});
  for (int i = 0; i < 50; ++i) REQUIRE(b.round());
  CHECK(b.of(id).tokens.size() == 50);
  CHECK(b.queue().free_pages() == 2047);
  CHECK(d->free_pages() == 2047);
  // Another one as long runs beside it.
  const auto second = b.add(request(131072 - 2), {3, 4});
  b.round();
  b.round();
  CHECK(b.of(second).tokens.size() == 2);
  CHECK(b.queue().running() == 2);
  b.queue().end(id);
  b.queue().end(second);
  b.run();
  CHECK(d->free_pages() == 2048);
}

TEST_CASE("64 chats on a cache of 6,000 positions end with the tokens that each has alone") {
  constexpr std::uint32_t positions = 4096, pages = 6000 / tile_positions, words = 201;
  for (const bool shares : {true, false}) {
    const auto d = device_with(pages, positions, words);
    batch b{*d, {.running = 64, .shares = shares}};
    std::vector<std::pair<completion_request, std::vector<std::uint32_t>>> all;
    std::vector<sequence_id> ids;
    random_source random{8};
    for (std::uint64_t i = 0; i < 64; ++i) {
      auto prompt = tokens_of(random, 5 + random.below(80));
      for (auto& t : prompt) t %= words;
      auto what = request(positions - static_cast<std::uint32_t>(prompt.size()), i);
      // No token comes twice, and one that ends the answer only when there is no other.
      what.how = {.temperature = 1, .seed = i, .presence_penalty = 100, .bias = {{11, -50}}};
      what.last_tokens = {11};
      ids.push_back(b.add(what, prompt));
      all.emplace_back(what, prompt);
    }
    b.run();
    std::uint32_t different = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      CHECK(b.of(ids[i]).tokens.size() == words);
      different += !(b.of(ids[i]) == alone(all[i].first, all[i].second, positions, words));
    }
    CHECK(different == 0);
    CHECK(b.queue().counted().set_back >= 10);
    CHECK(b.queue().counted().set_back < 300);
    CHECK(b.queue().free_pages() == pages);
    CHECK(d->free_pages() + b.queue().cached_pages() == pages);
  }
}

TEST_CASE("a sequence that is set back while its prompt is scored gives no score twice") {
  const auto d = device_with(8);
  batch b{*d, {.running = 8, .prefill = 64}};
  random_source random{9};
  std::vector<sequence_id> ids;
  std::vector<std::vector<std::uint32_t>> prompts;
  for (std::uint64_t i = 0; i < 8; ++i) {
    prompts.push_back(tokens_of(random, 60 + 20 * i));
    auto what = request(90, i);
    what.scores_prompt = i % 2 == 1;
    ids.push_back(b.add(what, prompts.back()));
  }
  b.run();
  CHECK(b.queue().counted().set_back > 0);
  for (std::uint64_t i = 0; i < 8; ++i) {
    const auto expected_one = alone(request(90, i), prompts[i]);
    CHECK(b.of(ids[i]).tokens == expected_one.tokens);
    CHECK(b.of(ids[i]).values.size() == 90 + (i % 2 == 1 ? prompts[i].size() - 1 : 0));
  }
}

TEST_CASE("memory that is missing for one sequence fails that one alone") {
  poor_device poor{device_with(20)};
  batch b{poor, {}};
  random_source random{10};
  std::vector<sequence_id> ids;
  std::vector<std::vector<std::uint32_t>> prompts;
  for (std::uint64_t i = 0; i < 5; ++i) {
    prompts.push_back(tokens_of(random, 10 + i));
    ids.push_back(b.add(request(80, i), prompts.back()));
  }
  poor.no_pages = ids[1];  // at its 70th position
  poor.no_work = ids[3];   // at its 20th
  b.run();
  for (std::uint64_t i = 0; i < 5; ++i) {
    INFO("sequence " << i);
    if (i == 1 || i == 3) {
      CHECK_THAT(b.of(ids[i]).failed, Contains("no memory"));
      CHECK(b.of(ids[i]).tokens.size() < 80);
    } else {
      CHECK(b.of(ids[i]) == alone(request(80, i), prompts[i]));
    }
  }
  CHECK(poor.free_pages() == 20);
}

TEST_CASE("a page that cannot be kept for lack of memory begins no other prompt") {
  poor_device poor{device_with(20)};
  batch b{poor, {}};
  random_source random{11};
  const auto prompt = tokens_of(random, 200);
  poor.no_keep = 1;
  // The second waits for the first one's pages, and has not asked the device for them.
  const auto first = b.add(request(9, 1), prompt), second = b.add(request(9, 2), prompt);
  b.run();
  CHECK(b.of(first) == alone(request(9, 1), prompt));
  CHECK(b.of(second) == alone(request(9, 2), prompt));
  CHECK(b.queue().counted().set_back > 0);
  CHECK(b.queue().counted().computed_prompt == 2 * 200);
  CHECK(b.queue().free_pages() == 20);
  // The second one's pages are known.
  const auto third = b.add(request(9, 3), prompt);
  b.run();
  CHECK(b.of(third) == alone(request(9, 3), prompt));
  CHECK(b.queue().counted().computed_prompt == 2 * 200 + 200 - 192);
  // Names that the device does not have are dropped like others.
  const auto other = tokens_of(random, 310);
  for (std::uint64_t i = 0; i < 6; ++i) b.add(request(10, i), tokens_of(random, 310));
  const auto last = b.add(request(10, 7), other);
  b.run();
  CHECK(b.of(last) == alone(request(10, 7), other));
  CHECK(b.queue().free_pages() == 20);
  CHECK(poor.free_pages() + b.queue().cached_pages() == 20);
}

TEST_CASE("a sequence that cannot share pages for lack of memory fails, and no other") {
  poor_device poor{device_with(20)};
  batch b{poor, {}};
  random_source random{12};
  const auto prompt = tokens_of(random, 200);
  b.add(request(3), prompt);
  b.run();
  poor.no_share = 2;
  const auto poorer = b.add(request(3, 2), prompt), other = b.add(request(3, 3), prompt);
  b.run();
  CHECK_THAT(b.of(poorer).failed, Contains("no memory"));
  CHECK(b.of(poorer).tokens.empty());
  CHECK(b.of(other) == alone(request(3, 3), prompt));
  CHECK(b.queue().free_pages() == 20);
}

TEST_CASE("a cache that cannot be put for lack of memory fails its sequence, and no other") {
  const auto source = device_with(20);
  REQUIRE(source->reserve(1, tile_positions));
  const auto part = source->take_kv(1, 0, 2, 0, 1);
  REQUIRE(part);
  poor_device poor{device_with(20)};
  poor.no_put = 1;
  batch_round r;
  for (const sequence_id s : {1, 2}) {
    r.reserve.push_back({s, tile_positions});
    r.parts.push_back({s, 0, 2, 0, 1, *part});
  }
  std::vector<batch_result> results;
  execute(poor, r, [&](batch_result x) { results.push_back(std::move(x)); });
  REQUIRE(results.size() == 1);
  CHECK(results[0].sequence == 1);
  REQUIRE(results[0].failed);
  CHECK(results[0].failed->code == reason::kind::out_of_memory);
}

TEST_CASE("pages that no host can hold are refused by the name of their option") {
  auto m = test::small_inference_model();
  const auto weights = weight_bytes(m);
  const auto page = cache_bytes(m, 1);
  CHECK(page == page_bytes(m) * 2);
  // A tile's scores of all positions that the cache holds, of each thread.
  const auto scores = attention_bytes(m, 20, 2);
  CHECK(scores == 2 * 64 * 320 * 4);
  CHECK(attention_bytes(m, 3, 2) == 2 * 64 * 192 * 4);
  auto windowed = m;
  windowed.window = 65;
  CHECK(attention_bytes(windowed, 20, 1) == 64 * 192 * 4);
  CHECK(check_cache(m, 10, 2, weights + scores + 10 * page, "--kv-pages"));
  const auto refused = check_cache(m, 11, 2, weights + scores + 10 * page, "--kv-pages");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == reason::kind::insufficient);
  CHECK_THAT(refused.error().text, Contains("the cache's 11 pages need") &&
                                       Contains("attention of 2 threads") &&
                                       Contains("set a smaller --kv-pages"));
  CHECK_FALSE(check_cache(m, 10, 3, weights + scores + 10 * page, "--kv-pages"));
  CHECK(affordable_pages(m, 2, weights + scores + 10 * page) == 5);
  CHECK(affordable_pages(m, 2, weights) == 1);
  CHECK(affordable_pages(m, 2, 0) == 1);
  CHECK(host_memory_bytes() > 1'000'000);
}
