#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "gpu/text/tokenizer.hpp"
#include "runtime/host/clock.hpp"
#include "web/batch_loop.hpp"
#include "web/http_server.hpp"
#include "web/metrics.hpp"
#include "web/openai.hpp"

namespace troupe::web {

/// The answer to one request to generate, as it grows by its choices' tokens: whole, or a stream.
/// step() is called on the batch loop's thread, gone() on the server's.
class answer {
 public:
  struct question {
    openai::answer_head head;
    bool stream = false, include_usage = false, log_probabilities = false;
    std::vector<std::string> prefixes;  // of each choice: what comes before its text (echo)
    std::uint64_t prompt_tokens = 0;
    http_fields fields;  // of the answer's header
  };

  /// words: null: tokens without text. counted, clock: they must outlive this.
  answer(question asked, std::shared_ptr<const gpu::tokenizer> words,
         std::shared_ptr<http_reply> reply, metrics& counted, const runtime::clock& clock);

  void step(std::uint32_t index, const sequence_step& s);
  void gone() { count(outcome::cancelled); }

 private:
  struct one {
    openai::choice choice;
    double last_s = 0;
    std::uint64_t tokens = 0;
  };

  void count(outcome o);
  void measure(one& c);
  openai::token_choice token_of(const sequence_step& s) const;
  void send(one& c, const sequence_step& s);
  void begin_stream();
  void finish();
  void fail(const reason& why);

  const question asked_;
  const std::shared_ptr<const gpu::tokenizer> words_;
  const std::shared_ptr<http_reply> reply_;
  metrics& metrics_;
  const runtime::clock& clock_;
  const double begin_s_;
  std::vector<one> choices_;
  std::size_t left_;  // choices that have not ended
  bool begun_ = false, failed_ = false;
  std::atomic<bool> counted_{false};
};

}  // namespace troupe::web
