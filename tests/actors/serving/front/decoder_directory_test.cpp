#include "actors/serving/front/known_prefixes.hpp"

#include <catch2/catch.hpp>

#include <utility>

#include "actors/host_fixture.hpp"

// Which decoders a front believes, and which of them it chooses.

using namespace troupe;
using namespace troupe::actors;
using namespace troupe::actors::tests;

namespace {

constexpr address local_front = front_address(0);

}  // namespace

TEST_CASE("of the decoders with room, the own datacenter's, the emptiest, the oldest is chosen") {
  const auto at = [](std::uint32_t site, std::uint32_t free, std::uint32_t running,
                     std::uint32_t context = 256) {
    known_decoder d;
    d.datacenter = site;
    d.state.model = "m", d.state.free_pages = free, d.state.running = running;
    d.state.context = context, d.state.max_sequences = 8;
    return d;
  };
  const decoder_need need{"m", 200, 0, {}};
  decoder_table all;
  CHECK(choose_decoder(all, need).error().code == reason::kind::unavailable);
  all[{b0, 1}] = at(1, 90, 0);
  CHECK(choose_decoder(all, need) == decoder_name{b0, 1});
  all[{a0, 5}] = at(0, 10, 3);
  CHECK(choose_decoder(all, need) == decoder_name{a0, 5});
  all[{a1, 4}] = at(0, 11, 3);
  CHECK(choose_decoder(all, need) == decoder_name{a1, 4});
  all[{a0, 3}] = at(0, 11, 2);
  CHECK(choose_decoder(all, need) == decoder_name{a0, 3});
  all[{a0, 2}] = at(0, 11, 2);
  CHECK(choose_decoder(all, need) == decoder_name{a0, 2});
  all[{a0, 2}].state.ending = true;
  all[{a0, 3}].state.max_sequences = 2;
  all[{a1, 4}].state.context = 199;
  all[{a0, 5}].state.model = "other";
  CHECK(choose_decoder(all, need) == decoder_name{b0, 1});
  CHECK(choose_decoder(all, {"m", 200, 0, {{b0, 1}}}).error().code == reason::kind::insufficient);
  CHECK(choose_decoder(all, {"m", 257, 0, {}}).error().code == reason::kind::invalid);
}

TEST_CASE("a request with an adapter goes to a decoder that serves it, and to no other") {
  known_decoder d;
  d.state.model = "m", d.state.free_pages = 50, d.state.context = 256, d.state.max_sequences = 8;
  decoder_table all{{{a0, 1}, d}, {{a1, 2}, d}};
  decoder_need need{"m", 200, 0, {}, {}, "sql"};
  CHECK(choose_decoder(all, need).error().text == "no decoder for 'sql' is available");
  all[{a1, 2}].state.adapters = std::vector<std::string>{"letters", "sql"};
  all[{a1, 2}].state.free_pages = 1;
  CHECK(choose_decoder(all, need) == decoder_name{a1, 2});
  need.adapter = {};
  CHECK(choose_decoder(all, need) == decoder_name{a0, 1});
}

TEST_CASE("a prompt goes where its beginning has been computed, unless that one is much busier") {
  const auto at = [](std::uint32_t site, std::uint32_t running) {
    known_decoder d;
    d.datacenter = site;
    d.state.model = "m", d.state.free_pages = 50 - running, d.state.running = running;
    d.state.context = 256, d.state.max_sequences = 40;
    return d;
  };
  const decoder_name idle{a0, 1}, warm{a1, 2}, warmer{a1, 3}, far{b0, 4};
  decoder_table all{{idle, at(0, 3)}, {warm, at(0, 5)}, {warmer, at(0, 10)}, {far, at(1, 0)}};
  decoder_need need{"m", 200, 0, {}};
  CHECK(choose_decoder(all, need) == idle);
  need.known = {{warm, 2}, {warmer, 7}, {far, 9}};
  CHECK(choose_decoder(all, need) == warmer);
  all[warmer] = at(0, 11);
  CHECK(choose_decoder(all, need) == warm);
  all[warm].state.max_sequences = 5;
  CHECK(choose_decoder(all, need) == idle);
  need.known = {{idle, 2}, {warm, 2}};
  all[warm] = at(0, 5);
  CHECK(choose_decoder(all, need) == idle);
}

TEST_CASE("a front knows which decoders have the beginning of a prompt, and forgets the oldest") {
  const decoder_name a{a0, 1}, b{a1, 2};
  std::vector<std::uint32_t> prompt(300);
  for (std::uint32_t i = 0; i < prompt.size(); ++i) prompt[i] = i;
  known_prefixes known{6};
  CHECK(known.pages_of("m", prompt).empty());
  known.add("m", prompt, a);
  CHECK(known.pages_of("m", prompt) == std::map<decoder_name, std::uint32_t>{{a, 4}});
  CHECK(known.pages_of("other", prompt).empty());
  // Its last token is computed in any case.
  CHECK(known.pages_of("m", std::span{prompt}.first(128)).at(a) == 1);
  CHECK(known.pages_of("m", std::span{prompt}.first(129)).at(a) == 2);
  auto branch = prompt;
  branch[150] = 7;
  CHECK(known.pages_of("m", branch).at(a) == 2);
  known.add("m", branch, b);
  CHECK(known.pages_of("m", branch) == std::map<decoder_name, std::uint32_t>{{a, 2}, {b, 4}});
  // Six pages are known; two more than that drop the end of the first prompt.
  std::vector<std::uint32_t> third(129, 9);
  known.add("m", third, a);
  CHECK(known.pages_of("m", prompt) == std::map<decoder_name, std::uint32_t>{{a, 2}, {b, 2}});
  CHECK(known.pages_of("m", branch).at(b) == 4);
}

TEST_CASE("a front believes of decoders what the controller's statement allows, and no more") {
  const auto c = cluster_with_fronts(1);
  decoder_directory known{c};
  serving_leases all;
  all.journal = 1, all.epoch = 5, all.sequence = 9;
  served_model_files m;
  m.name = "m", m.folder = "/m", m.hash = 11;
  all.models = {m, harness::model_named("other")};
  all.decoders = {{1, 0, 2, 0}, {7, 1, 4, 0}, {8, 1, 4, 1}, {9, 99, 1, 0}, {10, 0, 2, 99}};
  decoder_state fair;
  fair.lease = 1, fair.sequence = 5, fair.incarnation = 2, fair.model = "m", fair.folder = "/m";
  fair.files = 11, fair.context = 64, fair.pages = 8, fair.free_pages = 8;
  const auto says = [&](address from, const decoder_state& s) {
    return known.receive(from, s, 0).value_or(false);
  };
  const auto but = [&](auto member, auto value) {
    auto s = fair;
    s.sequence = 99;
    s.*member = value;
    return s;
  };
  CHECK_FALSE(known.has_statement());
  CHECK_FALSE(says(a0, fair));
  CHECK(known.state(all));
  CHECK(says(a0, fair));
  CHECK_FALSE(says(a0, fair));  // it is as old as what is known

  SECTION("others, and other things, are refused with a reason") {
    for (const auto& [from, s] : {std::pair{a1, fair},
                                  {b0, fair},
                                  {local_front, fair},
                                  {address{1}, fair},
                                  {a0, but(&decoder_state::lease, lease_id{1} << 40)},
                                  {a0, but(&decoder_state::lease, 7)},
                                  {a0, but(&decoder_state::lease, 10)},
                                  {a1, but(&decoder_state::lease, 8)},
                                  {a0, but(&decoder_state::incarnation, 1)},
                                  {a0, but(&decoder_state::incarnation, 3)},
                                  {a0, but(&decoder_state::model, "other")},
                                  {a0, but(&decoder_state::folder, "/somewhere")},
                                  {a0, but(&decoder_state::files, 12)},
                                  {a0, but(&decoder_state::context, 0)},
                                  {a0, but(&decoder_state::free_pages, 1u << 20)}}) {
      const auto received = known.receive(from, s, 0);
      REQUIRE_FALSE(received);
      CHECK_FALSE(received.error().text.empty());
    }
    CHECK(known.all().size() == 1);
    CHECK(known.all().at({a0, 1}).state == fair);
  }
  SECTION("a model's counts are those of its decoders, whatever becomes of them") {
    auto next = fair;
    const auto counted = [&](std::uint64_t set_back, std::uint64_t computed, std::uint64_t cached) {
      ++next.sequence;
      next.set_back = set_back, next.computed_prompt = computed, next.cached_prompt = cached;
      CHECK(says(a0, next));
      const auto n = known.counts_of("m");
      return std::tuple{n.set_back, n.computed_prompt, n.cached_prompt};
    };
    CHECK(counted(1, 100, 64) == std::tuple{1u, 100u, 64u});
    CHECK(counted(1, 150, 128) == std::tuple{1u, 150u, 128u});
    known.forget_silent(1e9);
    CHECK(known.all().empty());
    CHECK(counted(2, 150, 128) == std::tuple{2u, 150u, 128u});
    // Another decoder takes its place.
    auto later = all;
    later.sequence = 10, later.decoders = {{2, 0, 2, 0}};
    CHECK(known.state(later));
    next.lease = 2;
    CHECK(counted(0, 7, 0) == std::tuple{2u, 157u, 128u});
    CHECK(known.counts_of("other").computed_prompt == 0);
    later.sequence = 11, later.models.clear(), later.decoders.clear();
    CHECK(known.state(later));
    CHECK(known.counts_of("m").computed_prompt == 0);
  }
  SECTION("older statements change nothing, and a newer one replaces all") {
    auto next = all;
    next.decoders.erase(next.decoders.begin());
    CHECK_FALSE(known.state(next));
    next.sequence = 8;
    CHECK_FALSE(known.state(next));
    next.epoch = 4, next.sequence = 100;
    CHECK_FALSE(known.state(next));
    CHECK(known.has({a0, 1}));
    next.epoch = 6, next.sequence = 1;
    CHECK(known.state(next));
    CHECK(known.all().empty());
    CHECK_FALSE(says(a0, but(&decoder_state::sequence, 100)));
    next.journal = 2, next.epoch = 1, next.decoders = {{1, 0, 2, 0}};
    CHECK(known.state(next));
    CHECK(says(a0, fair));
  }
  SECTION("a lease that is another start's ends the earlier one's decoder") {
    all.sequence = 10, all.decoders[0].incarnation = 3;
    CHECK(known.state(all));
    CHECK(known.all().empty());
    CHECK(says(a0, but(&decoder_state::incarnation, 3)));
  }
  SECTION("a decoder that is silent is forgotten, and may come back") {
    known.forget_silent(c->settings.lease_s);
    CHECK(known.all().empty());
    CHECK(says(a0, fair));
  }
  SECTION("a job whose files' hash is unknown has any") {
    all.sequence = 10, all.models[0].hash = 0;
    CHECK(known.state(all));
    CHECK(says(a0, but(&decoder_state::files, 12)));
  }
}
