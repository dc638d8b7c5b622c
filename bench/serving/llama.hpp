#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::bench {

/// llama.cpp's CPU build by node-llama-cpp, in a process of its own. What it times includes
/// its JavaScript, for a decode some tens of microseconds a token.
class llama_peer {
 public:
  /// The folder that has node-llama-cpp and @node-llama-cpp/linux-x64, from TROUPE_NODE_MODULES;
  /// nothing, and a sentence, if it is not there.
  static std::optional<std::string> installed();

  llama_peer(const std::string& modules, const std::string& gguf, unsigned threads = 1);
  ~llama_peer();
  llama_peer(const llama_peer&) = delete;
  llama_peer& operator=(const llama_peer&) = delete;

  /// Seconds for a prompt, from nothing, with the logits of its last position.
  double prefill(const std::vector<std::uint32_t>& tokens);
  /// The most probable tokens after it, and the seconds that they take.
  struct decoded {
    double s = 0;
    std::vector<std::uint32_t> tokens;
  };
  decoded decode(std::size_t count);
  const std::string& version() const { return version_; }

 private:
  std::string command(const std::string& line);

  int pid_ = -1, to_ = -1;
  std::FILE* from_ = nullptr;
  std::string version_;
};

}  // namespace troupe::bench
