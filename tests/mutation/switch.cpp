// Which mutant a process runs. It is read before any other code of the program: constructors of
// global variables may be mutated, too.

#include <cstdlib>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mutation/mutant.hpp"

namespace mutation {

namespace {
constinit unsigned char own[max_sites] = {};
}

constinit int chosen = 0;
constinit unsigned char* executed = own;
constinit unsigned char impossible[max_sites] = {};

namespace {

[[gnu::constructor(101)]] void choose() {
  if (const char* mutant = std::getenv("TROUPE_MUTANT")) chosen = std::atoi(mutant);
  const char* file = std::getenv("TROUPE_MUTATION_EXECUTED");
  const int fd = file ? open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (fd < 0) return;
  if (ftruncate(fd, max_sites) == 0) {
    void* shared = mmap(nullptr, max_sites, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared != MAP_FAILED) executed = static_cast<unsigned char*>(shared);
  }
  close(fd);
}

}  // namespace

}  // namespace mutation
