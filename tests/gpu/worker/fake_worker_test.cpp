#include <catch2/catch.hpp>

#include "gpu/worker/forked_worker.hpp"
#include "gpu/worker/tensor_bytes.hpp"
#include "harness/scratch.hpp"
#include "harness/shell.hpp"
#include "harness/source_dir.hpp"

// A stage in a process, end to end. Its layers are y = a x with a = 1, 1.5, 2, ...

namespace troupe::test {

namespace kind = gpu::operations;

namespace {

bool has_python() {
  static const bool has = test::run("python3 -c 'import json'").status == 0;
  if (!has) WARN("without python3 nothing is tested here");
  return has;
}

struct fixture {
  scratch directory;

  gpu::python_spec spec(std::uint32_t first, std::uint32_t layers, std::uint32_t stage,
                        std::uint32_t stages) {
    gpu::python_spec s;
    s.command = {"python3", "-B", source_dir() + "/tests/gpu/worker/fake_worker.py"};
    s.stage.first_layer = first;
    s.stage.layers = layers;
    s.stage.stage = stage;
    s.stage.stages = stages;
    s.stage.rows = 2;
    s.socket_directory = directory.path();
    s.token = "secret";
    return s;
  }
  gpu::python_stage make(const gpu::python_spec& s, const variables& more = {},
                         int* pid = nullptr) {
    auto made = gpu::make_python_device(s, forked(more, pid));
    if (!made) FAIL(made.error().text);
    return std::move(*made);
  }
};

template <class What>
typename What::result done(gpu::program_device& d, What what) {
  auto r = run(d, std::move(what));
  if (!r) FAIL(r.error().text);
  return r->template of<What>();
}

kind::forward forward(std::uint32_t microbatch, payload in = {}) {
  return {microbatch, true, std::move(in)};
}
kind::backward backward(std::uint32_t microbatch, payload in = {}) {
  return {microbatch, std::move(in)};
}

}  // namespace

TEST_CASE_METHOD(fixture, "two stages in processes train as one by hand") {
  if (!has_python()) return;
  auto first = make(spec(0, 1, 0, 2));
  auto last = make(spec(1, 2, 1, 2));
  CHECK(first.ready.own_parameters == 1);
  CHECK(last.ready.layers.size() == 2);
  CHECK(last.ready.layers[0].name == "Scale");
  // Two micro-batches in flight: x is {0, 1} and {1, 2}; a is 1; 1.5, 2.
  std::vector<payload> activations;
  for (const std::uint32_t m : {0u, 1u}) {
    activations.push_back(done(*first.device, forward(m)).activation);
    REQUIRE_FALSE(activations.back().empty());
  }
  CHECK(vector_of(activations[0]) == std::vector<float>{0, 1});
  CHECK(vector_of(activations[1]) == std::vector<float>{1, 2});
  CHECK(done(*last.device, forward(0, activations[0])).loss == 1.5);
  CHECK(done(*last.device, forward(1, activations[1])).loss == 4.5);
  for (const std::uint32_t m : {0u, 1u}) {
    const auto gradient = done(*last.device, backward(m)).gradient;
    CHECK(vector_of(gradient) == std::vector<float>{1.5, 1.5});
    CHECK(done(*first.device, backward(m, gradient)).gradient.empty());
  }
  // d loss / d a over both: first 3 x 0.5 + 3 x 1.5, then 2 x 2, then 1.5 x 2.
  const auto sums = done(*first.device, kind::gradients{});
  CHECK(sums.own.values<float>() == std::vector<float>{6});
  CHECK(sums.tied.empty());
  CHECK(done(*last.device, kind::gradients{}).own.values<float>() == std::vector<float>{4, 3});
  CHECK(done(*last.device, kind::norms{}).squared == std::vector<double>{16, 9});
  const auto updated = done(*last.device, kind::update{.scale = 0.5});
  CHECK(updated.squared_norm == 6.25);
  CHECK(updated.peak_bytes == 4096);
  const auto weights = done(*last.device, kind::weights{});
  CHECK(weights.own.values<float>()[0] == Approx(1.48));
  CHECK(weights.own.values<float>()[1] == Approx(1.985));
}

TEST_CASE_METHOD(fixture, "gradient sums from other pipelines replace the device's own") {
  if (!has_python()) return;
  auto s = make(spec(0, 1, 0, 1));
  done(*s.device, forward(1));
  done(*s.device, backward(1));
  done(*s.device, kind::gradients{});
  done(*s.device, kind::update{.sums = {payload{std::vector<float>{10}}, payload{}}});
  CHECK(done(*s.device, kind::weights{}).own.values<float>()[0] == Approx(0.9));
  const auto wrong =
      run(*s.device, kind::update{.sums = {payload{std::vector<float>{1, 2}}, payload{}}});
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().text == "the gradients have 4 and 0 bytes, got 8");
}

TEST_CASE_METHOD(fixture, "an output that is larger than all before gets a larger buffer") {
  if (!has_python()) return;
  auto how = spec(0, 1, 0, 2);
  how.stage.rows = 400'000;
  auto s = make(how);
  std::vector<payload> held;
  for (std::uint32_t m = 0; m < 4; ++m) held.push_back(done(*s.device, forward(m)).activation);
  for (std::uint32_t m = 0; m < 4; ++m) {
    const auto values = vector_of(held[m]);
    REQUIRE(values.size() == 400'000);
    CHECK(values[7] == static_cast<float>(m + 7));
  }
}

TEST_CASE_METHOD(fixture,
                 "with little shared memory tensors are copied, and results are the same") {
  if (!has_python()) return;
  auto how = spec(0, 1, 1, 3);
  how.buffer_bytes = 2 << 20;
  auto s = make(how);
  std::vector<float> x(100'000);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 1000);
  std::vector<payload> held;
  for (std::uint32_t m = 0; m < 12; ++m) {
    x[0] = static_cast<float>(m);
    held.push_back(done(*s.device, forward(m, vector_payload(x))).activation);
  }
  for (std::uint32_t m = 0; m < 12; ++m) {
    x[0] = static_cast<float>(m);
    CHECK(vector_of(held[m]) == x);
    CHECK(vector_of(done(*s.device, backward(m, held[m])).gradient) == x);
  }
}

TEST_CASE_METHOD(fixture, "a checkpoint is loaded by another worker") {
  if (!has_python()) return;
  const auto path = directory.path("saved");
  {
    auto s = make(spec(0, 2, 0, 1));
    done(*s.device, forward(1));
    done(*s.device, backward(1));
    done(*s.device, kind::update{});
    done(*s.device, kind::save{path});
  }
  auto s = make(spec(0, 2, 0, 1));
  done(*s.device, kind::load{path});
  const auto a = done(*s.device, kind::weights{}).own.values<float>();
  CHECK(a[0] == Approx(0.9775));
  CHECK(a[1] == Approx(1.485));
}

TEST_CASE_METHOD(fixture, "an exception is the operation's error, and the worker goes on") {
  if (!has_python()) return;
  auto s = make(spec(0, 1, 0, 1), {{"TROUPE_FAKE", "forward:raise"}});
  const auto r = run(*s.device, forward(0));
  REQUIRE_FALSE(r);
  CHECK(r.error().code == reason::kind::invalid);
  CHECK(r.error().text.starts_with("layer 1 (Scale): ValueError: wrong shapes (fake_worker.py:"));
  CHECK(done(*s.device, forward(0)).loss == 0.5);
}

TEST_CASE_METHOD(fixture, "a worker that lacked memory has ended when the node knows of it") {
  if (!has_python()) return;
  int pid = 0;
  auto s = make(spec(0, 1, 0, 1), {{"TROUPE_FAKE", "forward:memory"}}, &pid);
  CHECK(is_alive(pid));
  const auto r = run(*s.device, forward(0));
  REQUIRE_FALSE(r);
  CHECK_FALSE(is_alive(pid));
  CHECK(r.error().code == reason::kind::out_of_memory);
  CHECK(run(*s.device, forward(0)).error().text == r.error().text);
}

TEST_CASE_METHOD(fixture, "a worker that is killed in any operation is lost, and nothing is left") {
  if (!has_python()) return;
  const auto killed = [&](const std::string& name, auto what) {
    int pid = 0;
    auto s = make(spec(0, 1, 0, 1), {{"TROUPE_FAKE", name + ":die"}}, &pid);
    if (kind::is_one_of<decltype(what), kind::recompute, kind::backward>)
      done(*s.device, forward(0));
    const auto r = run(*s.device, what);
    REQUIRE_FALSE(r);
    CHECK(r.error().code == reason::kind::worker_lost);
    CHECK(r.error().text == "the worker was killed by signal 9 during " + name);
    s.device = nullptr;
    CHECK_FALSE(is_alive(pid));
  };
  killed("forward", forward(0));
  killed("recompute", kind::recompute{});
  killed("backward", backward(0));
  killed("gradients", kind::gradients{});
  killed("norms", kind::norms{});
  killed("update", kind::update{});
  killed("save", kind::save{directory.path("f")});
  killed("load", kind::load{directory.path("f")});
  killed("weights", kind::weights{});
}

TEST_CASE_METHOD(fixture, "a worker that is killed while it starts is lost") {
  if (!has_python()) return;
  for (const std::string name : {"setup", "region", "start"}) {
    int pid = 0;
    const auto made =
        gpu::make_python_device(spec(0, 1, 0, 1), forked({{"TROUPE_FAKE", name + ":die"}}, &pid));
    REQUIRE_FALSE(made);
    CHECK(made.error().text == "the worker was killed by signal 9 during " + name);
    CHECK_FALSE(is_alive(pid));
  }
}

TEST_CASE_METHOD(fixture, "a worker that exits, or closes its connection and lives on, is lost") {
  if (!has_python()) return;
  int pid = 0;
  auto s = make(spec(0, 1, 0, 1), {{"TROUPE_FAKE", "forward:exit"}}, &pid);
  CHECK(run(*s.device, forward(0)).error().text == "the worker ended with status 3 during forward");
  s = make(spec(0, 1, 0, 1), {{"TROUPE_FAKE", "forward:close"}}, &pid);
  CHECK(run(*s.device, forward(0)).error().text ==
        "the worker closed its connection during forward");
  s.device = nullptr;
  CHECK_FALSE(is_alive(pid));
}

TEST_CASE_METHOD(fixture, "a worker that hangs does not outlive its device") {
  if (!has_python()) return;
  int pid = 0;
  auto s = make(spec(0, 1, 0, 1), {{"TROUPE_FAKE", "forward:hang"}}, &pid);
  bool answered = false;
  s.device->submit({forward(0)}, [&](const expected<gpu::outcome>& r) { answered = !r; });
  s.device = nullptr;
  CHECK(answered);
  CHECK_FALSE(is_alive(pid));
}

}  // namespace troupe::test
