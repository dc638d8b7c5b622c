#include "runtime/keeper/state_directory.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "messages/base/refuse.hpp"
#include "messages/base/whole_file.hpp"
#include "runtime/host/private_files.hpp"
#include "runtime/host/real_clock.hpp"
#include "runtime/host/wait.hpp"
#include "runtime/keeper/starters.hpp"
#include "runtime/process/process_group.hpp"

namespace troupe::runtime {

namespace {

namespace fs = std::filesystem;

// An incarnation has to increase with every start, be unique even if the directory was lost, and be
// hard to guess: minutes since 1970 in the upper 28 bits (enough until 2225), random bits below.
// Starts within one minute count upwards from the last.
constexpr int random_bits = 36;

std::uint64_t minutes_since_1970() {
  constexpr double year_2225 = 1ull << 27;  // a later clock is broken
  return static_cast<std::uint64_t>(std::clamp(real_clock{}.wall_s() / 60, 0.0, year_2225));
}

auto cannot(const std::string& path, const char* what) {
  return refuse(reason::kind::invalid, "{}: cannot be {}: {}", path, what, std::strerror(errno));
}

// The lock is inherited by keepers and so outlives its process while programs are being killed. The
// text in the file distinguishes the two cases.
/// The process that has taken the lock last, if it still lives.
pid_t holder(const std::string& file) {
  std::ifstream in{file};
  pid_t pid = 0;
  std::uint64_t started = 0;
  if (!(in >> pid >> started)) return 0;
  const auto now = describe_group(pid, {});
  return now && now->started == started ? pid : 0;
}

}  // namespace

std::uint64_t make_incarnation(std::uint64_t count) {
  std::uint64_t bits = 0;
  while (::getrandom(&bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits)) continue;
  if (count == 0) count = minutes_since_1970();
  return count << random_bits | bits >> (64 - random_bits);
}

expected<std::unique_ptr<state_directory>> state_directory::open(const std::string& path,
                                                                 double limit_s) {
  if (auto ok = prepare_private_directory(path); !ok) return refuse(ok.error());
  std::unique_ptr<state_directory> d{new state_directory{path}};
  if (auto ok = d->take(limit_s); !ok) return refuse(ok.error());
  return d;
}

// A live holder is an error. A dead one leaves keepers: they are ended here, and the lock becomes
// free with the last of them.
expected<void> state_directory::take(double limit_s) {
  const auto file = path_ + "/lock";
  lock_ = descriptor{::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
  if (lock_ < 0) return cannot(file, "opened");
  pid_t other = 0;
  const auto mine = [&] { return ::flock(lock_, LOCK_EX | LOCK_NB) == 0; };
  bool taken = false;
  const auto known = [&] { return (taken = mine()) || (other = holder(file)) != 0; };
  if (!known()) {
    end_recorded_starters(process_records(path_));
    reap_orphans(process_records(path_), limit_s);
    wait_until(known, limit_s, 0.01);
  }
  if (!taken && other != 0)
    return refuse(reason::kind::invalid,
                  "{}: in use by another process ({}): there can be only one", path_, other);
  if (!taken)
    return refuse(reason::kind::invalid,
                  "{}: programs of an earlier process are still being killed", path_);
  const auto me = describe_group(::getpid(), {});
  const auto text = fmt::format("{} {}\n", ::getpid(), me ? me->started : 0);
  if (::ftruncate(lock_, 0) != 0 ||
      ::pwrite(lock_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    return cannot(file, "written");
  return {};
}

expected<std::uint64_t> state_directory::next_incarnation() {
  const auto file = path_ + "/starts";
  std::uint64_t last = 0;
  std::ifstream{file} >> last;
  new_ = last == 0;
  // The clock is the minimum in case the file was lost; otherwise the count increases whatever the
  // clock says.
  const auto count = std::max(last + 1, minutes_since_1970());
  if (auto ok = write_whole_file(file, fmt::format("{}\n", count), private_file_mode); !ok)
    return refuse(ok.error());
  return make_incarnation(count);
}

}  // namespace troupe::runtime
