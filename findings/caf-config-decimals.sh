#!/usr/bin/env bash
# CAF's configuration reader turns every fourth decimal with three digits behind the point into
# another double than C++, Python and every YAML or JSON reader do.
#
# Packages: Debian 12's libcaf-core0.17 and libcaf-dev 0.17.6-2.1+b1; compiled with the g++ that is
# there.
# Seen: of the million values 0.000 to 999.999, each written with three digits, 258,136 come out of
# actor_system_config::parse_config() as another double than strtod() returns, 0.007 among them;
# with one digit none, of numbers with 17 digits, as programs write them to be read back, a third.
# Likely guess: the nearest double, as the C++ library (which CAF could call) and IEEE 754 have it.
# Why it matters: a learning rate, a threshold or a bandwidth in an actor system's configuration
# file is another number than the same text in a job file of the same program: results that should
# agree to the last bit do not, and "rate == 0.007" is false.
# Date: 2026-11-29
#
# Exit status: 0 as seen, 1 otherwise, 2 if the packages cannot be had.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

command -v g++ >/dev/null || { echo "needs g++" >&2; exit 2; }
pinned=(libcaf-core0.17=0.17.6-2.1+b1 libcaf-dev=0.17.6-2.1+b1)
apt-get -qq -o APT::Sandbox::User=root -o Acquire::Retries=3 -o Acquire::http::Timeout=30 \
  -o Acquire::http::Pipeline-Depth=0 download "${pinned[@]}" || exit 2
for package in *.deb; do dpkg -x "$package" root; done
export LD_LIBRARY_PATH=$work/root/usr/lib/x86_64-linux-gnu

cat >decimals.cpp <<'CPP'
#include <caf/actor_system_config.hpp>
#include <caf/settings.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <sstream>
#include <string>
#include <vector>

// Prints how many of these texts the reader takes for another double than strtod() does.
void compare(const char* what, const std::vector<std::string>& texts) {
  std::stringstream file;
  file << "values = [\n";
  for (const auto& t : texts) file << t << ",\n";
  file << "]\n";
  const auto settings = caf::actor_system_config::parse_config(file);
  if (!settings) {
    std::printf("%s: %s\n", what, caf::to_string(settings.error()).c_str());
    return;
  }
  const auto read = caf::get<std::vector<double>>(*settings, "values");
  std::size_t other = 0, first = texts.size();
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (read[i] != std::strtod(texts[i].c_str(), nullptr) && other++ == 0) first = i;
  std::printf("%s: %zu of %zu are another double", what, other, texts.size());
  if (other > 0) std::printf("; %s is read as %.17g", texts[first].c_str(), read[first]);
  std::printf("\n");
}

std::string text_of(const char* form, double value) {
  char text[64];
  std::snprintf(text, sizeof text, form, value);
  return text;
}

int main() {
  std::vector<std::string> one, three, all;
  for (int i = 0; i < 10000; ++i) one.push_back(text_of("%.1f", i / 10.0));
  for (int i = 0; i < 1000000; ++i) three.push_back(text_of("%.3f", i / 1000.0));
  std::mt19937_64 bits{1};
  for (int i = 0; i < 100000; ++i) all.push_back(text_of("%.17f", std::ldexp(bits() >> 11, -53)));
  compare("one digit, 0.0 to 999.9", one);
  compare("three digits, 0.000 to 999.999", three);
  compare("17 digits, 0 to 1", all);
  std::stringstream file{"rate = 0.007\n"};
  const auto settings = caf::actor_system_config::parse_config(file);
  std::printf("rate = 0.007 is read as %.17g\n", caf::get<double>(*settings, "rate"));
}
CPP
g++ -std=c++17 -O1 -isystem root/usr/include decimals.cpp -o decimals \
  -L"$LD_LIBRARY_PATH" -lcaf_core || exit 2
echo "${pinned[*]}, $(g++ --version | head -n 1)"
./decimals | tee seen
cat >expected <<'TEXT'
one digit, 0.0 to 999.9: 0 of 10000 are another double
three digits, 0.000 to 999.999: 258136 of 1000000 are another double; 0.007 is read as 0.0069999999999999993
17 digits, 0 to 1: 33882 of 100000 are another double; 0.13387664401253263 is read as 0.13387664401253266
rate = 0.007 is read as 0.0069999999999999993
TEXT
diff expected seen || { echo "changed: other decimals are read as their neighbour" >&2; exit 1; }
echo "as seen on 2026-11-29"
