#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "messages/wire/generation.hpp"

// A host's requests to complete prompts, without the headers of the actor library.

namespace troupe::actors {

/// A prompt for a model.
struct model_prompt {
  std::string model;  // the served name
  completion_request what;
  std::vector<std::uint32_t> tokens;  // what.prompt_tokens; in a simulation it may be empty
  std::string adapter{};              // of the model's; empty: the model itself
};

/// Progress of a request, or its end.
struct completion_update {
  std::uint64_t number = 0;                            // of the request
  std::uint32_t first = 0;                             // position of the first of `tokens`
  std::vector<generated_token> tokens;                 // new ones, in order, each once
  std::uint32_t scored = 0;                            // the first ones, which are the prompt's
  generated::ending finish = generated::ending::none;  // after these; the last update
  // Failed: `invalid`: no decoder can ever serve it; `insufficient`: over the present limits;
  // others: none is available.
  reason why;
  std::optional<prefill_place> where{};  // with the first token
  std::uint32_t attempts = 1;
  address decoder = 0;  // the node; 0: none
};
/// Called on the front's thread; must not block.
using completion_listener = std::function<void(const completion_update&)>;

/// The decoders of a model, together.
struct served_now {
  std::string folder;       // of the model's files
  std::uint64_t files = 0;  // their hash, as the controller states it; 0: unknown
  std::uint32_t decoders = 0;
  std::uint32_t context = 0;  // the largest
  std::uint32_t pages = 0, free_pages = 0;
  std::uint32_t running = 0, waiting = 0, max_sequences = 0;
  std::uint32_t cached_pages = 0;  // of the free ones: those with the beginning of a prompt
  // Since this front knows them, those that are over included: sequences that were set back, and
  // positions of prompts that were computed, or that other prompts had computed.
  std::uint64_t set_back = 0, computed_prompt = 0, cached_prompt = 0;
  std::set<std::string> adapters{};  // that one of them serves
};
/// A front's knowledge of the cluster.
struct front_view {
  bool has_statement = false;                // the controller has stated the served models
  std::set<std::string> served;              // those, by unfinished jobs: with a decoder or not yet
  std::map<std::string, served_now> models;  // those with a decoder
  std::size_t requests = 0;                  // of this front, that have not ended

  /// May a name that is not offered be so soon? Adapters are known by the decoders of their model:
  /// while a model has none, any name may be one of its adapters.
  bool may_be_offered(const std::string& name) const;
};

/// The front of this host, for other threads and actors of its process. Thread-safe; copies are the
/// same front. A front that is over, or has not begun, ignores everything.
class completions {
 public:
  completions();

  /// Completes a prompt; `listener` is called until the end. Returns the request's number.
  std::uint64_t submit(model_prompt p, completion_listener listener) const;
  /// Ends a request: its client has left, or has `enough`. Its listener may still be called for a
  /// moment. Unknown numbers are ignored.
  void cancel(std::uint64_t number, bool enough = false) const;
  front_view view() const;

  /// For the front: the calls into it, from any thread.
  struct front_port {
    std::function<void(std::uint64_t, model_prompt, completion_listener)> submit;
    std::function<void(std::uint64_t, bool enough)> cancel;
  };
  void connect(front_port port) const;
  void publish(front_view now) const;

 private:
  struct shared;
  std::shared_ptr<shared> shared_;
};

}  // namespace troupe::actors
