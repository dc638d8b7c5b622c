#include <catch2/catch.hpp>

#include <string>

#include "actors/control/ledger/bounded_reports.hpp"
#include "actors/control/ledger/public_detail.hpp"
#include "messages/base/cut_text.hpp"

using namespace troupe;
using namespace troupe::actors;

TEST_CASE("a text is cut at the end of a character, and says how long it was") {
  CHECK(cut_text("short", 5) == "short");
  CHECK(cut_text("longer", 5) == "longe... [6 bytes, cut]");
  for (std::size_t limit = 0; limit < 8; ++limit) {
    const auto cut = cut_text("äöü€", limit);  // 2, 2, 2 and 3 bytes
    CHECK(cut.substr(0, cut.find("...")).size() == (limit < 6 ? limit / 2 * 2 : 6));
  }
  CHECK(cut_text(std::string(10, '\x80'), 4).substr(0, 4) == std::string(4, '\x80'));
}

TEST_CASE("sentences and lists of a node are cut where they arrive") {
  const std::string sentence(30 << 20, 'x');
  node_report n;
  n.lost = sentence;
  n.parts.resize(1);
  n.parts[0].detail = sentence;
  n.reserved.assign(1 << 20, 1);
  n.ports.emplace(65'536, 80);
  for (int port = 2000; port < 4000; ++port) n.ports->push_back(static_cast<std::uint16_t>(port));
  const auto kept = bounded(n);
  CHECK(kept.lost.size() < 5000);
  CHECK(kept.parts[0].detail.size() < 5000);
  CHECK(kept.parts[0].detail.ends_with("[31457280 bytes, cut]"));
  CHECK(kept.reserved.empty());
  CHECK(kept.ports->size() == 256);
  CHECK(kept.ports->front() == 2000);

  training_report t;
  t.schedule = t.device = sentence;
  t.events.assign(1000, "an event");
  t.events[0] = sentence;
  t.iterations.resize(10'000);
  t.iterations[0].program.emplace();
  t.iterations[0].program->values.assign(300, {sentence.substr(0, 10'000), 1, 1});
  t.program.emplace();
  t.program->engine = sentence;
  const auto known = bounded(t);
  CHECK(known.schedule.size() + known.device.size() + known.program->engine.size() < 1000);
  CHECK(known.events.size() == 200);
  CHECK(known.events[0].size() < 5000);
  CHECK(known.iterations.size() == 256);
  CHECK(known.iterations[0].program->values.size() == 16);
  CHECK(known.iterations[0].program->values[0].name.size() < 300);
}

TEST_CASE("a sentence that everybody reads has nothing that a job has said") {
  const auto is = [](const char* own, const char* shown) {
    INFO(own);
    CHECK(public_detail(own) == shown);
  };
  const char* hidden = "its owner and operators see why";
  is("", "");
  is("exit status 1: CUDA out of memory while loading /data/secret",
     "exit status 1: it says that it ran out of memory");
  is("rank 1 on east-2: exit status 1: CUDA out of memory: secret",
     "rank 1 on east-2: exit status 1: it says that it ran out of memory");
  is("exit status 137 (SIGKILL)", "exit status 137 (SIGKILL)");
  is("rank 1 on east-2: exit status 9", "rank 1 on east-2: exit status 9");
  is("node east-2: exit status 1: CUDA out of memory: secret",
     "node east-2: exit status 1: it says that it ran out of memory");
  is("node east-2 is being stopped", "node east-2 is being stopped");
  is("stage 0 of pipeline 1 on node a: layer 3 (Block): ValueError: secret (gpt.py:41)",
     "stage 0 of pipeline 1 on node a: its owner and operators see why");
  is("failed, or lost its node, in 3 consecutive attempts without progress (max_restarts 2); most "
     "recently: exit status 1: secret: x",
     "failed, or lost its node, in 3 consecutive attempts without progress (max_restarts 2); most "
     "recently: exit status 1: it says that it ran out of memory");
  is("/home/alice/secret: cannot be opened", hidden);
  is("ValueError: secret", hidden);
  is("cancelled by alice", "cancelled by alice");
  is("node a was silent for 3.5 s", "node a was silent for 3.5 s");
  is("resumed after iteration 4 of 9", "resumed after iteration 4 of 9");
}
