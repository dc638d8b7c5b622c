#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/host/clock.hpp"
#include "text/tokens/tokenizer.hpp"
#include "web/http/http_server.hpp"
#include "web/openai/generator.hpp"
#include "web/openai/metrics.hpp"
#include "web/openai/openai.hpp"

namespace troupe::web {

/// The outcome that a problem counts as.
outcome outcome_of(const openai::problem& p);
/// Further fields of the header of an answer that is a problem.
http_fields fields_of(const openai::problem& p);
/// The answer that is a problem.
http_answer answer_of(const openai::problem& p, http_fields fields = {});

/// The answer to one request to generate, as it grows by its choices' tokens: whole, or a stream.
/// step() is called on the generator's thread, gone() on the server's.
class answer {
 public:
  /// The part of a choice's text before its completion.
  struct echoed {
    std::string text;
    std::optional<std::uint32_t> first;  // token of a prompt whose log probabilities follow
  };
  struct question {
    openai::answer_head head;
    bool stream = false, include_usage = false, log_probabilities = false, token_numbers = false;
    std::vector<echoed> prefixes;  // of each choice
    std::uint64_t prompt_tokens = 0;
    std::uint32_t choices_of_prompt = 1;  // one after another
  };

  /// words: null: tokens without text. counted, clock: they must outlive this.
  answer(question asked, std::shared_ptr<const gpu::tokenizer> words,
         std::shared_ptr<http_reply> reply, metrics& counted, const runtime::clock& clock);

  void step(std::uint32_t index, const sequence_step& s);
  /// A choice for which there is nothing to generate.
  void end(std::uint32_t index);
  /// It ends before its time: the client has left, or the server has said so to it.
  void gone(outcome o = outcome::cancelled) { count(o); }

 private:
  struct one {
    openai::choice choice;
    double last_s = 0;
    std::uint64_t tokens = 0;  // of the completion
    std::uint32_t cached = 0;  // tokens of its prompt that were not computed for it
  };

  void count(outcome o);
  void measure(one& c, const sequence_step& s);
  void take_place(openai::choice& c, const sequence_step& s);
  openai::token_choice::token named(const weighed_token& t) const;
  openai::token_choice token_of(const generated_token& t) const;
  void send(one& c, bool ends);
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
  std::size_t left_;    // choices that have not ended
  http_fields fields_;  // of the header
  bool begun_ = false, failed_ = false;
  std::atomic<bool> counted_{false};
};

}  // namespace troupe::web
