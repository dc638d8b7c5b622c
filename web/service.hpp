#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "gpu/inference/inference_model.hpp"
#include "gpu/text/chat_template.hpp"
#include "messages/random.hpp"
#include "runtime/host/clock.hpp"
#include "web/answer.hpp"
#include "web/api_keys.hpp"
#include "web/generator.hpp"
#include "web/http_server.hpp"
#include "web/metrics.hpp"
#include "web/openai.hpp"

namespace troupe::web {

/// A model that is served.
struct served_model {
  std::string name;
  gpu::inference_model model;
  std::shared_ptr<const gpu::tokenizer> words;  // null: tokens without text
  gpu::chat_template chats;
};

/// OpenAI's API: answers HTTP requests by what generators generate. handle() is called on one
/// thread, the other functions on any. The HTTP server must end before this does.
class service {
 public:
  /// keys: nothing: everybody may ask. seed: of the choice of tokens for requests without a seed,
  /// and of the answers' names.
  service(std::optional<api_keys> keys, const runtime::clock& clock, std::uint64_t seed);
  ~service();
  service(const service&) = delete;
  service& operator=(const service&) = delete;

  void handle(const http_request& r, std::shared_ptr<http_reply> reply);

  /// From now on requests for this model go to this generator.
  void offer(served_model model, std::shared_ptr<generator> by);
  /// No new request goes to this model's generator; those that it has end as if nothing had
  /// happened.
  void withdraw(const std::string& model);
  /// Asked about models that are not offered: may this one be soon? Then the answer is 503, not
  /// 404. Called on the server's threads.
  void expect(std::function<bool(const std::string&)> model);
  /// Instead of the present ones; they may not become nothing.
  void change_keys(api_keys keys);

 private:
  struct offered {
    served_model model;
    std::shared_ptr<generator> by;
  };
  using offer_ptr = std::shared_ptr<const offered>;
  using prompt_list = std::vector<std::vector<std::uint32_t>>;

  bool has_keys() const;
  bool may_ask(const http_request& r) const;
  offer_ptr find(const std::string& model) const;
  std::vector<offer_ptr> all() const;
  /// Names of models that can be asked at present.
  std::vector<std::string> present() const;
  bool is_expected(const std::string& model) const;
  openai::problem unknown_model(const std::string& name) const;
  generator_state state() const;

  http_answer get(const std::string& path) const;
  http_answer health() const;
  /// Replies, now or later.
  void generate(const http_request& r, bool chat, const std::shared_ptr<http_reply>& reply);
  /// `model`: the one that is asked for, once it is known to be served.
  openai::parsed<void> start(const http_request& r, bool chat,
                             const std::shared_ptr<http_reply>& reply, std::string& model);
  answer::question question_of(const openai::request& asked, const served_model& m,
                               const prompt_list& prompts);
  openai::parsed<std::vector<std::uint64_t>> submit(const openai::request& asked, const offered& to,
                                                    const prompt_list& prompts,
                                                    std::uint32_t max_tokens,
                                                    const std::shared_ptr<answer>& result);

  const runtime::clock& clock_;
  const std::int64_t started_;
  random_source random_;
  metrics metrics_;
  mutable std::mutex mutex_;
  std::shared_ptr<const api_keys> keys_;      // null: everybody may ask
  std::map<std::string, offer_ptr> offered_;  // generators' listeners use what is above
  std::function<bool(const std::string&)> expected_;
};

}  // namespace troupe::web
