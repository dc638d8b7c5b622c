// All-reduce of gradients among pipelines, overlapped with backward, on emulated machines.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <future>
#include <stdexcept>

#include "gpu/cuda/host/graphs.hpp"
#include "gpu/emulation/emulated_nccl.hpp"
#include "gpu/grouped.hpp"
#include "harness/facts.hpp"
#include "harness/files.hpp"

using namespace troupe;
using namespace troupe::test;
using gpu::operation;
using gpu::cuda::call;
using gpu::cuda::machine;
namespace step = gpu::operations;

namespace {

constexpr std::size_t small_pieces = 1;  // bytes: as many pieces as there may be
const auto half_summed = "gradient all-reduce already started; expected sum or load";

step::backward last_backward(std::uint32_t microbatch = 0) {
  return {.microbatch = microbatch, .last = true};
}
operation sum_of_all(std::uint32_t) {
  return {step::sum{}};
}

model two_layers(bool tied = true) {
  auto m = small_model(tied);
  m.layers = 2;
  return m;
}

/// Notes kernels, and where sums are put.
class order_noting_machine final : public gpu::cuda::kernel_interceptor {
 public:
  order_noting_machine(std::shared_ptr<machine> m, std::vector<std::string>& notes)
      : kernel_interceptor{std::move(m)}, notes_{notes} {}
  void* stream() override {
    notes_.emplace_back("sum");
    return kernel_interceptor::stream();
  }
  void* side_stream() override {
    notes_.emplace_back("sum beside");
    return kernel_interceptor::side_stream();
  }
  void join_beside() override {
    notes_.emplace_back("join");
    kernel_interceptor::join_beside();
  }

 private:
  void perform(call what, std::function<void(machine&)> how) override {
    notes_.emplace_back(what.name);
    how(behind());
  }
  std::vector<std::string>& notes_;
};

/// Refuses the kernel with that number.
class failing_machine final : public gpu::cuda::kernel_interceptor {
 public:
  failing_machine(std::shared_ptr<machine> m, const int& left)
      : kernel_interceptor{std::move(m)}, left_{left} {}

 private:
  void perform(call, std::function<void(machine&)> how) override {
    if (left_ >= 0 && asked_++ == left_) throw std::runtime_error("the GPU refused a kernel");
    how(behind());
  }
  const int& left_;
  int asked_ = 0;
};

auto count_of(const std::vector<std::string>& all, const std::string& one) {
  return std::ranges::count(all, one);
}

/// Iterations of two micro-batches; everything that comes of them.
struct course {
  std::vector<double> losses, norms;
  std::vector<std::vector<float>> gradients;
  std::vector<std::vector<float>> weights;
  friend bool operator==(const course&, const course&) = default;
};

course learn(pipelines& p, const model& m, bool overlapped) {
  course c;
  for (std::uint64_t i = 0; i < 4; ++i) {
    const auto l = lessons(m, 2, 2 * p.all.size(), i);
    for (std::uint32_t batch = 0; batch < 2; ++batch)
      for (std::size_t d = 0; d < p.all.size(); ++d) {
        c.losses.push_back(run(*p.all[d], forward(l[2 * d + batch], batch)).loss);
        run(*p.all[d], step::backward{.microbatch = batch, .last = overlapped && batch == 1});
      }
    for (const auto& s : on_all(p.all, sum_of_all)) REQUIRE(s);
    for (auto& d : p.all) {
      c.gradients.push_back(both(run(*d, step::gradients{})));
      c.norms.push_back(run(*d, step::update{.scale = 0.25}).squared_norm);
    }
  }
  for (std::size_t d = 0; d < p.all.size(); ++d) c.weights.push_back(p.weights(d));
  return c;
}

}  // namespace

TEST_CASE("an all-reduce overlapped with backward gives the same bits as one after it") {
  const auto count = GENERATE(2u, 3u);
  const bool tied = GENERATE(true, false);
  const bool graphs = GENERATE(true, false);
  CAPTURE(count, tied, graphs);
  std::vector<std::shared_ptr<gpu::cuda::pass_graphs>> made;
  grouped_options how{.piece_bytes = small_pieces};
  const auto m = two_layers(tied);
  pipelines after{count, m, how};
  if (graphs)
    how.before = [&](std::size_t, std::shared_ptr<machine> behind) {
      made.push_back(std::make_shared<gpu::cuda::pass_graphs>(std::move(behind)));
      return made.back();
    };
  pipelines side_stream{count, m, how};
  after.join_communicator(), side_stream.join_communicator();
  const auto a = learn(after, m, false), b = learn(side_stream, m, true);
  CHECK(a == b);
  for (std::size_t i = 1; i < count; ++i) CHECK(b.weights[i] == b.weights[0]);
  for (const auto& g : made) {  // the work between two sums is a graph
    CAPTURE(g->so_far().made, g->so_far().run);
    CHECK(g->so_far().made >= 2 + 4);  // forward, the first backward; the last one's pieces
    CHECK(g->so_far().run > g->so_far().made);
  }
  if (count > 2) return;
  pipelines at_once{count, m};  // two numbers have one sum, however they are cut
  at_once.join_communicator();
  CHECK(learn(at_once, m, true) == a);
}

TEST_CASE("overlapped sums start before backward's last kernel, and only in the last backward") {
  const bool tied = GENERATE(true, false);
  CAPTURE(tied);
  std::vector<std::vector<std::string>> notes(2);
  const auto m = two_layers(tied);
  pipelines p{2, m, {.piece_bytes = small_pieces, .before = [&](std::size_t i, auto behind) {
                       return std::make_shared<order_noting_machine>(std::move(behind), notes[i]);
                     }}};
  p.join_communicator();
  const auto l = lessons(m, 2, 2, 1);
  auto& mine = notes[0];
  const auto go = [&](operation o) {
    mine.clear();
    run(*p.all[0], std::move(o));
  };
  for (std::uint32_t batch = 0; batch < 2; ++batch) go({forward(l[batch], batch)});
  go({step::backward{}});
  CHECK(count_of(mine, "sum beside") == 0);
  const bool off = GENERATE(false, true);
  if (off) setenv("TROUPE_CUDA_OVERLAP", "0", 1);
  go({last_backward(1)});
  unsetenv("TROUPE_CUDA_OVERLAP");
  // The final norm (and the head, if it is apart) lies with the last MLP, or is a piece.
  const auto pieces = count_of(mine, "sum beside");
  if (off) {
    CHECK(pieces == 0);
  } else {
    CHECK(pieces >= 4);
    const auto end = std::ranges::find(mine, "positions' gradient");
    REQUIRE(end != mine.end());
    CHECK(std::count(mine.begin(), end, "sum beside") == pieces - 1);
    CHECK(mine.back() == "sum beside");  // the embeddings'
    const auto first = std::ranges::find(mine, "sum beside");
    CHECK(std::count(first, mine.end(), "attention's gradient") == 2);
  }
  run(*p.all[1], forward(l[0]));
  run(*p.all[1], step::backward{});
  for (auto& n : notes) n.clear();
  for (const auto& s : on_all(p.all, sum_of_all)) CHECK(s);
  CHECK(count_of(mine, "sum beside") == 0);
  CHECK(count_of(mine, "join") == (off ? 0 : 1));
  CHECK(count_of(notes[1], "sum") - count_of(mine, "sum") == pieces);  // the same ones, all now
  CHECK(both(run(*p.all[0], step::gradients{})) == both(run(*p.all[1], step::gradients{})));
}

TEST_CASE("backward does not wait for peers, and its gradient is unchanged") {
  gpu::stage_spec middle;
  middle.model = small_model();
  middle.first_sublayer = 3;
  middle.sublayers = 4;
  middle.rows = 2;
  const auto values = gpu::tokens_of(middle) * middle.model.hidden;
  std::vector<float> in(values), gradient(values);
  for (std::size_t i = 0; i < values; ++i) {
    in[i] = static_cast<float>(i % 17) / 17;
    gradient[i] = static_cast<float>(i % 13) / 130;
  }
  const step::forward go{.keep = true, .input = as_payload(in)};
  step::backward back{.gradient = as_payload(gradient)};
  const auto alone = grouped_device(middle);
  run(*alone, go);
  const auto expected_gradient = floats(run(*alone, back).gradient);
  back.last = true;
  grouped_devices all;
  for (std::size_t i = 0; i < 2; ++i)
    all.push_back(grouped_device(middle, {.piece_bytes = small_pieces}));
  for (auto& d : all) run(*d, step::weights{});  // memory for them is there from now on
  join_communicator(all);
  for (auto& d : all) {  // one behind the other
    run(*d, go);
    CHECK(floats(run(*d, back).gradient) == expected_gradient);
    run(*d, step::weights{});  // nor does what needs no gradients
  }
  for (const auto& s : on_all(all, sum_of_all)) REQUIRE(s);
  auto twice = both(run(*alone, step::gradients{}));
  for (auto& v : twice) v *= 2;
  CHECK(both(run(*all[1], step::gradients{})) == twice);
}

TEST_CASE("an error in an overlapped sum is reported when the sum is requested") {
  const auto number = GENERATE(0, 2);
  pipelines p{2, two_layers(), {.patience = {.sum_s = 0.5}, .piece_bytes = small_pieces}};
  p.join_communicator();
  const auto l = lessons(two_layers(), 2, 2, 1);
  const nccl_fault fault{1, number};
  for (std::size_t i = 0; i < 2; ++i) {
    run(*p.all[i], forward(l[i]));
    run(*p.all[i], last_backward());
  }
  const auto ended = on_all(p.all, sum_of_all);
  REQUIRE_FALSE(ended[0]);
  REQUIRE_FALSE(ended[1]);
  CHECK(troupe::test::has_facts(ended[0].error().text, {"0.5 s"}));
  CHECK(troupe::test::has_facts(ended[1].error().text,
                                {"member 1", "2 GPUs", "NCCL", "unhandled system error"}));
  CHECK(refusal(*p.all[0], {step::update{}}).starts_with("device state is invalid"));
}

TEST_CASE("a device that fails after its overlapped sums have begun leaves its group") {
  int fails_at = -1;
  pipelines p{
      2,
      two_layers(),
      {.patience = {.sum_s = 0.3},
       .piece_bytes = small_pieces,
       .before = [&](std::size_t i, std::shared_ptr<machine> m) -> std::shared_ptr<machine> {
         if (i == 0) return m;
         return std::make_shared<failing_machine>(std::move(m), fails_at);
       }}};
  p.join_communicator();
  const auto directory = fresh_path("overlap-failed").string();
  run(*p.all[1], step::save{directory});
  const auto l = lessons(two_layers(), 2, 2, 1);
  for (std::size_t i = 0; i < 2; ++i) run(*p.all[i], forward(l[i]));
  fails_at = GENERATE(10, 25);  // its peer has begun nothing, so its sums are all still waiting
  CHECK(refusal(*p.all[1], {last_backward()}) == "the GPU refused a kernel");
  fails_at = -1;
  CHECK(refusal(*p.all[1], {step::sum{}}).ends_with("the GPU refused a kernel"));
  run(*p.all[0], last_backward());
  CHECK(troupe::test::has_facts(refusal(*p.all[0], {step::sum{}}), {"0.3 s"}));
  for (auto& d : p.all) run(*d, step::load{directory});
  p.join_communicator();
  for (std::size_t i = 0; i < 2; ++i) {
    run(*p.all[i], forward(l[i]));
    run(*p.all[i], last_backward());
  }
  for (const auto& s : on_all(p.all, sum_of_all)) CHECK(s);
  CHECK(p.weights(0) == p.weights(1));
}

TEST_CASE("a device that fails in the middle of a sum does not wait for its started sums") {
  int fails_at = -1;
  gpu::stage_spec first;
  first.model = two_layers();
  first.sublayers = 2;
  first.has_embedding = true;
  first.rows = 2;
  grouped_devices all;
  for (std::size_t i = 0; i < 2; ++i)
    all.push_back(grouped_device(
        first, {.piece_bytes = small_pieces, .before = [&](std::size_t, auto behind) {
                  return std::make_shared<failing_machine>(std::move(behind), fails_at);
                }}));
  join_communicator(all);
  const auto l = lessons(first.model, 2, 1, 1);
  auto back = last_backward();
  back.gradient = run(*all[0], step::forward{.keep = true, .input = l[0].input}).activation;
  run(*all[0], back);
  fails_at = 0;  // the copy of the embedding's sum, for the last stage
  CHECK(refusal(*all[0], {step::sum{}}) == "the GPU refused a kernel");
}

TEST_CASE("partly summed gradients allow only the sum, until a checkpoint is loaded") {
  const auto m = two_layers();
  pipelines p{2, m, {.piece_bytes = small_pieces}}, fresh{2, m};
  p.join_communicator(), fresh.join_communicator();
  const auto directory = fresh_path("overlap-half").string();
  run(*p.all[0], step::save{directory});
  const auto l = lessons(m, 2, 2, 1);
  auto& d = *p.all[0];
  for (std::uint32_t batch = 0; batch < 2; ++batch) run(d, forward(l[batch], batch));
  run(d, last_backward());
  CHECK(refusal(d, {step::backward{.microbatch = 1}}) == half_summed);
  CHECK(refusal(d, {step::gradients{}}) == half_summed);
  CHECK(refusal(d, {step::update{}}) == half_summed);
  CHECK(refusal(d, {step::join_communicator{.size = 2}}) == half_summed);
  CHECK_FALSE(refusal(d, {step::load{"/nowhere"}}).empty());
  CHECK(refusal(d, {step::gradients{}}) == half_summed);  // unchanged
  SECTION("and then all is well") {
    run(*p.all[1], forward(l[1]));
    run(*p.all[1], last_backward());
    for (const auto& s : on_all(p.all, sum_of_all)) REQUIRE(s);
    run(d, step::gradients{});
    run(d, step::update{});
    run(d, step::backward{.microbatch = 1});
  }
  SECTION("and a device that loads has a group no longer") {
    for (auto& one : p.all) run(*one, step::load{directory});
    CHECK(floats(run(d, step::gradients{}).own) ==
          std::vector<float>(floats(run(d, step::weights{}).own).size()));
    p.join_communicator();
    CHECK(learn(p, m, true) == learn(fresh, m, false));
  }
}

TEST_CASE("a device can be closed while its overlapped sums wait for a peer") {
  pipelines p{2, two_layers(), {.piece_bytes = small_pieces}};
  p.join_communicator();
  const auto l = lessons(two_layers(), 2, 1, 1);
  run(*p.all[0], forward(l[0]));
  run(*p.all[0], last_backward());
  SECTION("after backward") {
    p.all.clear();
  }
  SECTION("in the sum") {
    std::promise<std::string> said;
    p.all[0]->submit({step::sum{}},
                     [&](expected<gpu::outcome> r) { said.set_value(r ? "" : r.error().text); });
    p.all.clear();
    CHECK(said.get_future().get().starts_with("the device was closed"));
  }
}
