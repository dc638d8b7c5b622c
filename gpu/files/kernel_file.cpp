#include "gpu/files/kernel_file.hpp"

#include <cstdio>
#include <memory>

namespace troupe::gpu {

std::string kernel_file(const std::filesystem::path& file) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in{std::fopen(file.c_str(), "re"),
                                                           std::fclose};
  std::string text;
  char block[4096];
  while (in) {
    const auto n = std::fread(block, 1, sizeof block, in.get());
    if (n == 0) break;
    text.append(block, n);
  }
  return text;
}

}  // namespace troupe::gpu
