// chaos_job FILE SECONDS CHILDREN: a job's program. It and the children that it forks, as a
// training forks its loader workers, append to FILE that they begin, that they are alive (every 50
// ms), and that they end. SIGTERM ends it after half a second, in which it is alive as if it saved:
//   EVENT JOB LEASE NODE DEVICES PID SECONDS, by a clock that is the same for all processes of the
//   machine.

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr double beat_s = 0.05;
constexpr double save_s = 0.5;

volatile sig_atomic_t stopped = 0;

double now_s() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

std::string of_environment(const char* key) {
  const char* value = std::getenv(key);
  return value && *value ? value : "-";
}

/// One line is one write, so that lines of several processes do not mix.
void stamp(int fd, const char* event) {
  static const auto who = of_environment("TROUPE_JOB") + ' ' + of_environment("TROUPE_LEASE") +
                          ' ' + of_environment("TROUPE_NODE") + ' ' +
                          of_environment("CUDA_VISIBLE_DEVICES");
  char line[256];
  const int n =
      std::snprintf(line, sizeof line, "%s %s %d %.6f\n", event, who.c_str(), getpid(), now_s());
  if (write(fd, line, static_cast<std::size_t>(n)) != n) _exit(3);
}

void live(int fd, double seconds, bool until_stopped) {
  for (const double until_s = now_s() + seconds;
       now_s() < until_s && !(until_stopped && stopped != 0);) {
    usleep(static_cast<useconds_t>(beat_s * 1e6));
    stamp(fd, "alive");
  }
}

void work(int fd, double seconds) {
  stamp(fd, "begin");
  live(fd, seconds, true);
  if (stopped != 0) live(fd, save_s, false);
  stamp(fd, stopped != 0 ? "saved" : "end");
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) return 2;
  const int fd = open(arguments[1], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return 2;
  const double seconds = std::atof(arguments[2]);
  std::vector<pid_t> children;
  for (int i = std::atoi(arguments[3]); i > 0; --i) {
    const pid_t child = fork();
    if (child == 0) {
      work(fd, seconds);
      _exit(0);
    }
    children.push_back(child);
  }
  signal(SIGTERM, [](int) { stopped = 1; });
  work(fd, seconds);
  if (stopped != 0) return 0;
  for (const auto child : children) waitpid(child, nullptr, 0);
  return 0;
}
