#include "gpu/worker/python_device.hpp"

#include <utility>

#include "gpu/device/clock.hpp"
#include "gpu/worker/worker_device.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::gpu {

namespace python {

namespace {

worker_launch launch_of(const python_spec& s, const std::string& socket) {
  const auto threads = std::to_string(s.program.threads);
  worker_launch l;
  l.command = s.command;
  l.environment = {{"TROUPE_WORKER_SOCKET", socket},
                   {"TROUPE_WORKER_TOKEN", s.token},
                   {"OMP_NUM_THREADS", threads},
                   {"OPENBLAS_NUM_THREADS", threads},
                   {"PYTHONHASHSEED", "0"}};
  l.directory = s.program.file.substr(0, s.program.file.rfind('/') + 1);
  if (s.program.deterministic) l.environment.emplace_back("CUBLAS_WORKSPACE_CONFIG", ":4096:8");
  return l;
}

/// Nothing of it outlasts a failure: the process ends with the session.
expected<std::unique_ptr<worker_session>> connect(const python_spec& s,
                                                  const worker_starter& start) {
  auto listener = worker_listener::open(s.socket_directory);
  if (!listener) return refuse(listener.error());
  auto process = start(launch_of(s, listener->path()));
  if (!process) return refuse(process.error());
  auto connection = listener->accept(s.connect_limit_s,
                                     [&] { return (*process)->ended().value_or(std::string{}); });
  if (!connection) {
    (*process)->kill();
    return refuse(connection.error());
  }
  return std::make_unique<worker_session>(std::move(*process), std::move(*connection));
}

expected<worker_stage_ready> set_up(const python_spec& s, worker_session& worker) {
  request_header r;
  r.kind = message_kind::setup;
  const auto answer = worker.ask(r, setup_body(s.program, {s.stage}));
  if (!answer) return refuse(answer.error());
  auto ready = read_ready(answer->body, {s.stage});
  if (!ready) return refuse(worker.violated(ready.error()));
  return std::move(ready->front());
}

/// Before any memory is taken for them.
expected<void> check_gradients(const python_spec& s, const worker_stage_ready& sizes) {
  const auto claimed = sizes.own_parameters + sizes.tied_parameters;
  if (s.max_gradients == 0 || claimed <= s.max_gradients) return {};
  return refuse(reason::kind::invalid,
                "the worker has gradients of {} parameters, expected at most the {} of the whole "
                "program as it was described: describe it again",
                claimed, s.max_gradients);
}

expected<gradient_memory> give_gradients(worker_session& worker, const worker_stage_ready& sizes) {
  const auto bytes = gradient_memory::size_of(sizes);
  if (bytes == 0) return gradient_memory{};  // no layer has trainable parameters
  auto memory = shared_memory::make(bytes);
  if (!memory) return refuse(memory.error());
  request_header r;
  r.kind = message_kind::region;
  r.flags = request_flag::gradient_memory;
  r.value = bytes;
  if (auto ok = worker.ask(r, {}, (*memory)->file()); !ok) return refuse(ok.error());
  (*memory)->close_file();
  return gradient_memory{std::move(*memory), sizes};
}

expected<void> begin(const python_spec& s, worker_session& worker) {
  request_header r;
  r.kind = message_kind::start;
  if (auto ok = worker.ask(r, start_body(s.lease)); !ok) return refuse(ok.error());
  return {};
}

}  // namespace

}  // namespace python

expected<python_stage> make_python_device(const python_spec& s, const worker_starter& start,
                                          std::shared_ptr<device_thread> thread) {
  using namespace python;
  const double began_s = now_s();
  auto worker = connect(s, start);
  if (!worker) return refuse(worker.error());
  python_stage made;
  auto hello = (*worker)->greet(s.token, s.connect_limit_s);
  if (!hello) return refuse(hello.error());
  made.hello = std::move(*hello);
  auto ready = set_up(s, **worker);
  if (!ready) return refuse(ready.error());
  made.ready = *ready;
  if (auto ok = check_gradients(s, *ready); !ok) return refuse((*worker)->violated(ok.error()));
  auto gradients = give_gradients(**worker, *ready);
  if (!gradients) return refuse(gradients.error());
  if (auto ok = begin(s, **worker); !ok) return refuse(ok.error());
  made.device = std::make_unique<device>(s, std::move(*worker), std::move(*ready),
                                         std::move(*gradients), std::move(thread));
  made.ready_s = now_s() - began_s;
  return made;
}

}  // namespace troupe::gpu
