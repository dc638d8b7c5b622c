#include "web/openai/prompt_queues.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>

#include "runtime/host/wait.hpp"

using namespace troupe;

TEST_CASE("a model's slow chat keeps neither its own completions waiting nor other models") {
  std::promise<void> go_on;
  std::atomic<int> others = 0, later = 0;
  web::prompt_queues queues;
  queues.soon("slow", true, [held = go_on.get_future().share()] { held.wait(); });
  queues.soon("slow", true, [&] { ++later; });
  queues.soon("slow", false, [&] { ++others; });
  for (const bool chat : {false, true}) queues.soon("other", chat, [&] { ++others; });
  CHECK(runtime::wait_until([&] { return others == 3; }, 20));
  CHECK(later == 0);  // in its order
  go_on.set_value();
  CHECK(runtime::wait_until([&] { return later == 1; }, 20));
}
