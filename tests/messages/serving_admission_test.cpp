#include <catch2/catch.hpp>

#include <functional>

#include "messages/admission/admission.hpp"
#include "messages/base/units.hpp"
#include "messages/domain/served_bytes.hpp"

using namespace troupe;

namespace {

/// Two layers of 64, in pages of 64 positions: a page has 2 x 2 x 64 x 64 numbers, 65,536 bytes.
model small_model() {
  model m;
  m.name = "small";
  m.hidden = 64;
  m.layers = 2;
  m.heads = 4;
  m.sequence = 512;
  m.vocabulary = 256;
  return m;
}

job_spec decoder() {
  job_spec job;
  job.name = "decoder";
  job.serve.emplace();
  job.serve->model = {"small", "/models/small", {}, small_model()};
  job.model = small_model();
  return job;
}

job_spec lender() {
  job_spec job;
  job.name = "lender";
  job.model = small_model();
  job.train.emplace();
  job.train->data = "/text";
  job.pipeline.bubbles.emplace();
  job.pipeline.bubbles->model = decoder().serve->model;
  return job;
}

std::string said(const job_spec& job) {
  const auto ok = admission::admit(job);
  return ok ? "" : ok.error().text;
}

struct change {
  const char* words;  // what the refusal must have; empty: it is admitted
  std::function<void(job_spec&)> make;
};

void check_all(const std::function<job_spec()>& good, const std::vector<change>& changes) {
  REQUIRE(said(good()).empty());
  for (const auto& c : changes) {
    auto job = good();
    c.make(job);
    const auto why = said(job);
    INFO(c.words << " in: " << why);
    CHECK(why.empty() == std::string{c.words}.empty());
    CHECK(why.find(c.words) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("every field of a job that serves a model has bounds") {
  check_all(
      decoder,
      {
          {"serve: model: found the name ''", [](auto& j) { j.serve->model.name.clear(); }},
          {"serve: model: found the name 'a/b'", [](auto& j) { j.serve->model.name = "a/b"; }},
          {"expected an absolute path", [](auto& j) { j.serve->model.folder = "models/small"; }},
          {"expected an absolute path", [](auto& j) { j.serve->model.folder.clear(); }},
          {"expected an absolute path",
           [](auto& j) { j.serve->model.folder = "/" + std::string(5000, 'x'); }},
          {"", [](auto& j) { j.serve->model.random_weights = ~0ull; }},
          {"serve: model: layers: found 0", [](auto& j) { j.serve->model.shape.layers = 0; }},
          {"3 heads do not divide hidden", [](auto& j) { j.serve->model.shape.heads = 3; }},
          {"of family bert, which generates no text",
           [](auto& j) { j.serve->model.shape.family = "bert"; }},
          {"", [](auto& j) { j.serve->model.shape.family = "llama"; }},
          {"serve: kv_gb: found 0", [](auto& j) { j.serve->kv_gb = 0; }},
          {"serve: kv_gb: found -1", [](auto& j) { j.serve->kv_gb = -1; }},
          {"serve: kv_gb: found 2000000", [](auto& j) { j.serve->kv_gb = 2e6; }},
          {"a number is not finite", [](auto& j) { j.serve->kv_gb = NAN; }},
          {"serve: context: found 513", [](auto& j) { j.serve->context = 513; }},
          {"", [](auto& j) { j.serve->context = 512; }},
          {"serve: max_running: found 0", [](auto& j) { j.serve->max_running = 0; }},
          {"serve: max_running: found 5000", [](auto& j) { j.serve->max_running = 5000; }},
          {"serve: max_sequences: found 63", [](auto& j) { j.serve->max_sequences = 63; }},
          {"serve: max_sequences: found 65537", [](auto& j) { j.serve->max_sequences = 65537; }},
          {"serve: ttft_s: found 0", [](auto& j) { j.serve->ttft_s = 0; }},
          {"serve: threads: found 0", [](auto& j) { j.serve->threads = 0; }},
          {"serve: threads: found 1025", [](auto& j) { j.serve->threads = 1025; }},
          {"", [](auto& j) { j.serve->threads = 2; }},
          {"serve: ttft_s: found 3601", [](auto& j) { j.serve->ttft_s = 3601; }},
          {"serve: fallback", [](auto& j) { j.serve->bubbles = j.serve->fallback = false; }},
          {"command: not for a job that serves", [](auto& j) { j.program.command = {"sh"}; }},
          {"train: not for a job that serves", [](auto& j) { j.train.emplace(); }},
          {"slots: not for a job that serves",
           [](auto& j) {
             j.slots.emplace();
             j.pipeline = {1, 1, 1};
           }},
          {"pipeline: not for a job that serves", [](auto& j) { j.pipeline.stages = 2; }},
          {"iterations: not for a job that serves", [](auto& j) { j.iterations = 2; }},
          {"global_batch: not for a job that serves", [](auto& j) { j.global_batch = 2; }},
          {"microbatches: not for a job that serves", [](auto& j) { j.microbatches = 1; }},
          {"slo_s: not for a job that serves", [](auto& j) { j.limits.slo_s = 5; }},
          {"deadline_s: not for a job that serves", [](auto& j) { j.limits.deadline_s = 5; }},
          {"budget: not for a job that serves", [](auto& j) { j.limits.budget = 5; }},
          {"environment: not for a job that serves",
           [](auto& j) { j.program.environment["A"] = "1"; }},
          {"working_directory: not for a job that serves",
           [](auto& j) { j.program.working_directory = "/"; }},
          {"memory_gb: not for a job that serves", [](auto& j) { j.memory.emplace(); }},
          {"kernels: not for a job that serves", [](auto& j) { j.kernels = "flash"; }},
          {"",
           [](auto& j) {
             j.priority = 7;
             j.limits.required_gpu_type = "A40";
             j.limits.max_gpus = 1;
           }},
      });
}

TEST_CASE("a decoder's cache holds at least one sequence of its longest context") {
  CHECK(cache_page_bytes(small_model()) == 65536);
  auto grouped = small_model();
  grouped.kv_heads = 1;
  CHECK(cache_page_bytes(grouped) == 65536 / 4);
  CHECK(cache_pages_of(0) == 0);
  CHECK(cache_pages_of(1) == 1);
  CHECK(cache_pages_of(64) == 1);
  CHECK(cache_pages_of(65) == 2);
  CHECK(cache_pages_of(~0u) == 67'108'864);
  auto job = decoder();  // 512 positions are 8 pages
  job.serve->kv_gb = 8 * 65536 / bytes_per_gb;
  CHECK(said(job).empty());
  job.serve->kv_gb = 7.9 * 65536 / bytes_per_gb;
  CHECK(said(job).find("kv_gb: found") != std::string::npos);
  CHECK(said(job).find("at least 0.0006: what one sequence of 512 positions takes") !=
        std::string::npos);
  job.serve->context = 448;
  CHECK(said(job).empty());
}

TEST_CASE("every field of how a training lends its bubbles has bounds") {
  const auto b = [](job_spec& j) -> bubble_lending& { return *j.pipeline.bubbles; };
  check_all(
      lender,
      {
          {"bubbles: model: found the name", [=](auto& j) { b(j).model.name = " "; }},
          {"expected an absolute path", [=](auto& j) { b(j).model.folder = "x"; }},
          {"bubbles: model: hidden: found 0", [=](auto& j) { b(j).model.shape.hidden = 0; }},
          {"of family vit", [=](auto& j) { b(j).model.shape.family = "vit"; }},
          {"bubbles: memory_gb: found 0", [=](auto& j) { b(j).memory_gb = 0; }},
          {"bubbles: depth: found 1001", [=](auto& j) { b(j).depth = 1001; }},
          {"bubbles: rule: found 'fast', expected one of whole, look-ahead, chunked, resumable",
           [=](auto& j) { b(j).rule = "fast"; }},
          {"bubbles: look_ahead: found 0", [=](auto& j) { b(j).look_ahead = 0; }},
          {"bubbles: chunk: found 0", [=](auto& j) { b(j).chunk = 0; }},
          {"bubbles: op_ms: found -1", [=](auto& j) { b(j).op_ms = -1; }},
          {"bubbles: guard_ms: found -1", [=](auto& j) { b(j).guard_ms = -1; }},
          {"bubbles: delay_budget: found 1.5", [=](auto& j) { b(j).delay_budget = 1.5; }},
          {"only a training has bubbles", [](auto& j) { j.train.reset(); }},
          {"",
           [=](auto& j) {
             b(j).depth = 3;
             b(j).rule = "chunked";
             b(j).guard_ms = 0;
           }},
          // Without real guests the files are not needed.
          {"",
           [=](auto& j) {
             j.train->device = "sim";
             b(j).model.folder.clear();
           }},
          {"",
           [=](auto& j) {
             j.train->device = "sim";
             b(j).model = {};
           }},
          {"bubbles: model: found the name ''", [=](auto& j) { b(j).model = {}; }},
      });
}
