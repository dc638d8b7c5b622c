#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <vector>

#include "actors/training/trainer/resume_events.hpp"
#include "gpu/model/safetensors.hpp"
#include "harness/scratch.hpp"

namespace troupe::actors::tests {

namespace {

job_spec program_job(std::uint32_t global_batch, const std::string& arguments,
                     const std::string& sha256) {
  job_spec job;
  job.global_batch = global_batch;
  job.train.emplace();
  job.train->program.emplace();
  job.train->program->file = "/program.py";
  job.train->program->arguments = arguments;
  job.train->program->sha256 = sha256;
  return job;
}

/// A checkpoint of one layer, whose metadata are these.
expected<std::optional<gpu::layer_origin>> origin_with(
    const std::map<std::string, std::string>& metadata) {
  const troupe::test::scratch folder;
  const std::filesystem::path file{folder.path("layer-00000.safetensors")};
  const std::vector<float> values{1, 2};
  const std::vector<gpu::tensor_to_store> tensors{{"0.weight", {2}, values}};
  REQUIRE(gpu::write_safetensors(file, tensors, metadata));
  const auto found = gpu::checkpoint::open(file.parent_path());
  REQUIRE(found);
  return gpu::origin_of(*found);
}

pipeline_wish wish_of(std::uint32_t stages, std::uint32_t pipelines) {
  pipeline_wish wish;
  wish.stages = stages;
  wish.data_parallel = pipelines;
  return wish;
}

}  // namespace

TEST_CASE(
    "a program's checkpoint says with what it was written, and the built-in model's does not") {
  const auto program =
      origin_with({{"iteration", "3"},
                   {"troupe", R"({"sha256": "ab", "arguments": {"width": 8, "lr": 0.1}, "data": )"
                              R"({"seed": 1, "global_batch": 4, "length": 64, "samples": 12}})"}});
  REQUIRE(program);
  REQUIRE(*program);
  CHECK((*program)->sha256 == "ab");
  CHECK((*program)->arguments == R"({"lr":0.1,"width":8})");
  CHECK((*program)->global_batch == 4);
  CHECK((*program)->samples == 12);

  const auto older = origin_with({{"iteration", "3"}, {"troupe", R"({"data": [1], "sha256": 3})"}});
  REQUIRE(older);
  REQUIRE(*older);
  CHECK((*older)->sha256.empty());
  CHECK(!(*older)->arguments);
  CHECK(!(*older)->global_batch);

  const auto built_in = origin_with({{"iteration", "3"}});
  REQUIRE(built_in);
  CHECK(!*built_in);
  CHECK(!origin_with({{"iteration", "3"}, {"troupe", "[1]"}}));
}

TEST_CASE("what a job has otherwise than its checkpoint is said, one sentence each") {
  gpu::layer_origin then;
  then.sha256 = "ab";
  then.arguments = R"({"lr":0.1,"width":8})";
  then.global_batch = 4;
  then.samples = 12;
  CHECK(changes_since(then, program_job(4, R"({"width": 8, "lr": 0.1})", "ab")).empty());
  CHECK(changes_since({}, program_job(4, "", "ab")).empty());
  CHECK(changes_since(then, program_job(16, R"({"width": 8, "lr": 0.1})", "ab")) ==
        std::vector<std::string>{"the checkpoint is of a global batch of 4 samples, the job's is "
                                 "16: it goes on at sample 12 of their order"});
  CHECK(changes_since(then, program_job(4, R"({"width": 8, "lr": 0.0})", "ab")) ==
        std::vector<std::string>{
            R"(the checkpoint was written with arguments {"lr":0.1,"width":8}, the job's are )"
            R"({"lr":0.0,"width":8}: the options of the optimizer and its schedule go on as they )"
            "were saved"});
  const auto all = changes_since(then, program_job(8, "", "cd"));
  REQUIRE(all.size() == 3);
  CHECK(all[1].find("the job's are {}:") != std::string::npos);
  CHECK(all[2].find("the program's file has changed since") == 0);
  job_spec built_in;
  built_in.global_batch = 16;
  built_in.train.emplace();
  CHECK(changes_since(then, built_in).empty());
}

TEST_CASE("a training that has fewer stages or pipelines than it asks for says so") {
  CHECK(smaller_than_asked(wish_of(2, 1), 2, 1).empty());
  CHECK(smaller_than_asked(wish_of(0, 0), 1, 1).empty());
  CHECK(smaller_than_asked(wish_of(2, 0), 3, 4).empty());
  CHECK(smaller_than_asked(wish_of(2, 0), 1, 1)
            .find("asked for 2 stages in 1 pipeline, and has 1 in 1: ") == 0);
  CHECK(smaller_than_asked(wish_of(2, 2), 2, 1)
            .find("asked for 2 stages in 2 pipelines, and has 2 in 1: ") == 0);
}

TEST_CASE("options of a folder's training are those of the job after a resume, which is said") {
  auto job = program_job(8, R"({"learning_rate": 0.1, "clip": 1, "rows": 9})", "");
  job.train->program->file.clear();
  gpu::layer_origin then;
  then.arguments = R"({"learning_rate": 0.2, "clip": 1, "rows": "/a/file"})";
  then.sha256 = "ab";
  const auto found = changes_since(then, job);
  REQUIRE(found.size() == 1);
  CHECK(found[0] ==
        "learning_rate was 0.2 when the checkpoint was written, and is 0.1 from here on");
}

}  // namespace troupe::actors::tests
