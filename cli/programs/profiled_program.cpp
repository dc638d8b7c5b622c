#include "cli/programs/profiled_program.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/output/output_file.hpp"
#include "gpu/profiling/profile_worker.hpp"
#include "messages/base/refuse.hpp"
#include "messages/domain/device_kind.hpp"
#include "planners/devices/profile.hpp"
#include "runtime/process/process.hpp"
#include "runtime/process/python_package.hpp"
#include "runtime/process/visible_gpus.hpp"

namespace troupe::cli {

namespace {

/// A worker as a child of this process, which ends with it.
class child final : public gpu::worker_process {
 public:
  explicit child(std::unique_ptr<runtime::process> p) : process_{std::move(p)} {}

  void kill() override {
    std::lock_guard lock{guard_};
    process_->kill();
  }
  std::optional<std::string> ended() override {
    std::lock_guard lock{guard_};
    const auto status = process_->poll();
    if (!status) return {};
    return fmt::format("ended with status {}", *status);
  }

 private:
  std::mutex guard_;
  std::unique_ptr<runtime::process> process_;
};

/// The device by its number, as in a node's workers.
std::vector<std::pair<std::string, std::string>> device_variables(const program_wish& w) {
  if (facts_of_device(w.device).is_host_core) return {};
  return {{"CUDA_VISIBLE_DEVICES", runtime::visible_gpus::own().names_of(std::to_string(w.index))}};
}

gpu::worker_starter starter_for(const program_wish& w) {
  return [&w](const gpu::worker_launch& l) -> expected<std::unique_ptr<gpu::worker_process>> {
    runtime::process_options o;
    o.command = l.command;
    o.environment = l.environment;
    for (auto& v : device_variables(w)) o.environment.push_back(std::move(v));
    runtime::add_python_package(o.environment);
    o.directory = l.directory;
    auto started = runtime::process::start(o);
    if (!started) return refuse(started.error());
    return std::make_unique<child>(std::move(*started));
  };
}

expected<gpu::worker_times> measure_worker(const program_wish& w, std::uint64_t tensor_bytes) {
  const auto package = runtime::find_python_package();
  if (!package)
    return refuse(reason::kind::unavailable, "the Python package of this program is missing");
  temporary_directory files;
  gpu::python_spec s;
  s.program.file = (package->folder / "troupe" / "programs" / "identity.py").string();
  s.program.device = w.device;
  s.program.threads = w.program.threads;
  s.program.deterministic = facts_of_device(w.device).is_host_core;
  s.command[0] = runtime::python_interpreter(w.program.python);
  s.socket_directory = std::filesystem::path{files.file("socket")}.parent_path().string();
  s.token = runtime::fresh_group_token();
  constexpr std::uint32_t times_rounds = 10;  // requests are short
  return gpu::measure_worker(s, starter_for(w), tensor_bytes, times_rounds * w.rounds);
}

part_times times_of(const json& found) {
  part_times t;
  t.forward_s = found.at("forward_s").get<double>();
  t.recompute_s = found.at("recompute_s").get<double>();
  t.backward_s = found.at("backward_s").get<double>();
  t.update_s = found.at("update_s").get<double>();
  t.gradients_s = found.at("gradients_s").get<double>();
  t.spread = found.at("spread").get<double>();
  return t;
}

layers_point point_of(const json& found, const model& m, const part_times& plain) {
  layers_point p;
  p.rows = found.at("rows").get<std::uint32_t>();
  const auto& layers = found.at("layers");
  for (std::size_t i = 0; i < m.operators.size(); ++i)
    p.layers.push_back({m.operators[i].name, times_of(layers.at(i))});
  p.loss = times_of(found.at("loss"));
  p.tied = times_of(found.at("tied"));
  p.plain = plain;
  return p;
}

}  // namespace

expected<layers_profile> profile_program(const program_wish& w) {
  const auto& p = w.program;
  std::vector<std::string> words{"--rows",    fmt::format("{}", fmt::join(w.rows, ",")),
                                 "--rounds",  std::to_string(w.rounds),
                                 "--device",  w.device,
                                 "--index",   std::to_string(w.index),
                                 "--threads", std::to_string(p.threads),
                                 "--busy",    std::to_string(w.busy)};
  const auto name = std::filesystem::path{p.file}.filename().string();
  const auto found = describe_program(p, "troupe.profile", words, [&](const std::string& line) {
    if (!w.progress) return;
    unsigned done = 0, all = 0;
    // The module's words: see its main().
    if (std::sscanf(line.c_str(), "round %u of %u", &done, &all) == 2 && all > 0)
      w.progress(name + ": " + line, static_cast<double>(done) / all);
    else
      w.progress(name + ": reads its layers", 0);
  });
  if (!found) return refuse(found.error());
  double output_bytes = 0;
  for (const auto& op : found->model.operators)
    output_bytes = std::max(output_bytes, op.output_bytes);
  constexpr double min_bytes = 1 << 20, max_bytes = 1 << 26;
  const auto tensor_bytes = std::clamp(output_bytes * w.rows.back(), min_bytes, max_bytes);
  const auto worker = measure_worker(w, static_cast<std::uint64_t>(tensor_bytes));
  if (!worker) return refuse(worker.error());
  layers_profile out;
  out.name = found->model.name;
  out.key = planners::layers_key(found->model);
  out.threads = p.threads;
  out.tensors_gbytes_s = worker->tensors_gbytes_s;
  try {
    for (const auto& point : found->document.at("points"))
      out.points.push_back(point_of(point, found->model, worker->plain));
  } catch (const json::exception& e) {
    return refuse(reason::kind::malformed, "{}: its times are not as expected: {}", p.file,
                  e.what());
  }
  return out;
}

}  // namespace troupe::cli
