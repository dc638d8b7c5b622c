#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "messages/base/reason.hpp"
#include "text/json/json_members.hpp"
#include "text/tokens/added_token_list.hpp"
#include "text/tokens/tokenizer_document.hpp"

namespace troupe::gpu {

/// Settings of a folder for its tokens beside the vocabulary: tokenizer_config.json,
/// special_tokens_map.json and added_tokens.json. Each may be missing.
class tokenizer_settings {
 public:
  static expected<tokenizer_settings> read(const std::filesystem::path& folder);

  /// Changes the document as transformers does when it opens the folder: added tokens, the tokens
  /// before and after a text, and a space before it.
  expected<void> apply(tokenizer_document& d) const;

 private:
  struct file {
    std::filesystem::path path;
    nlohmann::json content;  // null: there is none
    /// A member; null: it, or the file, is not there.
    const nlohmann::json& at(const char* key) const { return member(content, key); }
  };

  expected<void> refuse_unknown() const;
  expected<void> add_tokens(added_token_list& list) const;
  expected<void> frame_texts(const added_token_list& list, tokenizer_document& d) const;
  expected<std::vector<std::uint32_t>> frame(const added_token_list& list, const char* key,
                                             const char* otherwise) const;
  void add_prefix_space(tokenizer_document& d) const;
  /// The name of a token such as bos_token; empty: there is none. `otherwise`: if no file has the
  /// key.
  std::string named(const char* key, const char* otherwise) const;
  bool is_of_class(std::initializer_list<const char*> names) const;

  file config_, map_, added_;
};

}  // namespace troupe::gpu
