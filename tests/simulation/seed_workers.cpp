#include "simulation/seed_workers.hpp"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <thread>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace troupe::simulation {

namespace {

/// One process that runs every n-th seed. Over its pipe come, for each seed, "b" as it begins and
/// "e" or "w" (with a sentence) as it ends; the numbers follow from the order.
struct worker {
  pid_t pid = 0;
  int pipe = -1;
  std::uint64_t next = 0, step = 1;
  bool begun = false;
  std::string unread;
};

void say(int fd, const std::string& line) {
  for (std::size_t at = 0; at < line.size();) {
    const auto n = write(fd, line.data() + at, line.size() - at);
    if (n < 0 && errno != EINTR) _exit(1);
    if (n > 0) at += static_cast<std::size_t>(n);
  }
}

[[noreturn]] void work(int fd, std::uint64_t first, std::uint64_t last, std::uint64_t step,
                       unsigned limit_s, const std::function<std::string(std::uint64_t)>& run) {
  for (auto seed = first; seed <= last; seed += step) {
    say(fd, "b\n");
    alarm(limit_s);  // its signal ends this process
    std::string wrong;
    try {
      wrong = run(seed);
    } catch (const std::exception& e) {
      wrong = std::string{"an exception: "} + e.what();
    }
    std::replace(wrong.begin(), wrong.end(), '\n', ' ');
    say(fd, wrong.empty() ? "e\n" : "w" + wrong + "\n");
  }
  _exit(0);
}

void take(worker& w, const std::string& line, std::vector<bad_seed>& bad) {
  w.begun = line[0] == 'b';
  if (line[0] == 'w') bad.push_back({w.next, line.substr(1)});
  if (!w.begun) w.next += w.step;
}

/// Reads what there is. False: it is over.
bool receive(worker& w, std::vector<bad_seed>& bad) {
  char buffer[4096];
  const auto n = read(w.pipe, buffer, sizeof buffer);
  if (n < 0 && errno == EINTR) return true;
  if (n <= 0) return false;
  w.unread.append(buffer, static_cast<std::size_t>(n));
  for (std::size_t end; (end = w.unread.find('\n')) != std::string::npos;) {
    take(w, w.unread.substr(0, end), bad);
    w.unread.erase(0, end + 1);
  }
  return true;
}

std::string how_it_died(int status) {
  if (!WIFSIGNALED(status)) return "the process that ran it has exited";
  if (WTERMSIG(status) == SIGALRM) return "it took too long";
  return "the process that ran it was ended by signal " + std::to_string(WTERMSIG(status));
}

}  // namespace

std::vector<bad_seed> run_seeds(std::uint64_t first, std::uint64_t last, std::size_t enough,
                                const std::function<std::string(std::uint64_t)>& run,
                                unsigned limit_s) {
  const std::uint64_t cores = std::max(1U, std::thread::hardware_concurrency());
  std::vector<worker> workers;
  std::vector<bad_seed> bad;
  for (std::uint64_t i = 0; i < cores && first + i <= last; ++i) {
    int ends[2];
    if (pipe(ends) != 0) break;
    const auto pid = fork();
    if (pid == 0) {
      close(ends[0]);
      work(ends[1], first + i, last, cores, limit_s, run);
    }
    close(ends[1]);
    workers.push_back({pid, ends[0], first + i, cores, false, {}});
  }
  for (auto open = workers.size(); open > 0;) {
    std::vector<pollfd> wanted;
    for (const auto& w : workers) wanted.push_back({w.pipe, POLLIN, 0});
    poll(wanted.data(), wanted.size(), -1);
    for (std::size_t i = 0; i < workers.size(); ++i) {
      auto& w = workers[i];
      if (w.pipe < 0 || wanted[i].revents == 0) continue;
      if (bad.size() < enough && receive(w, bad)) continue;
      const bool stopped = bad.size() >= enough;
      if (stopped) kill(w.pid, SIGKILL);
      int status = 0;
      waitpid(w.pid, &status, 0);
      if (!stopped && w.next <= last) bad.push_back({w.next, how_it_died(status)});
      close(w.pipe);
      w.pipe = -1;
      --open;
    }
  }
  std::sort(bad.begin(), bad.end(),
            [](const bad_seed& a, const bad_seed& b) { return a.seed < b.seed; });
  return bad;
}

}  // namespace troupe::simulation
