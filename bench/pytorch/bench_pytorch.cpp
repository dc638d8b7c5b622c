// Workers beside plain PyTorch, in one run: ratios of interleaved pairs, medians.
//
//   bench_pytorch worker [--json]   a step of a stage through a worker, over the same step in a
//                                   plain loop: wall and processor time (node's thread and worker),
//                                   with 1 MiB in and out each way
//   bench_pytorch copies [--json]   copies of 16 MiB into buffers, over memcpy
//   bench_pytorch memory [--json]   bytes that a forward keeps, as described, over what the process
//                                   has allocated; ends with 1 if a kind of layers is 10 % off

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gpu/worker/forked_worker.hpp"
#include "gpu/worker/python_device.hpp"
#include "gpu/worker/shared_buffers.hpp"
#include "gpu/worker/tensor_bytes.hpp"
#include "harness/clock.hpp"
#include "harness/foreign_load.hpp"
#include "harness/runs.hpp"
#include "harness/scratch.hpp"

namespace troupe::bench {

namespace {

using gpu::operation;
namespace kind = gpu::operations;

const std::string folder = TROUPE_SOURCE "/bench/pytorch/";
const std::string python = "/usr/bin/python3";
constexpr int layers = 4;

/// The processor time of a process of this user.
double cpu_s_of(int pid) {
  clockid_t clock{};
  return ::clock_getcpuclockid(pid, &clock) == 0 ? clock_s(clock) : 0;
}

struct step_time {
  double wall_ms = 0, cpu_ms = 0;
};

/// worker_step.py's plain loop.
class plain_loop {
 public:
  explicit plain_loop(int inner) {
    int in[2], out[2];
    if (::pipe(in) != 0 || ::pipe(out) != 0) throw std::runtime_error{"no pipes"};
    const auto script = folder + "worker_step.py";
    const auto count = std::to_string(layers), width = std::to_string(inner);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      for (const int fd : {in[0], in[1], out[0], out[1]}) ::close(fd);
      ::execl(python.c_str(), python.c_str(), script.c_str(), count.c_str(), width.c_str(),
              nullptr);
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    to_ = ::fdopen(in[1], "w");
    from_ = ::fdopen(out[0], "r");
  }
  ~plain_loop() {
    ::fclose(to_);
    ::fclose(from_);
    ::waitpid(pid_, nullptr, 0);
  }
  plain_loop(const plain_loop&) = delete;

  step_time step() {
    ::fputs("\n", to_);
    ::fflush(to_);
    step_time t;
    if (::fscanf(from_, "%lf %lf", &t.wall_ms, &t.cpu_ms) != 2)
      throw std::runtime_error{"the plain loop has ended"};
    return t;
  }
  int pid() const { return pid_; }

 private:
  int pid_ = 0;
  FILE *to_ = nullptr, *from_ = nullptr;
};

gpu::outcome done(gpu::stage_device& d, operation o) {
  auto r = test::run(d, std::move(o));
  if (!r) throw std::runtime_error{r.error().text};
  return std::move(*r);
}

/// The same layers as the middle one of three stages.
class worker_loop {
 public:
  explicit worker_loop(int inner) {
    gpu::python_spec s;
    s.command = {python, "-B", "-m", "troupe.worker"};
    s.program.file = folder + "worker_step.py";
    s.program.arguments = fmt::format(R"({{"count":{},"inner":{}}})", layers, inner);
    s.program.deterministic = false;
    s.stage = {.first_layer = 1, .layers = layers, .stage = 1, .stages = 3, .rows = 8};
    s.socket_directory = directory_.path();
    s.token = "bench";
    auto made = gpu::make_python_device(s, test::forked({}, &pid_));
    if (!made) throw std::runtime_error{made.error().text};
    stage_ = std::move(*made);
    const std::vector<float> half(8 * 64 * 512, 0.5F), small(half.size(), 1e-3F);
    const std::vector<std::int64_t> sizes{8, 64, 512}, strides{64 * 512, 512, 1};
    activation_ =
        payload{test::tensor_bytes({{.sizes = sizes, .strides = strides, .floats = half}})};
    gradient_ =
        payload{test::tensor_bytes({{.sizes = sizes, .strides = strides, .floats = small}})};
  }

  step_time step() {
    const double wall = clock_s(CLOCK_MONOTONIC), cpu = used_s();
    auto& d = *stage_.device;
    done(d, {.what = kind::forward{.keep = true, .input = activation_},
             .program = {.iteration = iteration_}});
    done(d, {.what = kind::backward{.gradient = gradient_}, .program = {.iteration = iteration_}});
    done(d, {.what = kind::update{}, .program = {.iteration = iteration_++}});
    return {(clock_s(CLOCK_MONOTONIC) - wall) * 1e3, (used_s() - cpu) * 1e3};
  }
  int pid() const { return pid_; }

 private:
  double used_s() const { return clock_s(CLOCK_PROCESS_CPUTIME_ID) + cpu_s_of(pid_); }

  test::scratch directory_;
  int pid_ = 0;
  gpu::python_stage stage_;
  payload activation_, gradient_;
  std::uint64_t iteration_ = 0;
};

/// A width of the layers at which a plain step takes about 100 ms on this machine.
int calibrate() {
  constexpr int first = 512;
  plain_loop loop{first};
  std::vector<double> times;
  for (int i = 0; i < 5; ++i) times.push_back(loop.step().wall_ms);
  return std::clamp(static_cast<int>(first * 110 / median(times)) / 16 * 16, 16, 16384);
}

struct compared_steps {
  std::vector<double> wall, cpu, plain_ms, worker_ms;
  int repeated = 0;
};

/// Pairs of steps of two processes that live as long as this call.
compared_steps compare_steps(int inner) {
  constexpr int pairs = 15, attempts = 60;
  constexpr double max_foreign = 3;  // percent
  plain_loop plain{inner};
  worker_loop through{inner};
  for (int i = 0; i < 3; ++i) plain.step(), through.step();
  compared_steps found;
  for (int i = 0; i < attempts && found.wall.size() < pairs; ++i) {
    const foreign_load load;
    const double children_s = cpu_s_of(plain.pid()) + cpu_s_of(through.pid());
    const double began_s = clock_s(CLOCK_MONOTONIC);
    step_time a, b;
    if (i % 2 == 0) a = plain.step(), b = through.step();
    if (i % 2 == 1) b = through.step(), a = plain.step();
    const double round_s = clock_s(CLOCK_MONOTONIC) - began_s;
    const double own_s = cpu_s_of(plain.pid()) + cpu_s_of(through.pid()) - children_s;
    const auto processors = static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN));
    const double foreign = load.percent() - 100 * own_s / (round_s * processors);
    if (foreign > max_foreign && attempts - i > pairs - static_cast<int>(found.wall.size())) {
      ++found.repeated;
      continue;
    }
    found.wall.push_back(b.wall_ms / a.wall_ms);
    found.cpu.push_back(b.cpu_ms / a.cpu_ms);
    found.plain_ms.push_back(a.wall_ms);
    found.worker_ms.push_back(b.wall_ms);
  }
  return found;
}

// Where a process' memory lies decides some percent of its speed, so one pair of processes says
// little: the median is over several.
void worker(bool json) {
  constexpr int processes = 9;
  const int inner = calibrate();
  std::vector<double> wall, cpu, plain_ms, worker_ms;
  int repeated = 0;
  for (int i = 0; i < processes; ++i) {
    const auto found = compare_steps(inner);
    wall.push_back(median(found.wall));
    cpu.push_back(median(found.cpu));
    plain_ms.push_back(median(found.plain_ms));
    worker_ms.push_back(median(found.worker_ms));
    repeated += found.repeated;
  }
  const auto [low, high] = std::minmax_element(cpu.begin(), cpu.end());
  fmt::print(
      fmt::runtime(
          json ? "{{\"plain_ms\":{:.1f},\"worker_ms\":{:.1f},\"wall_ratio\":{:.3f},"
                 "\"cpu_ratio\":{:.3f},\"cpu_ratio_lowest\":{:.3f},\"cpu_ratio_highest\":{:.3f},"
                 "\"processes\":{},\"repeated\":{}}}\n"
               : "a plain step {:.1f} ms, through a worker {:.1f} ms; wall {:.3f} and processor "
                 "time {:.3f} ({:.3f} to {:.3f}) of the plain step's, medians of {} pairs of "
                 "processes ({} steps repeated)\n"),
      median(plain_ms), median(worker_ms), median(wall), median(cpu), *low, *high, wall.size(),
      repeated);
}

int memory(bool json) {
  const auto command =
      fmt::format("PYTHONPATH={}/python {} -B {}kept_memory.py", TROUPE_SOURCE, python, folder);
  const auto [status, text] = printed_by(command);
  const auto found = nlohmann::json::parse(text, nullptr, false);
  if (!found.is_object()) throw std::runtime_error{"kept_memory.py has failed"};
  if (json) {
    fmt::print("{}\n", found.dump());
    return status == 0 ? 0 : 1;
  }
  for (const auto& x : found["kinds"])
    fmt::print("{:12} recompute {:7} described {:10} B, allocated {:10} B\n",
               x["kind"].get<std::string>(), x["recompute"].get<std::string>(),
               x["predicted_bytes"].get<std::int64_t>(), x["measured_bytes"].get<std::int64_t>());
  fmt::print("without recompute at most {:.1f} % off\n", 100 * found["worst"].get<double>());
  return status == 0 ? 0 : 1;
}

double output_ratio(std::size_t mib, int rounds) {
  const auto command = fmt::format("PYTHONPATH={}/python {} -B {}output_copy.py {} {}",
                                   TROUPE_SOURCE, python, folder, mib, rounds);
  FILE* out = ::popen(command.c_str(), "r");
  double ratio = 0;
  if (out == nullptr || ::fscanf(out, "%lf", &ratio) != 1)
    throw std::runtime_error{"output_copy.py has failed"};
  ::pclose(out);
  return ratio;
}

double input_ratio(std::size_t mib, int rounds) {
  const std::size_t bytes = mib << 20;
  gpu::python::shared_buffers buffers{bytes * 4};
  const std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte> to(bytes);
  const auto timed = [](auto what) {
    const double began = clock_s(CLOCK_MONOTONIC);
    what();
    return clock_s(CLOCK_MONOTONIC) - began;
  };
  const auto into_slot = [&] {
    const auto s = buffers.take(bytes);
    std::memcpy((*s)->bytes().data(), from.data(), bytes);
  };
  const auto into_buffer = [&] { std::memcpy(to.data(), from.data(), bytes); };
  into_slot();
  std::vector<double> ratios;
  for (int i = 0; i < rounds; ++i) ratios.push_back(timed(into_buffer) / timed(into_slot));
  return median(ratios);
}

void copies(bool json) {
  constexpr std::size_t mib = 16;
  constexpr int rounds = 51;
  fmt::print(fmt::runtime(
                 json ? "{{\"in_ratio\":{:.2f},\"out_ratio\":{:.2f},\"mib\":{}}}\n"
                      : "into a buffer {:.2f}, out of a worker {:.2f} of memcpy's speed, {} MiB\n"),
             input_ratio(mib, rounds), output_ratio(mib, rounds), mib);
}

}  // namespace

}  // namespace troupe::bench

int main(int argc, char** argv) {
  const std::string_view verb = argc > 1 ? argv[1] : "";
  const bool json = argc > 2 && std::string_view{argv[2]} == "--json";
  try {
    if (verb == "worker") return troupe::bench::worker(json), 0;
    if (verb == "copies") return troupe::bench::copies(json), 0;
    if (verb == "memory") return troupe::bench::memory(json);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
  fmt::print(stderr, "usage: bench_pytorch worker|copies|memory [--json]\n");
  return 2;
}
