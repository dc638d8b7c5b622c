#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "gpu/inference/inference_device.hpp"
#include "gpu/text/chat_format.hpp"
#include "messages/random.hpp"
#include "runtime/host/clock.hpp"
#include "web/answer.hpp"
#include "web/api_keys.hpp"
#include "web/batch_loop.hpp"
#include "web/http_server.hpp"
#include "web/metrics.hpp"
#include "web/openai.hpp"

namespace troupe::web {

/// A model that is served.
struct served_model {
  std::string name;
  gpu::inference_model model;
  std::shared_ptr<const gpu::tokenizer> words;  // null: tokens without text
  gpu::chat_format format = gpu::chat_format::plain;
};

/// OpenAI's API: answers HTTP requests by what the batch loop generates. handle() is called on one
/// thread. The HTTP server must end before this does.
class service {
 public:
  /// seed: of the choice of tokens for requests without a seed, and of the answers' names.
  service(served_model model, std::unique_ptr<gpu::inference_device> device,
          const batch_limits& limits, std::optional<api_keys> keys, const runtime::clock& clock,
          std::uint64_t seed);
  ~service();
  service(const service&) = delete;
  service& operator=(const service&) = delete;

  void handle(const http_request& r, std::shared_ptr<http_reply> reply);

 private:
  using prompt_list = std::vector<std::vector<std::uint32_t>>;

  http_answer get(const std::string& path) const;
  /// Replies, now or later.
  void generate(const http_request& r, bool chat, const std::shared_ptr<http_reply>& reply);
  openai::parsed<void> start(const http_request& r, bool chat,
                             const std::shared_ptr<http_reply>& reply);
  openai::parsed<std::vector<std::uint32_t>> tokens_of(const openai::prompt& p) const;
  openai::parsed<prompt_list> prompts_of(const openai::request& r) const;
  openai::parsed<std::uint32_t> max_tokens_of(const openai::request& r,
                                              const prompt_list& prompts) const;
  std::string text_of(const openai::request& r, const prompt_list& prompts, std::size_t i) const;
  openai::parsed<std::vector<std::uint64_t>> submit(const openai::request& asked,
                                                    const prompt_list& prompts,
                                                    std::uint32_t max_tokens,
                                                    const std::shared_ptr<answer>& to);

  const served_model model_;
  const std::optional<api_keys> keys_;
  const runtime::clock& clock_;
  const std::int64_t started_;
  random_source random_;
  metrics metrics_;
  batch_loop loop_;  // its listeners use what is above
};

}  // namespace troupe::web
