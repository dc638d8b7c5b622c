#include "actors/control/leases/served_jobs.hpp"

#include <catch2/catch.hpp>

#include "harness/small_cluster.hpp"

// Who may serve which name, and what the controller states about decoders and lent bubbles.

using namespace troupe;
using namespace troupe::actors;

namespace {

served_model_files files(const std::string& folder = "/m") {
  served_model_files m;
  m.name = "m", m.folder = folder, m.hash = 11, m.shape = harness::gpt2();
  return m;
}

job_spec serve(const served_model_files& m) {
  job_spec s;
  s.serve.emplace();
  s.serve->model = m;
  return s;
}

job_spec lend(const served_model_files& m) {
  job_spec s;
  s.train.emplace();
  s.pipeline.bubbles.emplace();
  s.pipeline.bubbles->model = m;
  return s;
}

struct jobs_by_hand {
  cluster c = *harness::small_cluster();
  ledger book{c};
  served_jobs jobs;
  lease_id last_lease = 40;

  job_id accept(const job_spec& s, const std::string& owner = "alice") {
    const auto id = book.next_job();
    REQUIRE(book.apply(job_accepted{id, 1000 + id, 0, s, owner}));
    jobs.add(*book.job(id));
    return id;
  }
  lease_id start(job_id id, const std::vector<node_index>& nodes, std::uint64_t incarnation = 5) {
    lease_granted g;
    g.lease = ++last_lease, g.job = id;
    for (const auto n : nodes) g.parts.push_back({n, incarnation, book.take_lowest(n, 1)});
    REQUIRE(book.apply(g));
    return last_lease;
  }
  std::string why_not(const job_spec& s, const std::string& owner) const {
    const auto ok = jobs.may_serve(book, s, owner);
    return ok ? "" : ok.error().text;
  }
};

}  // namespace

TEST_CASE("a served name belongs to the owner of the unfinished job that serves it") {
  jobs_by_hand x;
  CHECK(x.why_not(serve(files()), "bob").empty());
  const auto id = x.accept(serve(files()));
  CHECK(x.why_not(serve(files()), "alice").empty());
  CHECK(x.why_not(serve(files()), "bob") ==
        "model 'm' is served by job 1 of alice: a name has one owner; serve yours under another "
        "`name`");
  auto other = files();
  other.name = "mine";
  CHECK(x.why_not(serve(other), "bob").empty());
  REQUIRE(x.book.apply(job_ended{id, 9, job_state::cancelled, ""}));
  CHECK(x.why_not(serve(files("/theirs")), "bob").empty());
}

TEST_CASE("a served name has one folder, seed and configuration, for decoders and lent bubbles") {
  jobs_by_hand x;
  x.accept(serve(files()));
  auto seeded = files(), reshaped = files(), retrained = files(), unknown = files();
  seeded.random_weights = 3;
  ++reshaped.shape.layers;
  retrained.hash = 12;
  unknown.hash = 0;
  for (const auto& m : {files("/other"), seeded, reshaped, retrained}) {
    const auto why = x.why_not(serve(m), "alice");
    CHECK_THAT(why, Catch::Contains("model 'm' is served by job 1") &&
                        Catch::Contains("cancel job 1 first"));
    CHECK(x.why_not(lend(m), "alice") == why);
    CHECK(x.why_not(lend(m), "bob") == why);
  }
  CHECK_THAT(x.why_not(serve(files("/other")), "alice"),
             Catch::Contains("from /m, and this job names /other"));
  CHECK_THAT(x.why_not(serve(seeded), "alice"),
             Catch::Contains("with the folder's weights, and this job asks for random weights 3"));
  CHECK(x.why_not(serve(unknown), "alice").empty());
  CHECK(x.why_not(lend(files()), "bob").empty());  // the same weights, on other devices
}

TEST_CASE("the statement has the leases that decode and lend, until they are over") {
  jobs_by_hand x;
  CHECK(x.jobs.statement(x.book) == serving_leases{});
  const auto first = x.accept(serve(files())), second = x.accept(serve(files()));
  const auto training = x.accept(lend(files()), "bob");
  const auto idle = x.jobs.statement(x.book);
  CHECK(idle.models == std::vector{files()});  // served, with no decoder yet
  CHECK(idle.decoders.empty());
  CHECK(idle.lendings.empty());

  const auto a = x.start(first, {0}), b = x.start(second, {4}), t = x.start(training, {2, 1});
  auto all = x.jobs.statement(x.book);
  CHECK(all.models == std::vector{files()});
  CHECK(all.decoders == std::vector<decoder_lease>{{a, 0, 5, 0}, {b, 4, 5, 0}});
  CHECK(all.lendings == std::vector<lending_lease>{{t, {2, 1}, "m"}});

  // One that is to stop ends its requests itself.
  REQUIRE(x.book.apply(lease_revoked{a, 9, lease_outcome::cancelled, "", 0}));
  CHECK(x.jobs.statement(x.book) == all);
  REQUIRE(x.book.apply(part_ended{a, 0, 9, lease_outcome::cancelled, 0, 0, "", {}}));
  REQUIRE(x.book.apply(part_ended{t, 0, 9, lease_outcome::lost, 0, 0, "", {}}));
  REQUIRE(x.book.apply(part_ended{t, 1, 9, lease_outcome::lost, 0, 0, "", {}}));
  all = x.jobs.statement(x.book);
  CHECK(all.decoders == std::vector<decoder_lease>{{b, 4, 5, 0}});
  CHECK(all.lendings.empty());
  REQUIRE(x.book.apply(job_ended{first, 9, job_state::cancelled, ""}));
  CHECK(x.jobs.statement(x.book).models == std::vector{files()});
  CHECK_FALSE(x.jobs.has(first));
}

TEST_CASE("jobs of one name with other files, as older journals may have, are left out") {
  jobs_by_hand x;
  const auto first = x.accept(serve(files())), other = x.accept(serve(files("/other")), "bob");
  const auto training = x.accept(lend(files("/other")), "bob");
  const auto alone = x.accept(lend([] {
    auto m = files("/other");
    m.name = "unserved";
    return m;
  }()));
  const auto a = x.start(first, {0});
  x.start(other, {1}), x.start(training, {2});
  const auto u = x.start(alone, {4});
  const auto all = x.jobs.statement(x.book);
  CHECK(all.models == std::vector{files()});
  CHECK(all.decoders == std::vector<decoder_lease>{{a, 0, 5, 0}});
  CHECK(all.lendings == std::vector<lending_lease>{{u, {4}, "unserved"}});
}
