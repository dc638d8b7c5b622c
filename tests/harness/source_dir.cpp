#include "harness/source_dir.hpp"

std::string troupe::test::source_dir() {
  return TROUPE_SOURCE_DIR;
}
