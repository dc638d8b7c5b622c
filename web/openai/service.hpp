#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "messages/base/random.hpp"
#include "runtime/host/clock.hpp"
#include "web/http/api_keys.hpp"
#include "web/http/cors.hpp"
#include "web/http/http_server.hpp"
#include "web/http/routes.hpp"
#include "web/openai/answer.hpp"
#include "web/openai/generator.hpp"
#include "web/openai/metrics.hpp"
#include "web/openai/openai.hpp"
#include "web/openai/prompt_queues.hpp"
#include "web/openai/served_model.hpp"

namespace troupe::web {

/// OpenAI's API: answers HTTP requests by what generators generate. handle() is called on one
/// thread, which must not wait: prompts are encoded on threads of the service's own. The other
/// functions are called on any. The HTTP server must end before this does.
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
  /// Pages in browsers that may read answers; without it none of other origins. Call it before the
  /// first request.
  void allow_origins(std::vector<std::string> origins) { cors_ = cors_policy{std::move(origins)}; }
  /// Writes a line of the log for each request. Call it before the first one.
  void log_requests() { logs_ = true; }
  /// Instead of the present ones; they may not become nothing.
  void change_keys(api_keys keys);

  /// From now on new requests to generate get 503, and so does /health; those that have begun go
  /// on.
  void drain() { draining_ = true; }
  /// Requests to generate that have begun and not ended.
  std::size_t requests() const;
  /// Ends them; their clients get this sentence as an error.
  void end_all(const std::string& sentence);

 private:
  class running;
  struct offered {
    served_model model;
    std::shared_ptr<generator> by;
  };
  using offer_ptr = std::shared_ptr<const offered>;

  bool has_keys() const;
  /// True without keys: everybody may ask.
  bool has_key(const http_request& r) const;
  offer_ptr find(const std::string& model) const;
  std::vector<offer_ptr> all() const;
  /// Models that can be asked now.
  std::vector<openai::listed_model> present() const;
  /// A request that is the server's to refuse before its body is parsed.
  std::optional<openai::problem> refusal_of_body(const http_request& r) const;
  bool is_expected(const std::string& model) const;
  openai::problem unknown_model(const std::string& name) const;
  generator_state state() const;

  static std::span<const route<service>> routes();
  std::string welcome() const;
  http_answer health() const;
  /// Replies, now or later.
  void generate(const http_request& r, bool chat, const std::shared_ptr<http_reply>& reply);
  std::optional<openai::problem> refusal_of_text(const http_request& r) const;
  void tokenize(const http_request& r, const std::shared_ptr<http_reply>& reply);
  void detokenize(const http_request& r, const std::shared_ptr<http_reply>& reply);
  /// That model; without a name the only one. Null: there is none.
  offer_ptr named_or_only(const std::string& name) const;
  std::uint64_t random_number();
  void remember(const std::shared_ptr<running>& one);
  void fail(const openai::problem& p, const std::string& model,
            const std::shared_ptr<http_reply>& reply);
  /// On an encoder's thread.
  openai::parsed<void> start(const openai::request& asked, const offer_ptr& to,
                             const std::shared_ptr<http_reply>& reply,
                             const std::shared_ptr<running>& r);
  answer::question question_of(const openai::request& asked, const served_model& m,
                               const generation& g);
  openai::parsed<std::vector<std::uint64_t>> submit(const openai::request& asked, const offered& to,
                                                    const generation& g,
                                                    const std::shared_ptr<answer>& result);

  const runtime::clock& clock_;
  const std::int64_t started_;
  cors_policy cors_{{}};
  bool logs_ = false;
  std::mutex random_mutex_;
  random_source random_;
  metrics metrics_;
  mutable std::mutex mutex_;
  std::shared_ptr<const api_keys> keys_;      // null: everybody may ask
  std::map<std::string, offer_ptr> offered_;  // generators' listeners use what is above
  std::function<bool(const std::string&)> expected_;
  std::vector<std::weak_ptr<running>> begun_;
  std::atomic<bool> draining_{false};
  prompt_queues encoders_;  // ends first
};

}  // namespace troupe::web
