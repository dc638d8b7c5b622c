#include "actors/training/device/layers_backend.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "actors/training/device/socket_folder.hpp"
#include "gpu/device/device_thread.hpp"
#include "gpu/examples/tuning_rows.hpp"
#include "gpu/worker/python_device.hpp"
#include "messages/base/refuse.hpp"
#include "messages/domain/device_kind.hpp"
#include "messages/domain/model_files.hpp"
#include "runtime/process/process_group.hpp"
#include "runtime/process/python_package.hpp"

namespace troupe::actors {

namespace {

gpu::python::worker_stage worker_stage_of(const stage_setup& s) {
  gpu::python::worker_stage m;
  m.first_layer = s.first_sublayer;
  m.layers = s.sublayers;
  m.stage = s.name.stage;
  m.stages = s.stages;
  m.pipeline = s.name.pipeline;
  m.pipelines = s.pipelines;
  m.rows = s.rows;
  m.microbatches = s.microbatches;
  m.seed = s.how.seed;
  if (s.share) m.share = {s.share->first, s.share->all};
  using recompute = gpu::python::worker_stage::recompute;
  const auto is_recompute = [](const auto& step) {
    return step.what == stage_step::kind::recompute;
  };
  if (s.recompute_layers.value_or(false))
    m.how = recompute::layers;
  else if (std::ranges::any_of(s.order, is_recompute))
    m.how = recompute::stage;
  return m;
}

/// A worker's gradients are in memory of this host, which the plan has counted by the program's
/// description; 0: there is none.
std::uint64_t max_gradients(const troupe::model& m) {
  double all = m.tied_parameters.value_or(0);
  for (const auto& layer : m.operators) all += layer.parameters;
  return has_program_layers(m) ? static_cast<std::uint64_t>(all) : 0;
}

gpu::python_spec spec_of(const stage_setup& s, const std::string& socket_directory) {
  const auto& p = *s.how.program;
  gpu::python_spec spec;
  spec.program.file = p.file;
  spec.program.sha256 = p.sha256;
  if (!p.arguments.empty()) spec.program.arguments = p.arguments;
  spec.program.device = s.backend;
  spec.program.threads = p.threads;
  spec.program.deterministic = p.deterministic.value_or(facts_of_device(s.backend).is_host_core);
  spec.stage = worker_stage_of(s);
  spec.lease = s.name.lease;
  spec.command[0] = runtime::python_interpreter(p.python);
  spec.socket_directory = socket_directory;
  spec.token = runtime::fresh_group_token();
  spec.buffer_bytes = std::uint64_t{p.slot_mb} << 20;
  spec.emulate_speed = s.emulate_speed;
  spec.max_gradients = max_gradients(s.model);
  return spec;
}

// The rows are made again from the data, so that nodes need no file of the submitter's. The worker
// reads them while it starts, and the folder may go then.
expected<void> take_tuning(gpu::python_spec& spec, const stage_setup& s,
                           const std::string& folder) {
  const auto read = gpu::tuning_of(*s.how.program);
  if (!read) return refuse(read.error());
  if (!*read) return {};
  const auto& u = **read;
  served_model_files base;
  base.folder = u.base;
  base.hash = u.hash;
  if (!u.initial.empty()) base.random_weights = s.how.seed;
  if (auto ok = check_model_files(base); !ok) return ok;
  gpu::row_files files;
  if (s.name.stage == 0 || s.name.stage + 1 == s.stages) {
    const auto rows = gpu::read_tuning_rows(u, s.how.seed);
    if (!rows) return refuse(rows.error());
    if (auto ok = gpu::check_counts(*rows, u); !ok) return ok;
    auto written = gpu::write_tuning_rows(folder, *rows);
    if (!written) return refuse(written.error());
    files = std::move(*written);
  }
  const auto package = runtime::find_python_package();
  if (!package)
    return refuse(reason::kind::unavailable, "the Python package of this program is missing");
  spec.program.file = (package->folder / "troupe" / "programs" / gpu::tuning_program).string();
  spec.program.arguments = gpu::program_arguments(u, files, s.iterations);
  return {};
}

}  // namespace

expected<stage_backend> make_layers_backend(const stage_setup& s,
                                            const std::shared_ptr<gpu::device_executor>& executor,
                                            const gpu::worker_starter& start) {
  if (!start)
    return refuse(reason::kind::infeasible,
                  "this node starts no workers, which a training with a program needs");
  const auto folder = socket_folder::make();
  if (!folder) return refuse(folder.error());
  auto spec = spec_of(s, folder->path());
  if (auto ok = take_tuning(spec, s, folder->path()); !ok) return refuse(ok.error());
  const auto on_its_devices = [&](gpu::worker_launch what) {
    if (!facts_of_device(s.backend).is_host_core)
      what.environment.emplace_back("CUDA_VISIBLE_DEVICES",
                                    fmt::format("{}", fmt::join(s.devices, ",")));
    return start(what);
  };
  // A guest computes while the worker has nothing to do: both are the node's, on a CPU.
  auto made = gpu::make_python_device(std::move(spec), on_its_devices,
                                      std::dynamic_pointer_cast<gpu::device_thread>(executor));
  if (!made) return refuse(made.error());
  stage_backend result;
  const std::shared_ptr<gpu::program_device> device = std::move(made->device);
  result.device = device;
  if (made->ready.needs_norm) result.norms = device;
  result.worker.emplace().engine =
      fmt::format("torch {} ({})", made->hello.torch, made->hello.blas);
  result.worker->ready_s = made->ready_s;
  return result;
}

}  // namespace troupe::actors
