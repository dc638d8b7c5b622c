#include "runtime/journal/memory_journal.hpp"
#include "runtime/journal/sqlite_journal.hpp"
#include "runtime/world.hpp"

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::runtime::test;

namespace {

/// A place where a journal can be opened again and again.
class store {
 public:
  virtual ~store() = default;
  virtual std::shared_ptr<journal> open() = 0;
};

class in_memory final : public store {
 public:
  std::shared_ptr<journal> open() override { return std::make_shared<memory_journal>(disk_); }

 private:
  std::shared_ptr<memory_disk> disk_ = std::make_shared<memory_disk>();
};

class in_file final : public store {
 public:
  std::shared_ptr<journal> open() override {
    auto j = sqlite_journal::open(dir_ / "journal", {.durable = false});
    REQUIRE(j);
    return *j;
  }

 private:
  scratch dir_;
};

std::unique_ptr<store> any_store() {
  const auto kind = GENERATE(as<std::string>{}, "memory", "SQLite");
  CAPTURE(kind);
  if (kind == "memory") return std::make_unique<in_memory>();
  return std::make_unique<in_file>();
}

std::vector<journal_entry> one_of_each() {
  lease_granted g;
  g.lease = 3;
  g.job = 1;
  g.predicted_bytes = 36.74e9;
  g.parts = {{.node = 2, .incarnation = 9, .devices = {0, 1, 3}}};
  job_accepted a;
  a.job = 1;
  a.request = ~std::uint64_t{0};
  a.spec.name = "a job";
  training_report t;
  t.job = 1;
  t.lease = 3;
  t.events = {"re-planned"};
  t.iterations = {{.iteration = 1, .loss = 5.5, .gradient_norm = -0.0}};
  return {
      epoch_begun{.epoch = 1, .at_s = 0.1},
      a,
      g,
      lease_revoked{.lease = 3, .at_s = 2, .why = lease_outcome::lost, .detail = "node \"b-0\"\n"},
      part_ended{.lease = 3,
                 .part = 0,
                 .at_s = -0.0,
                 .outcome = lease_outcome::failed,
                 .iterations = 1,
                 .peak_bytes = 1e300,
                 .detail = std::string(100'000, 'x')},
      job_ended{.job = 1, .at_s = 4, .final_state = job_state::finished, .detail = {}},
      training_progress{t},
      jobs_forgotten{{1, 2}}};
}

std::vector<journal_entry> all_of(const journal& j) {
  std::vector<journal_entry> found;
  const auto ok = j.replay([&](const journal_entry& e) { found.push_back(e); });
  INFO((ok ? std::string{} : ok.error().text));
  REQUIRE(ok);
  return found;
}

}  // namespace

TEST_CASE("a new journal is empty") {
  REQUIRE(all_of(*any_store()->open()).empty());
}

TEST_CASE("every kind of entry is read back in order, in this incarnation and the next") {
  const auto place = any_store();
  const auto written = one_of_each();
  {
    const auto j = place->open();
    for (const auto& e : written) REQUIRE(j->append(e));
    REQUIRE(all_of(*j) == written);
    REQUIRE(all_of(*j) == written);
  }
  const auto j = place->open();
  REQUIRE(all_of(*j) == written);
  REQUIRE(j->append(written[0]));
  auto more = written;
  more.push_back(written[0]);
  REQUIRE(all_of(*j) == more);
}

TEST_CASE("a batch is read back in order, and a snapshot replaces all entries before it") {
  const auto place = any_store();
  const auto written = one_of_each();
  std::uint64_t id = 0;
  {
    const auto j = place->open();
    id = j->id();
    CHECK(id != 0);
    REQUIRE(j->append(written));
    CHECK(j->size() == written.size());
    REQUIRE(j->compact(std::vector<journal_entry>{snapshot_begun{.epochs = {5}}, written[1]}));
    CHECK(j->size() == 2);
    REQUIRE(j->append(written[0]));
    REQUIRE(j->check());
  }
  const auto j = place->open();
  CHECK(j->id() == id);
  CHECK(all_of(*j) ==
        std::vector<journal_entry>{snapshot_begun{.epochs = {5}}, written[1], written[0]});
}

TEST_CASE("many incarnations append to one journal") {
  const auto place = any_store();
  for (std::uint64_t epoch = 1; epoch <= 20; ++epoch) {
    const auto j = place->open();
    REQUIRE(all_of(*j).size() == (epoch - 1) * 10);
    for (int i = 0; i < 10; ++i) REQUIRE(j->append(epoch_begun{.epoch = epoch, .at_s = 1.0 * i}));
  }
  const auto j = place->open();
  const auto found = all_of(*j);
  for (std::size_t i = 0; i < found.size(); ++i)
    REQUIRE(std::get<epoch_begun>(found[i]).epoch == i / 10 + 1);
}
