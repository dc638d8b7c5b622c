#!/usr/bin/env bash
# In a CAF configuration file, which of two settings of a key counts, and whether a section's second
# part counts at all, depends on whether the section is written with braces or brackets.
#
# Packages: Debian 12's libcaf-core0.17 and libcaf-dev 0.17.6-2.1+b1; compiled with the g++ that is
# there.
# Seen: of a key set twice the last counts between braces, the first under [section]. A section in
# two parts: with brackets they are merged and the last value counts; with braces the second part is
# dropped as a whole, and with it keys that the first part lacks; where the section is a nested one,
# [s.t] or a block in a block, the second part replaces the first. None of it is an error.
# Likely guess: the last counts and parts are merged, or a repeated key is an error; and the two
# notations mean the same.
# Why it matters: a deployment appends its own "scheduler { ... }" or "middleman { ... }" to the
# default file of an actor system. Written with brackets it is in force, with braces it is not read:
# the number of threads, a heartbeat or a timeout keeps its default, and no log says so.
# Date: 2026-12-01
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

cat >repeated.cpp <<'CPP'
#include <algorithm>
#include <caf/actor_system_config.hpp>
#include <caf/settings.hpp>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

struct Config : caf::actor_system_config {
  using caf::actor_system_config::content;
};

// Reads the file as an actor system does, and prints what it has of this section.
void read(const char* section, std::string text) {
  std::stringstream file{text + "\n"};
  Config config;
  const auto error = config.parse(std::vector<std::string>{}, file);
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::printf("%s ->", text.c_str());
  if (error) std::printf(" error");
  for (const char* key : {"x", "y"})
    if (const auto value = caf::get_if<int>(&config.content, std::string(section) + "." + key))
      std::printf(" %s %d", key, *value);
  std::printf("\n");
}

int main() {
  std::printf("one key twice\n");
  read("s", "s {\nx = 1\nx = 2\n}");
  read("s", "[s]\nx = 1\nx = 2");
  std::printf("a section twice\n");
  read("s", "s {\nx = 1\n}\ns {\nx = 2\ny = 3\n}");
  read("s", "[s]\nx = 1\n[s]\nx = 2\ny = 3");
  std::printf("a nested section twice\n");
  read("s.t", "s {\nt {\nx = 1\n}\nt {\ny = 3\n}\n}");
  read("s.t", "[s.t]\nx = 1\n[s.t]\ny = 3");
}
CPP
g++ -std=c++17 -O1 -isystem root/usr/include repeated.cpp -o repeated \
  -L"$LD_LIBRARY_PATH" -lcaf_core || exit 2
echo "${pinned[*]}, $(g++ --version | head -n 1)"
./repeated | tee seen
cat >expected <<'TEXT'
one key twice
s { x = 1 x = 2 } -> x 2
[s] x = 1 x = 2 -> x 1
a section twice
s { x = 1 } s { x = 2 y = 3 } -> x 1
[s] x = 1 [s] x = 2 y = 3 -> x 2 y 3
a nested section twice
s { t { x = 1 } t { y = 3 } } -> y 3
[s.t] x = 1 [s.t] y = 3 -> y 3
TEXT
diff expected seen || { echo "changed: another setting counts" >&2; exit 1; }
echo "as seen on 2026-12-01"
