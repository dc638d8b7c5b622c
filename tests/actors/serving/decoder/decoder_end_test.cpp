#include "actors/serving/decoder/decoder_fixture.hpp"

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;
using Catch::Contains;

// A decoder whose node is to end.

using ending = generated::ending;

TEST_CASE("a decoder that drains ends the requests that it has, and takes no others", "[decoder]") {
  decoder_fixture d;
  d.device->holds = true;
  const auto a = asked(5, 3), b = asked(6, 3);
  d.ask(a);
  d.take<generated>();
  d.post(drain_serving{});
  CHECK(d.last<decoder_state>(front_of_decoder).ending);
  CHECK(d.state().ending);
  d.ask(b);
  CHECK(d.notified_of(b.what.name).finish == ending::failed);
  CHECK(d.notified_of(b.what.name).why.code == reason::kind::unavailable);
  d.ask(a);  // repeated: it has that one
  CHECK(d.notified_of(a.what.name).finish == ending::none);
  d.device->holds = false;
  d.device->finish();
  d.advance(0.1);
  CHECK(d.notified_of(a.what.name).finish == ending::length);
  CHECK(d.notified_of(a.what.name).made == alone(a));
  CHECK(d.serving_ends.empty());  // its front may not have all of it
  d.received(a.what.name, 3, true);
  REQUIRE(d.serving_ends.size() == 1);
  CHECK(d.serving_ends[0].lease == lease_of_decoder);
  CHECK(d.serving_ends[0].detail.empty());
  d.post(drain_serving{});
  CHECK(d.serving_ends.size() == 1);
}

TEST_CASE("a decoder without requests has drained at once, and one whose front has left later",
          "[decoder]") {
  decoder_fixture idle;
  idle.post(drain_serving{});
  CHECK(idle.serving_ends.size() == 1);

  decoder_fixture d;
  d.ask(asked(5, 100));
  d.post(drain_serving{});
  d.post(drain_serving{});
  CHECK(d.serving_ends.empty());
  d.cancel(asked(5).what.name);
  CHECK(d.serving_ends.size() == 1);
}

TEST_CASE("a decoder that is stopped while it drains ends its requests as unavailable",
          "[decoder]") {
  decoder_fixture d;
  d.device->holds = true;
  const auto a = asked(5, 100);
  d.ask(a);
  d.post(drain_serving{});
  d.post(stop_serving{});
  CHECK(d.notified_of(a.what.name).finish == ending::failed);
  CHECK(d.notified_of(a.what.name).why.code == reason::kind::unavailable);
}
