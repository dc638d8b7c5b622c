#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gpu/inference/inference_model.hpp"
#include "messages/admission/example_settings.hpp"
#include "messages/base/reason.hpp"
#include "text/chat/chat_example.hpp"

namespace troupe::gpu {

/// A model folder, as far as it says how a file's examples are written.
struct example_model {
  inference_model model;
  std::unique_ptr<tokenizer> words;
  chat_template chats;
};
/// Fails for a folder that cannot be served, or has no tokenizer.
expected<example_model> open_example_model(const std::filesystem::path& folder);

/// The examples of a file, as rows of a training.
struct example_set {
  std::vector<training_example> examples;        // in the file's order
  std::vector<std::uint64_t> line_of;            // of each example
  std::vector<std::vector<std::uint32_t>> rows;  // numbers of examples
  std::uint32_t sequence = 0;                    // tokens of a row at most
  std::string form;                              // messages, conversations, prompt or text
  std::uint64_t lines = 0;                       // that have an example
  std::uint64_t tokens = 0, trained_tokens = 0;
  std::uint32_t longest = 0;  // tokens, before any is cut
  std::uint64_t too_long = 0, dropped = 0;
  std::uint32_t begins = 0;         // BOS tokens at the start of an example, at most
  std::uint64_t added_ends = 0;     // answers behind which the template writes no end
  bool has_end = false;             // there is a token to add
  std::uint64_t split_answers = 0;  // lines whose answers are examples of their own
  std::uint64_t boundary_cuts = 0;
  std::set<std::string> more_keys;  // that nothing reads

  /// Tokens by those that the rows could have.
  double fill() const;
};

/// Puts the examples of a set into rows, and counts their tokens.
void make_rows(example_set& s, bool packing);

/// Reads a file of examples, a JSON object a line. Fails with FILE:LINE, what was found and what is
/// expected; for lines of more than 16 MiB, files of more than 8 GiB, and 2^31 tokens.
expected<example_set> read_examples(const std::string& file, const example_model& m,
                                    const example_settings& how);

/// An example's text, with special tokens by name and U+FFFD for bytes that are no UTF-8, and the
/// ranges of its characters (code points) that are targets.
struct shown_example {
  std::string text;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> trained;
};
shown_example shown_example_of(const tokenizer& t, const training_example& e);

}  // namespace troupe::gpu
