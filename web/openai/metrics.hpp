#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "web/openai/generator.hpp"

namespace troupe::web {

/// The outcome of a request.
enum class outcome : std::uint8_t {
  finished,
  cancelled,  // the client left
  declined,   // too many
  invalid,    // 4xx
  failed
};

/// Prometheus metrics of serving. Thread-safe.
class metrics {
 public:
  /// state: asked whenever the metrics are written.
  explicit metrics(std::function<generator_state()> state);
  ~metrics();
  metrics(const metrics&) = delete;
  metrics& operator=(const metrics&) = delete;

  /// A model is served: its requests are counted from 0 on.
  void add_model(const std::string& model);
  /// Removes the counters of a model that is not served any more, so that names do not accumulate.
  void remove_model(const std::string& model);
  /// `model`: empty, or not served: counted without a name.
  void count(outcome o, const std::string& model);
  void prompt_tokens(std::uint64_t n);
  /// One generated token: the first of its choice, so long after the request; or so long after the
  /// one before.
  void first_token(double s);
  void next_token(double s);
  /// A choice's prompt has been computed; called once for each choice.
  void prefilled(const sequence_place& where);
  /// A choice has ended, after that number of attempts; its request, that long after it was made.
  void choice_ended(std::uint32_t attempts);
  void request_ended(double s);

  /// In Prometheus's text format, version 0.0.4.
  std::string text() const;

 private:
  struct families;
  std::function<generator_state()> state_;
  std::unique_ptr<families> families_;
};

}  // namespace troupe::web
