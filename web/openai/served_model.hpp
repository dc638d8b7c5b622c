#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpu/inference/adapter.hpp"
#include "gpu/inference/inference_model.hpp"
#include "text/chat/chat_template.hpp"
#include "text/tokens/tokenizer.hpp"
#include "web/openai/generator.hpp"
#include "web/openai/openai.hpp"

namespace troupe::web {

/// A model that is served.
struct served_model {
  std::string name;
  gpu::inference_model model;
  std::shared_ptr<const gpu::tokenizer> words;  // null: tokens without text
  gpu::chat_template chats;
  std::string no_words{};      // why not, as "has no tokenizer ..."; empty: it has words
  gpu::adapter_ref adapter{};  // that the model is served with
  // An adapter has the name of the model without it. In a cluster `adapter` is null all the same.
  std::string parent{};
};

/// Reads a model's folder, of which all but the weights is in the result.
expected<served_model> read_served_model(const std::string& name, const std::string& folder);

/// A request's prompts and size, as a generator needs them.
struct generation {
  std::vector<std::vector<std::uint32_t>> prompts;  // each has at least one token
  std::uint32_t max_tokens = 0;                     // of each choice
  gpu::stop_texts stops;                            // of all choices
};

/// Encodes a request's prompts. `positions`: of a prompt and its completion, at most. Refuses what
/// the model cannot hold, if possible before it is encoded, and tokens beyond the vocabulary.
openai::parsed<generation> generation_of(const openai::request& r, const served_model& m,
                                         std::size_t positions);

/// The tokens of a request's first prompt, or of its messages, however many.
openai::parsed<std::vector<std::uint32_t>> first_prompt_of(const openai::request& r,
                                                           const served_model& m);

/// One choice for one of the prompts, without its listener and seed.
generator::submission submission_of(const openai::request& r, const served_model& m,
                                    const generation& g, std::size_t prompt);

/// A prompt of a request as text; empty: it was given as tokens, and the model has no tokenizer.
std::string text_of(const openai::prompt& p, const served_model& m);

}  // namespace troupe::web
