#include "python/policies/interpreter.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <utility>

namespace troupe::planners::python {

namespace {

void require(const PyStatus& status) {
  if (PyStatus_Exception(status))
    throw policy_failure(fmt::format("the Python interpreter cannot start: {}",
                                     status.err_msg ? status.err_msg : "unknown reason"));
}

std::string file_of(const void* symbol) {
  Dl_info where{};
  return dladdr(symbol, &where) != 0 && where.dli_fname ? where.dli_fname : "";
}

/// Modules in C look for the interpreter's symbols among the process's global ones, and this
/// object, with all that it links, was loaded without adding any.
void export_interpreter() {
  const auto library = file_of(reinterpret_cast<const void*>(&Py_IsInitialized));
  if (dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL) == nullptr)
    throw policy_failure(fmt::format("the Python interpreter cannot start: {}", dlerror()));
}

/// The folder of the package `troupe`, beside this object.
std::string package_folder() {
  const auto object = file_of(reinterpret_cast<const void*>(&start_interpreter));
  return object.substr(0, object.rfind('/') + 1) + "python";
}

void set_up() {
  const auto sys = py::module_::import("sys");
  sys.attr("path").attr("insert")(0, package_folder());
  // Standard output is the program's result.
  sys.attr("stdout") = sys.attr("stderr");
}

bool start() {
  export_interpreter();
  PyPreConfig before;
  PyPreConfig_InitPythonConfig(&before);
  // The locale belongs to the program.
  before.configure_locale = 0;
  before.coerce_c_locale = 0;
  before.utf8_mode = 1;
  require(Py_PreInitialize(&before));

  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  // As PYTHONHASHSEED=0: the order of a set of strings is part of a policy's decisions.
  config.use_hash_seed = 1;
  config.hash_seed = 0;
  config.install_signal_handlers = 0;
  config.write_bytecode = 0;
  config.parse_argv = 0;
  // Another python3 on the path may be of another version, whose library this one cannot run.
  auto status = PyConfig_SetBytesString(&config, &config.program_name, TROUPE_PYTHON);
  if (!PyStatus_Exception(status)) status = Py_InitializeFromConfig(&config);
  PyConfig_Clear(&config);
  require(status);
  try {
    set_up();
  } catch (const py::error_already_set& e) {
    throw policy_failure(fmt::format("the Python interpreter cannot start: {}", e.what()));
  }
  PyEval_SaveThread();
  return true;
}

/// The line of `file` that the deepest frame of it was at; 0: there is none.
int line_in(const std::string& file, py::object trace) {
  int line = 0;
  for (; !trace.is_none(); trace = trace.attr("tb_next"))
    if (trace.attr("tb_frame").attr("f_code").attr("co_filename").cast<std::string>() == file)
      line = trace.attr("tb_lineno").cast<int>();
  return line;
}

policy_failure described(const py::error_already_set& error, const std::string& file) {
  const auto type = error.type().attr("__name__").cast<std::string>();
  py::object trace = error.trace() ? error.trace() : py::object{py::none()};
  auto line = line_in(file, std::move(trace));
  auto message = py::str(error.value()).cast<std::string>();
  // The file's own syntax: nothing of it has run.
  if (error.matches(PyExc_SyntaxError) && line == 0 && !error.value().attr("lineno").is_none()) {
    line = error.value().attr("lineno").cast<int>();
    message = py::str(error.value().attr("msg")).cast<std::string>();
  }
  const auto place = line > 0 ? fmt::format("{}:{}", file, line) : file;
  return policy_failure(
      fmt::format("{}: {}{}{}", place, type, message.empty() ? "" : ": ", message));
}

}  // namespace

void start_interpreter() {
  static const bool started = start();
  static_cast<void>(started);
}

policy_failure failure_of(const py::error_already_set& error, const std::string& file) {
  // A policy that fails is asked again and again: the same fault is printed once.
  static auto& printed = *new std::string;
  try {
    auto failure = described(error, file);
    if (std::exchange(printed, failure.what()) != failure.what())
      py::module_::import("traceback")
          .attr("print_exception")(error.type(), error.value(),
                                   error.trace() ? error.trace() : py::object{py::none()});
    return failure;
  } catch (const py::error_already_set&) {
    // An exception of the policy's own may fail to describe itself.
    return policy_failure(file + ": an exception that cannot be described");
  }
}

}  // namespace troupe::planners::python
