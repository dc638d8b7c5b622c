#include "actors/node/memory_errors.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>

#include "actors/protocol/launch_environment.hpp"

namespace troupe::actors {

namespace {

/// Messages of frameworks and libraries when a GPU's memory is used up, in lower case. Host memory
/// is something else: no plan on other GPUs would help.
constexpr std::string_view memory_errors[] = {
    "cuda out of memory",                                    // PyTorch's allocator
    "hip out of memory",                                     // the same on AMD's GPUs
    "cuda error: out of memory",                             // PyTorch, outside of its allocator
    "hip error: out of memory",                              //
    "cuda driver error: out of memory",                      //
    "triton error [cuda]: out of memory",                    // compiled kernels
    "cudnn_status_alloc_failed",                             //
    "cudnn_status_internal_error_device_allocation_failed",  // cuDNN 9
    "cublas_status_alloc_failed",                            //
    "cusolver_status_alloc_failed",                          //
    "cusparse_status_alloc_failed",                          //
    "cufft_alloc_failed",                                    //
    "cuda_error_out_of_memory",                              // the driver
    "cudaerrormemoryallocation",                             // the runtime
    "cudamalloc failed: out of memory",                      // llama.cpp
    "cuda failure 2 'out of memory'",                        // NCCL
    "cuda failure 2: out of memory",                         // ONNX Runtime
    "cuda failure 'out of memory'",                          //
    "cuda failed with error out of memory",                  // CTranslate2
    "resource_exhausted: out of memory",                     // JAX
    "resource_exhausted: failed to allocate request",        //
    "resource exhausted: out of memory",                     //
    "out of memory allocating",                              // XLA
    "oom when allocating tensor",                            // TensorFlow
};

/// Errors that follow from another one: of launchers, of the ranks beside the one that failed, and
/// what PyTorch's own is called.
constexpr std::string_view consequences[] = {
    "childfailederror", "calledprocesserror",        "outofmemoryerror",
    "distbackenderror", "distnetworkerror",          "nccl",
    "brokenpipeerror",  "connection closed by peer", "connection reset by peer",
};

/// An error ends a program, so it is among the last lines: behind it are at most a traceback's end,
/// a launcher's summary and what other ranks write.
constexpr int error_lines = 60;
/// The longest part of a line that users see.
constexpr std::size_t shown_bytes = 200;

std::string_view last_lines(std::string_view text, int count) {
  for (auto at = text.size(); at > 0; --at)
    if (text[at - 1] == '\n' && at < text.size() && --count == 0) return text.substr(at);
  return text;
}

bool has_one(std::string_view line, std::span<const std::string_view> of) {
  return std::ranges::any_of(
      of, [&](std::string_view text) { return line.find(text) != std::string_view::npos; });
}

/// "[rank1]: " of torchrun.
std::string_view without_rank(std::string_view line) {
  const auto end = line.find("]: ");
  return line.starts_with("[rank") && end != std::string_view::npos ? line.substr(end + 3) : line;
}

/// Does a line begin a Python exception, "package.SomeError: why"?
bool begins_error(std::string_view line) {
  line = without_rank(line);
  const auto end = std::ranges::find_if_not(
      line, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; });
  const std::string_view name{line.begin(), end};
  if (end != line.end() && *end != ':') return false;
  return std::ranges::any_of(std::array<std::string_view, 2>{"Error", "Exception"}, [&](auto kind) {
    return name.ends_with(kind) && name.size() > kind.size();
  });
}

std::string lower(std::string_view text) {
  std::string result{text};
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

/// At most `shown_bytes`, cut between two characters.
std::string shortened(std::string_view line) {
  line = without_rank(line.substr(std::min(line.size(), line.find_first_not_of(" \t"))));
  if (line.size() <= shown_bytes) return std::string{line};
  auto end = shown_bytes;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xc0) == 0x80) --end;
  return std::string{line.substr(0, end)} + "...";
}

}  // namespace

/// The last error counts: a program may catch an error of memory, try a smaller batch, and fail of
/// something else later. Then a retry with more memory would be wrong.
std::string memory_error_in(std::string_view last_output) {
  auto rest = last_lines(last_output, error_lines);
  std::string_view found;
  while (!rest.empty()) {
    auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const auto text = lower(line);
    if (has_one(text, memory_errors))
      found = line;
    else if (begins_error(line) && !has_one(text, consequences))
      found = {};
  }
  return shortened(found);
}

/// A status of 0 is success, whatever the output says.
bool ran_out_of_memory(int exit_code, std::string_view last_output) {
  if (exit_code == out_of_memory_exit) return true;
  return exit_code != 0 && !memory_error_in(last_output).empty();
}

}  // namespace troupe::actors
