// Preloaded (LD_PRELOAD), shifts the wall clock of one process: the file that TROUPE_TEST_CLOCK
// names holds one double, the seconds to add to CLOCK_REALTIME, and may be written at any time.
// Other clocks stay as they are.

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <ctime>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

namespace {

using read_clock = int (*)(clockid_t, timespec*);

/// The mapped file; null: none.
const std::atomic<double>* offset() {
  static const auto* mapped = []() -> const std::atomic<double>* {
    const char* file = std::getenv("TROUPE_TEST_CLOCK");
    const int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return nullptr;
    void* at = mmap(nullptr, sizeof(double), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    return at == MAP_FAILED ? nullptr : static_cast<const std::atomic<double>*>(at);
  }();
  return mapped;
}

int read_shifted(clockid_t which, timespec* t) {
  static const auto real = reinterpret_cast<read_clock>(dlsym(RTLD_NEXT, "clock_gettime"));
  const int result = real(which, t);
  const auto* by = offset();
  if (result != 0 || !by || (which != CLOCK_REALTIME && which != CLOCK_REALTIME_COARSE))
    return result;
  const double s = by->load(std::memory_order_relaxed), whole = std::floor(s);
  t->tv_sec += static_cast<time_t>(whole);
  t->tv_nsec += static_cast<long>((s - whole) * 1e9);
  if (t->tv_nsec >= 1'000'000'000) ++t->tv_sec, t->tv_nsec -= 1'000'000'000;
  return 0;
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t which, timespec* t) noexcept {
  return read_shifted(which, t);
}

int gettimeofday(timeval* t, void*) noexcept {
  timespec now{};
  const int result = read_shifted(CLOCK_REALTIME, &now);
  *t = {now.tv_sec, now.tv_nsec / 1000};
  return result;
}

time_t time(time_t* t) noexcept {
  timespec now{};
  read_shifted(CLOCK_REALTIME, &now);
  if (t) *t = now.tv_sec;
  return now.tv_sec;
}
}
