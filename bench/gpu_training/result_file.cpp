#include "gpu_training/result_file.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace troupe::bench {

void result_file::put(const std::string& part, nlohmann::json result, bool complete) {
  if (path_.empty()) return;
  result["complete"] = complete;
  all_[part] = std::move(result);
  const auto unfinished = path_ + ".new";
  std::error_code error;
  {
    std::ofstream out{unfinished};
    // Another program's words may be in any encoding.
    out << all_.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n" << std::flush;
    if (!out) throw std::runtime_error(fmt::format("{} cannot be written", unfinished));
  }
  std::filesystem::rename(unfinished, path_, error);
  if (error)
    throw std::runtime_error(fmt::format("{} cannot be replaced: {}", path_, error.message()));
}

}  // namespace troupe::bench
