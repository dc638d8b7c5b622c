#include "messages/codec/shared_reply.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <optional>
#include <utility>

#include "messages/codec/codec.hpp"

using namespace troupe;

TEST_CASE("a reply encoded once for many clients has the bytes of one encoded for each") {
  query_reply r;
  r.policy = "frenzy";
  for (job_id id = 1; id <= 300; ++id) {
    job_status j;
    j.job = id;
    j.name = "job-" + std::to_string(id);
    j.where = {{0, 2}};
    j.waiting_reason = "priority";
    r.jobs.push_back(j);
  }
  r.nodes.push_back({0, "a", "A40", true, 4, 2});
  r.gateways_absent = {"north"};
  r.gateways = {{"south", {1, 2, 3}}};
  const std::pair<std::optional<bool>, std::optional<job_id>> ends[] = {
      {{}, {}}, {true, {}}, {{}, 301}, {true, 301}};
  for (const auto& [older, next] : ends) {
    r.older_left_out = older;
    r.next = next;
    const shared_reply shared{r};
    for (const std::uint64_t request : {1ULL, 200ULL, 0x0123456789abcdefULL}) {
      r.request = request;
      r.now_s = 5.25 + static_cast<double>(request);
      const auto whole = encode(controller_address, first_client_address + 3, r);
      const auto quick =
          shared.encode_for(controller_address, first_client_address + 3, request, r.now_s);
      CHECK(std::ranges::equal(whole.header.bytes(), quick.header.bytes()));
      const auto back = decode(quick.header.bytes());
      REQUIRE(back);
      CHECK(std::get<query_reply>(back->second) == r);
    }
  }
}
