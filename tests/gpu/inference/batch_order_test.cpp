#include <algorithm>
#include <catch2/catch.hpp>

#include "gpu/inference/batch_queue.hpp"
#include "gpu/inference/small_inference_model.hpp"
#include "harness/files.hpp"

using namespace troupe;
using namespace troupe::gpu;

// Who waits for whom on a device that many sequences share, counted in steps and tiles.

namespace {

constexpr sequence_id chat = 1, hi = 2;
constexpr std::uint32_t long_prompt = 30'000;

batch_sequence asked(sequence_id id, std::uint32_t prompt, std::uint32_t answer) {
  batch_sequence s;
  s.id = id;
  for (std::uint32_t i = 0; i < prompt; ++i)
    s.prompt.push_back(static_cast<std::uint32_t>((id * 31 + i * 7) % 256));
  s.what.prompt_tokens = prompt;
  s.what.max_tokens = answer;
  return s;
}

/// The rows of a round's prompts: of a sequence, or of all.
std::size_t rows_of(const batch_round& r, sequence_id id = 0) {
  std::size_t n = 0;
  for (const auto& c : r.prefill) n += id == 0 || c.sequence == id ? c.tokens.size() : 0;
  return n;
}

/// Tells the queue the results of an executed round.
void executed(batch_queue& q, const batch_round& r) {
  for (const auto& c : r.prefill)
    if (c.next) q.took(c.sequence, 1);
  for (const auto& d : r.decode)
    if (d.next) q.took(d.row.sequence, 1);
}

}  // namespace

TEST_CASE("while a chat of 30,000 positions is computed, a short one waits for one tile") {
  batch_queue q{{}, pages_for(long_prompt + 100) + 1};
  q.add(asked(chat, long_prompt, 100));
  q.admit();
  for (int tile = 0; tile < 50; ++tile) {
    const auto r = q.next();
    CHECK(rows_of(r, chat) == tile_positions);
    executed(q, r);
  }
  const auto present = q.next();  // it comes while this one is executed
  CHECK(rows_of(present) == tile_positions);
  q.add(asked(hi, 3, 4));
  q.admit();
  executed(q, present);
  const auto next = q.next();
  REQUIRE(next.prefill.size() == 2);
  CHECK(next.prefill.front().sequence == hi);
  CHECK(next.prefill.front().next);
  CHECK(rows_of(next, chat) == tile_positions);
  executed(q, next);
  // Then it has a token in each round, with a tile of the long one between two.
  const auto after = q.next();
  REQUIRE(after.decode.size() == 1);
  CHECK(after.decode.front().row.sequence == hi);
  CHECK(rows_of(after) == tile_positions);
}

TEST_CASE("while a chat of 30,000 positions is decoded, a short one waits for one of its steps") {
  batch_queue q{{}, pages_for(long_prompt + 100) + 1};
  q.add(asked(chat, long_prompt, 100));
  q.admit();
  while (true) {
    const auto r = q.next();
    executed(q, r);
    if (!r.decode.empty()) break;
    REQUIRE_FALSE(r.prefill.empty());
  }
  const auto present = q.next();
  CHECK(present.decode.size() == 1);
  CHECK(present.prefill.empty());
  q.add(asked(hi, 3, 4));
  q.admit();
  executed(q, present);
  const auto next = q.next();
  REQUIRE(next.prefill.size() == 1);
  CHECK(next.prefill.front().sequence == hi);
  CHECK(next.decode.size() == 1);
}

TEST_CASE("in a round, prompts are computed before the sequences that run") {
  auto spec = whole_model(test::small_inference_model(), 10);
  spec.seed = 7;
  const auto device = test::loaded(make_cpu_inference_device(spec));
  batch_queue q{{}, 10};
  std::vector<sequence_id> order;
  const auto round = [&] {
    order.clear();
    execute(*device, q.next(), [&](const batch_result& r) {
      order.push_back(r.sequence);
      REQUIRE(r.next);
      q.took(r.sequence, r.next->chosen.token);
    });
  };
  q.add(asked(chat, 40, 100));
  q.admit();
  round();
  round();
  q.add(asked(hi, 3, 4));
  q.admit();
  round();
  CHECK(order == std::vector<sequence_id>{hi, chat});
}

TEST_CASE("short prompts that never cease do not keep a long one waiting") {
  batch_queue q{{.running = 1000}, 20'000};
  q.add(asked(chat, 64 * tile_positions, 1));
  for (sequence_id id = 2; id < 100; ++id) q.add(asked(id, 2 * tile_positions, 1));
  q.admit();
  for (sequence_id id = 100; id < 164; ++id) {
    q.add(asked(id, 2 * tile_positions, 1));
    q.admit();
    const auto r = q.next();
    CHECK(rows_of(r, chat) == tile_positions);
    CHECK(rows_of(r) == 5 * tile_positions);  // the limit of others, and its own
    executed(q, r);
  }
}
