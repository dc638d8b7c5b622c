#include "cli/programs/python_module.hpp"

#include <optional>

#include "cli/output/output_file.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/untrusted_file.hpp"
#include "runtime/host/wait.hpp"
#include "runtime/process/process.hpp"
#include "runtime/process/python_package.hpp"

namespace troupe::cli {

namespace {

std::string last_line(const std::string& file) {
  constexpr std::size_t bytes = 2000;
  auto tail = read_tail(file, bytes);
  if (!tail) return {};
  auto text = std::move(tail->bytes);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

expected<int> run(const runtime::process_options& o,
                  const std::function<void(const std::string&)>& watch) {
  auto started = runtime::process::start(o);
  if (!started) return refuse(started.error());
  std::optional<int> status;
  int looks = 0;
  const auto ended = [&] {
    constexpr int looks_between = 20;  // a few times a second
    if (watch && looks++ % looks_between == 0) watch(last_line(o.output));
    return (status = (*started)->poll()).has_value();
  };
  constexpr double limit_s = 3600;  // of a large model's layers, one after another
  if (runtime::wait_until(ended, limit_s, 0.01)) return *status;
  return refuse(reason::kind::unavailable, "did not end within {} s", limit_s);
}

}  // namespace

expected<ended_module> run_python_module(const std::string& module, const std::string& interpreter,
                                         const std::vector<std::string>& arguments,
                                         const std::string& directory,
                                         const std::function<void(const std::string&)>& watch) {
  temporary_directory files;
  runtime::process_options o;
  o.command = {runtime::python_interpreter(interpreter), "-m", module};
  o.command.insert(o.command.end(), arguments.begin(), arguments.end());
  runtime::add_python_package(o.environment);
  o.directory = directory;
  o.output = files.file("printed");
  const auto status = run(o, watch);
  if (!status)
    return refuse(reason::kind::invalid, "{}: {}", o.command.front(), status.error().text);
  return ended_module{*status, last_line(o.output)};
}

}  // namespace troupe::cli
