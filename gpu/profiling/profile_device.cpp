#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <vector>

#include "gpu/cpu/kernels/matrix.hpp"
#include "gpu/cuda/host/device.hpp"
#include "gpu/device/clock.hpp"
#include "gpu/device/device_type.hpp"
#include "gpu/profiling/profile.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::gpu {

namespace {

constexpr std::size_t copied_bytes = std::size_t{256} << 20;
constexpr int copies = 5;

/// The first value with this key in a file of lines "key : value".
std::string line_of(const char* file, std::string_view key) {
  std::ifstream in{file};
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    const auto colon = line.find(':');
    const auto first = line.find_first_not_of(" \t", colon + 1);
    if (colon != std::string::npos && first != std::string::npos) return line.substr(first);
  }
  return {};
}

double number_of(const std::string& text) {
  return text.empty() ? 0 : std::strtod(text.c_str(), nullptr);
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

/// 10^9 bytes per second of the fastest of several copies; `copy` is synchronous.
/// The fastest copy, because disturbances only slow one down; the bytes are far more than any
/// cache.
double rate_of(std::size_t bytes, const std::function<void()>& copy) {
  copy();  // untouched memory is slower
  double quickest_s = 1e9;
  for (int i = 0; i < copies; ++i) {
    const double begin_s = now_s();
    copy();
    quickest_s = std::min(quickest_s, now_s() - begin_s);
  }
  return static_cast<double>(bytes) / quickest_s / 1e9;
}

}  // namespace

device_profile describe_cpu() {
  device_profile p;
  p.kind = name_of(device_kind::cpu);
  p.device = line_of("/proc/cpuinfo", "model name");
  if (p.device.empty()) p.device = "unnamed CPU";
  utsname system{};
  if (::uname(&system) == 0) p.driver = fmt::format("{} {}", system.sysname, system.release);
  p.runtime = "g++ " __VERSION__;
  p.libraries = cpu::products_library();
  p.clocks.core_mhz = number_of(line_of("/proc/cpuinfo", "cpu MHz"));
  std::ifstream max{"/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"};  // in kHz
  if (double khz = 0; max >> khz) p.clocks.core_max_mhz = khz / 1000;
  p.total_bytes = static_cast<std::uint64_t>(number_of(line_of("/proc/meminfo", "MemTotal"))) << 10;
  p.free_bytes = static_cast<std::uint64_t>(number_of(line_of("/proc/meminfo", "MemAvailable")))
                 << 10;
  std::vector<std::byte> from(copied_bytes), to(copied_bytes);
  p.copies.on_device_gbytes_s =
      rate_of(copied_bytes, [&] { std::memcpy(to.data(), from.data(), copied_bytes); });
  p.copies.all_reduce = "not measured: CPU stages all-reduce over sockets, at the rate of the link";
  return p;
}

namespace {

// Pinned memory, as the stages' transfers have it: pageable memory is copied at a lower rate.
copy_rates rates_of(cuda::machine& m, std::size_t bytes) {
  copy_rates c;
  auto *one = m.take(bytes), *two = m.take(bytes), *host = m.take_host(bytes);
  const auto rate = [&](const std::function<void()>& copy) {
    return rate_of(bytes, [&] {
      copy();
      m.wait(m.record_event());
    });
  };
  m.zero(one, bytes);
  c.to_device_gbytes_s = rate([&] { m.copy_in(two, host, bytes); });
  c.from_device_gbytes_s = rate([&] { m.copy_out(host, one, bytes); });
  c.on_device_gbytes_s = rate([&] { m.copy(two, one, bytes); });
  m.give(one), m.give(two), m.give_host(host);
  return c;
}

}  // namespace

// The machine is closed before all-reduces are measured, which open every device again.
expected<device_profile> describe_cuda(int index) {
  auto opened = cuda::open_machine_here(index);
  if (!opened) return refuse(opened.error());
  try {
    auto p = describe_machine(**opened, copied_bytes);
    const int devices = (*opened)->facts().devices;
    opened->reset();
    measure_sums({.first = index, .devices = devices}, cuda::open_machine_here, p.copies);
    return p;
  } catch (const std::runtime_error& e) {
    return refuse(reason::kind::unavailable, e.what());
  }
}

device_profile describe_machine(cuda::machine& m, std::size_t bytes) {
  m.enter();
  const auto facts = m.facts();
  const auto memory = m.memory();
  device_profile p;
  p.kind = name_of(device_kind::cuda);
  p.device = m.name();
  p.driver = facts.driver;
  p.runtime = facts.runtime;
  p.libraries = facts.libraries;
  p.clocks = {facts.core_mhz, facts.core_max_mhz, facts.memory_mhz, facts.memory_max_mhz};
  p.total_bytes = memory.total_bytes;
  p.free_bytes = memory.free_bytes;
  p.copies = rates_of(m, bytes);
  return p;
}

expected<device_profile> describe_device(const std::string& device, int index) {
  const auto* type = type_of(device_kind_of(device).value_or(device_kind::sim));
  if (!type) return refuse(reason::kind::invalid, "devices of kind '{}' compute nothing", device);
  auto p = type->describe(index);
  if (p) p->date = utc_now();
  return p;
}

expected<std::uint64_t> free_memory(int index) {
  const auto opened = cuda::open_machine_here(index);
  if (!opened) return refuse(opened.error());
  try {
    (*opened)->enter();
    return (*opened)->memory().free_bytes;
  } catch (const std::runtime_error& e) {
    return refuse(reason::kind::unavailable, e.what());
  }
}

}  // namespace troupe::gpu
