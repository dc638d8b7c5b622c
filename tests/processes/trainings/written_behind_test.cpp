#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gpu/model/checkpoint.hpp"
#include "gpu/model/checkpoint_fence.hpp"
#include "messages/base/random.hpp"
#include "processes/trainings.hpp"
#include "runtime/host/pause.hpp"

// Trainings that write a checkpoint behind each iteration, in real processes that are killed.

using namespace troupe;
using namespace troupe::test;

namespace {

/// Three nodes of two GPUs in one datacenter, and two pipelines of two stages.
class saving_nodes : public fixture {
 public:
  explicit saving_nodes(const char* name)
      : fixture{name,
                fs::path{troupe::test::source_dir()} / "tests/processes/clusters/two-sites.yaml",
                cli::default_policy} {
    REQUIRE(wait_for_nodes());
  }

  job_spec saving(const std::string& name, std::uint64_t iterations) {
    auto job = two_stages(*this, iterations);
    chosen_group g{2, 2, {}};
    for (int s = 0; s < 2; ++s) g.stages.push_back({"T4", 4, {}, "west"});
    job.name = name;
    job.microbatches.reset();
    job.global_batch = 2 * static_cast<std::uint32_t>(microbatches_of({g}));
    job.pipeline = {};
    job.pipeline.groups = {g};
    job.limits.max_restarts = 1000;
    job.train->checkpoint = (state / name).string();
    job.train->checkpoint_every = 1;
    return job;
  }
};

using tensor_bytes = std::map<std::string, std::vector<std::byte>>;

/// All that the files of a checkpoint have, moments too.
tensor_bytes tensors_of(const fs::path& directory) {
  tensor_bytes all;
  const auto from = gpu::checkpoint::open(directory);
  INFO(directory);
  REQUIRE(from);
  for (const auto& file : from->files())
    for (const auto& t : file.all()) {
      auto& bytes = all[t.name];
      bytes.resize(t.end - t.begin);
      REQUIRE(file.read_bytes(t, 0, bytes));
    }
  return all;
}

/// Whether the newest checkpoint of the job could be compared with that of the same iteration,
/// which an undisturbed training may have skipped while it wrote another.
bool compare_newest(const job_spec& job, const fs::path& expected) {
  const fs::path root = job.train->checkpoint;
  if (!gpu::newest_checkpoint(root)) return false;
  const auto newest = gpu::newest_sound_checkpoint(root, job.model);
  REQUIRE(newest);
  CHECK(newest->damaged.empty());
  const auto same = gpu::checkpoint_directory(expected, newest->iteration);
  const auto found = tensors_of(gpu::checkpoint_directory(root, newest->iteration));
  if (!fs::exists(same / gpu::checkpoint_index)) return false;
  CHECK(found == tensors_of(same));
  return true;
}

/// Kills a process of the training, looks at the disk as it left it, and starts it again.
bool kill_and_look(saving_nodes& f, const job_spec& job, job_id id, std::size_t part,
                   const fs::path& expected) {
  const auto about = f.job(id);
  if (about.where.empty()) return false;
  const auto node = f.jobs().nodes.at(about.where[part % about.where.size()].node).name;
  f.cluster->kill(node);
  const bool compared = compare_newest(job, expected);
  REQUIRE(f.cluster->restart(node));
  return compared;
}

/// Trainings whose nodes, that of the trainer among them, are killed until so many kills left a
/// checkpoint that could be compared. Each attempt goes on from what was written before it.
void survive(const char* name, int kills, std::uint64_t seed) {
  saving_nodes f{name};
  constexpr std::uint64_t length = 100;
  const auto undisturbed = f.saving("undisturbed", length);
  const auto curve = trained(f, undisturbed);
  random_source random{seed};
  int compared = 0;
  for (int round = 0; compared < kills; ++round) {
    REQUIRE(round < 10 + kills);
    const auto job = f.saving("killed-" + std::to_string(round), length);
    const auto id = f.submit(job);
    std::uint64_t after = 3;
    for (int i = 0; i < 5 && compared < kills; ++i) {
      after += random.below(length / 4);
      REQUIRE(f.wait_until(
          [&](const auto& jobs) { return all_final(jobs) || iterations(f, id) >= after; }));
      if (all_final(f.jobs())) break;
      if (kill_and_look(f, job, id, random.below(2), undisturbed.train->checkpoint)) ++compared;
    }
    const bool ended = f.wait_until(all_final);
    INFO(f.job(id).detail);
    REQUIRE(ended);
    CHECK(f.job(id).state == job_state::finished);
    check_same_curve(curve, how(f, id));
    CHECK(compare_newest(job, undisturbed.train->checkpoint));
  }
}

}  // namespace

TEST_CASE("the newest checkpoint of a training that is killed is that of an undisturbed one") {
  survive("saved-behind", 3, 1);
}

TEST_CASE("the newest checkpoint is that of an undisturbed training, after each of 50 kills",
          "[.long]") {
  survive("saved-behind-long", 50, 2);
}
