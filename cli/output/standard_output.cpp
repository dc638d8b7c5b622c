#include "cli/output/standard_output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>

#include "cli/output/exit_status.hpp"

namespace troupe::cli {

namespace {

int failed = 0;  // errno of the first write that failed

void note_failure(bool ok) {
  if (!ok && failed == 0) failed = errno != 0 ? errno : EIO;
}

}  // namespace

void keep_standard_descriptors() {
  // The wrong way round, so that they fail as closed ones do.
  constexpr int modes[] = {O_WRONLY, O_RDONLY, O_RDONLY};
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) (void)::open("/dev/null", modes[fd]);
}

void write_output(std::string_view bytes) {
  errno = 0;
  note_failure(std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size());
}

void write_note(std::string_view text) {
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
}

bool flush_output() {
  errno = 0;
  note_failure(std::fflush(stdout) == 0);
  return failed == 0;
}

int finish_output(int status) {
  (void)flush_output();
  // A file server may say only at a close that it has no room.
  if (const int copy = failed == 0 ? ::dup(STDOUT_FILENO) : -1; copy >= 0) {
    errno = 0;
    note_failure(::close(copy) == 0);
  }
  if (failed == 0 || failed == EPIPE) return status;
  write_note(fmt::format("troupe: standard output cannot be written: {}\n", std::strerror(failed)));
  return status == exit_done ? exit_no : status;
}

}  // namespace troupe::cli
