#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

namespace troupe::test {

/// Overwrites 32-bit floats of a tensor in a safetensors file: values [first, first + count).
inline void overwrite_values(const std::filesystem::path& file, const std::string& tensor,
                             std::size_t first, std::size_t count, float value) {
  std::string bytes;
  {
    std::ifstream in{file, std::ios::binary};
    bytes = {std::istreambuf_iterator<char>{in}, {}};
  }
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const auto header = nlohmann::json::parse(bytes.substr(sizeof length, length));
  const auto begin = header.at(tensor).at("data_offsets").at(0).get<std::size_t>();
  for (std::size_t i = first; i < first + count; ++i)
    std::memcpy(&bytes.at(sizeof length + length + begin + i * sizeof value), &value, sizeof value);
  std::ofstream{file, std::ios::binary} << bytes;
}

}  // namespace troupe::test
