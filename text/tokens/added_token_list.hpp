#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_map>

#include "messages/base/reason.hpp"

namespace troupe::gpu {

/// The `added_tokens` of a tokenizer.json, to which other files add. Throws
/// nlohmann::json::exception for values of wrong types.
class added_token_list {
 public:
  /// `document`: has the list, and the vocabulary.
  explicit added_token_list(nlohmann::json& document);

  /// A token with its flags, which count if there is one of that name already. Fails if another
  /// file gives the name another number, or the number another name; `file`: for the sentence.
  expected<void> add(const std::filesystem::path& file, std::uint32_t number,
                     const nlohmann::json& token);
  /// A token as added_tokens.json has it, which is left as it is if there is one of that name.
  expected<void> add_name(const std::filesystem::path& file, std::uint32_t number,
                          const std::string& name, bool special);
  /// A name that stands for a special token, as bos_token's value: a text, or an object with flags.
  /// Without a number in the vocabulary it gets the next one.
  void add_special(const nlohmann::json& token);
  /// The number of a token, added or of the vocabulary.
  std::optional<std::uint32_t> number_of(const std::string& name) const;

 private:
  expected<void> check(const std::filesystem::path& file, std::uint32_t number,
                       const std::string& name) const;
  void push(nlohmann::json token, std::uint32_t number);
  std::uint32_t next_number() const;  // one more than the largest

  nlohmann::json& list_;
  const nlohmann::json& vocabulary_;
  std::unordered_map<std::string, std::size_t> by_name_;  // places in list_
  std::unordered_map<std::uint32_t, std::string> by_number_;
};

}  // namespace troupe::gpu
