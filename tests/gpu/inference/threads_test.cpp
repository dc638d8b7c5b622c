#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include "gpu/cpu/kernels/kernels.hpp"
#include "gpu/cpu/thread_team.hpp"
#include "gpu/device/processors.hpp"
#include "gpu/inference/inference_device.hpp"
#include "gpu/inference/model_folder.hpp"
#include "harness/files.hpp"
#include "messages/base/random.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;
using Catch::Contains;

namespace {

/// Wide enough that products, attention and rows are shared among threads.
inference_model wide_model(inference_model::family kind) {
  inference_model m;
  m.name = "wide";
  m.kind = kind;
  m.hidden = 320, m.layers = 2, m.heads = 5,
  m.kv_heads = kind == inference_model::family::gpt2 ? 5 : 1;
  m.head_width = 64, m.intermediate = 424, m.positions = 448, m.vocabulary = 515;
  if (kind == inference_model::family::llama) {
    m.qkv_bias = m.output_bias = m.mlp_bias = m.tied_head = false;
    m.head_norms = true;
    m.window = 150;
  }
  return m;
}

void append(std::vector<float>& to, const payload& p) {
  const auto values = float_values(p);
  to.insert(to.end(), values.begin(), values.end());
}

payload tokens_of(const std::vector<std::uint32_t>& tokens) {
  return payload{nullptr, std::as_bytes(std::span{tokens})};
}

/// Everything that a device computes: prompts of several lengths, then decodes of 1 to 11
/// sequences, and the logits of all.
std::vector<float> all_values(const inference_model& m, std::uint32_t threads) {
  auto spec = whole_model(m, 40);
  spec.seed = 11;
  spec.threads = threads;
  const auto d = loaded(make_cpu_inference_device(spec));
  std::vector<float> all;
  std::vector<decode_row> rows;
  for (sequence_id s = 0; s < 11; ++s) {
    const auto prompt = random_prompt(s == 0 ? 260 : 1 + s * 13, m.vocabulary, s);
    const auto length = static_cast<std::uint32_t>(prompt.size());
    REQUIRE(d->reserve(s, length + 1));
    const auto hidden = finish(*loaded(d->prefill(s, 0, tokens_of(prompt))));
    append(all, hidden);
    append(all, finish(*loaded(d->head(hidden))));
    rows.push_back({s, length, static_cast<std::uint32_t>(s)});
    const auto next = finish(*loaded(d->decode(rows, {})));
    append(all, next);
    append(all, finish(*loaded(d->head(next))));
  }
  return all;
}

}  // namespace

TEST_CASE("threads of a team compute each block once") {
  for (const std::size_t threads : {1, 2, 5}) {
    cpu::thread_team team{threads};
    CHECK(team.size() == threads);
    std::vector<std::uint32_t> times(64);
    for (std::uint32_t work = 1; work <= 3000; ++work) {
      const auto blocks = 1 + work * 7 % times.size();
      std::fill(times.begin(), times.end(), 0u);
      std::atomic<bool> known{true};
      team.run(blocks, [&](std::size_t block, std::size_t thread) {
        ++times[block];
        if (thread >= threads) known = false;
      });
      CHECK(known);
      CHECK(std::all_of(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(blocks),
                        [](auto n) { return n == 1; }));
      CHECK(std::count(times.begin(), times.end(), 1u) == static_cast<std::ptrdiff_t>(blocks));
    }
  }
}

TEST_CASE("a work ends when the others have done what they have begun, not before") {
  cpu::thread_team team{2};
  for (int work = 0; work < 20; ++work) {
    std::atomic<bool> begun{false};
    std::atomic<int> done{0};
    team.run(2, [&](std::size_t, std::size_t thread) {
      // The caller's block ends once the other one is in other hands.
      while (thread == 0 && !begun) std::this_thread::yield();
      begun = true;
      for (int i = 0; thread == 1 && i < 5; ++i) std::this_thread::yield();
      ++done;
    });
    REQUIRE(done == 2);
  }
}

TEST_CASE("all that a device computes is the same to the last bit for any number of threads") {
  for (const auto kind : {inference_model::family::gpt2, inference_model::family::llama}) {
    const auto m = wide_model(kind);
    const auto reference = all_values(m, 1);
    for (const std::uint32_t threads : {2, 3, 8}) {
      INFO((kind == inference_model::family::gpt2 ? "gpt2, " : "llama, ") << threads << " threads");
      const auto values = all_values(m, threads);
      REQUIRE(values.size() == reference.size());
      CHECK(std::memcmp(values.data(), reference.data(), values.size() * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("the kernel for few rows gives a column the same bits in any range of columns") {
  random_source random{5};
  const std::size_t inner = 203, columns = 1043;
  std::vector<float> weights(inner * columns), in(cpu::few_rows * inner);
  for (auto* all : {&weights, &in})
    for (auto& x : *all) x = static_cast<float>(2 * random.uniform() - 1);
  for (const auto* k : cpu::usable_float_kernels())
    for (const std::size_t rows : {1, 2, 3, 8}) {
      std::vector<float> whole(cpu::few_rows * columns, 0.5f);
      k->add_product(in.data(), rows, weights.data(), inner, columns, columns, whole.data());
      for (const std::size_t range : {16, 64, 272, 1040}) {
        INFO(k->name << ", " << rows << " rows, ranges of " << range);
        std::vector<float> parts(cpu::few_rows * columns, 0.5f);
        for (std::size_t first = 0; first < columns; first += range)
          k->add_product(in.data(), rows, weights.data() + first, inner, columns,
                         std::min(range, columns - first), parts.data() + first);
        CHECK(std::memcmp(parts.data(), whole.data(), rows * columns * sizeof(float)) == 0);
      }
    }
}

TEST_CASE("a device of no threads, or of too many, is refused") {
  auto spec = whole_model(wide_model(inference_model::family::gpt2), 1);
  spec.seed = 1;
  for (const std::uint32_t threads : {0u, 1025u}) {
    spec.threads = threads;
    const auto d = make_cpu_inference_device(spec);
    REQUIRE_FALSE(d);
    CHECK_THAT(d.error().text, Contains("expected 1 to 1024"));
  }
}

TEST_CASE("threads are at most the processors that this process may use") {
  const auto allowed = allowed_processors();
  CHECK(allowed >= 1);
  CHECK(usable_processors() >= 1);
  CHECK(usable_processors() <= allowed);
  CHECK(check_threads("--threads", allowed));
  const auto many = check_threads("--threads", allowed + 1), none = check_threads("--threads", 0);
  REQUIRE_FALSE(many);
  REQUIRE_FALSE(none);
  CHECK_THAT(none.error().text, Contains("--threads: found 0, expected 1 to "));
  CHECK_THAT(many.error().text, Contains("this process may use"));
}

TEST_CASE("quotas of control groups are read in both versions, and the smallest one counts") {
  const auto group = [](const std::string& root, const std::string& file, const std::string& text) {
    return temporary(root + "/" + file, text);
  };
  const auto quota = [](const std::string& groups, const std::string& root) {
    return processor_quota(temporary(root + ".groups", groups), temporary_folder() / root);
  };
  group("two", "a/cpu.max", "max 100000\n");
  group("two", "a/b/cpu.max", "250000 100000\n");
  CHECK(quota("0::/a/b\n", "two") == 2.5);
  CHECK_FALSE(quota("0::/a\n", "two"));
  CHECK_FALSE(quota("0::/elsewhere\n", "two"));
  CHECK_FALSE(quota("", "two"));
  group("nested", "a/cpu.max", "150000 100000\n");
  group("nested", "a/b/cpu.max", "250000 100000\n");
  CHECK(quota("0::/a/b/c\n", "nested") == 1.5);
  group("mounted", "cpu.max", "300000 100000\n");
  CHECK(quota("0::/of/the/host\n", "mounted") == 3);
  group("one", "cpu,cpuacct/x/cpu.cfs_quota_us", "50000\n");
  group("one", "cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
  CHECK(quota("5:memory:/x\n4:cpu,cpuacct:/x\n0::/\n", "one") == 0.5);
  group("free", "cpu/x/cpu.cfs_quota_us", "-1\n");
  group("free", "cpu/x/cpu.cfs_period_us", "100000\n");
  CHECK_FALSE(quota("4:cpu:/x\n", "free"));
  CHECK_FALSE(quota("4:cpuset:/x\nnonsense\n", "one"));
}
