#include "actors/gateway/transfer.hpp"

#include <catch2/catch.hpp>

#include "messages/base/random.hpp"

using namespace troupe;
using namespace troupe::actors;
using phase = transfer_state::phase;

TEST_CASE(
    "a transfer ends when its parts are handed over and accepted, and its link time has passed") {
  transfer_state t{2, true};
  CHECK(t.now() == phase::waiting);
  t.part_begins(0);
  t.frame_queued();
  t.frame_queued();
  t.part_ends();
  CHECK(t.now() == phase::sending);
  t.frame_gone();
  t.part_begins(1);
  t.part_ends();
  CHECK(t.now() == phase::draining);
  CHECK_FALSE(t.all_accepted());
  t.frame_gone();
  CHECK(t.all_accepted());
  CHECK_FALSE(t.is_link_through());
  t.link_ended();
  CHECK(t.is_link_through());
  CHECK(t.take_credit());
  CHECK_FALSE(t.take_credit());
  t.end(false);
  CHECK(t.now() == phase::over);
}

TEST_CASE("a local delivery crosses no link, and a dropped transfer has not begun") {
  transfer_state delivery{1, false};
  CHECK(delivery.is_link_through());
  delivery.part_begins(0);
  delivery.part_ends();
  CHECK(delivery.all_accepted());
  delivery.take_credit();
  delivery.end(false);
  CHECK(delivery.now() == phase::over);
  transfer_state dropped{7, true};
  dropped.take_credit();
  dropped.end(true);
  CHECK(dropped.now() == phase::over);
}
