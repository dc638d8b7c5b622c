#include "text/tokens/open_tokenizer.hpp"

#include <system_error>

#include "messages/base/refuse.hpp"
#include "text/tokens/json_tokenizer.hpp"
#include "text/tokens/tokenizer_document.hpp"
#include "text/tokens/tokenizer_folder.hpp"

namespace troupe::gpu {

namespace {

namespace fs = std::filesystem;

/// For models on bytes, whose folders need no files of a tokenizer.
class byte_tokenizer final : public tokenizer {
 public:
  std::vector<std::uint32_t> encode(std::string_view text,
                                    std::span<const text_range>) const override {
    std::vector<std::uint32_t> tokens;
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  std::string text_of(std::uint32_t token, bool) const override {
    return token < size() ? std::string(1, static_cast<char>(token)) : std::string{};
  }
  std::optional<std::uint32_t> special(std::string_view) const override { return std::nullopt; }
  std::uint32_t size() const override { return 256; }
  std::size_t longest_token_bytes() const override { return 1; }
};

}  // namespace

/// Tokens number the rows of the model's embedding: a larger vocabulary belongs to another model.
expected<std::unique_ptr<tokenizer>> open_tokenizer(const fs::path& folder,
                                                    std::uint32_t vocabulary) {
  const auto document = read_tokenizer_document(folder);
  if (!document) return refuse(document.error());
  if (!*document)
    return vocabulary == 256 ? std::make_unique<byte_tokenizer>() : std::unique_ptr<tokenizer>{};
  auto opened = make_json_tokenizer(**document);
  if (opened && (*opened)->size() > vocabulary)
    return refuse(reason::kind::invalid, "{}: has {} tokens, the model's vocabulary only {}",
                  (*document)->file.string(), (*opened)->size(), vocabulary);
  return opened;
}

std::string missing_tokenizer_text(const fs::path& folder) {
  const std::string text = "has no tokenizer (tokenizer.json, or vocab.json and merges.txt)";
  std::error_code error;
  for (const char* name : {"tokenizer.model", "tokenizer.model.v3", "sentencepiece.bpe.model",
                           "spiece.model", "tekken.json", "qwen.tiktoken", "vocab.txt"})
    if (fs::exists(folder / name, error))
      return text + ", only " + name +
             ", which is not read: save_pretrained() of transformers' AutoTokenizer makes "
             "tokenizer.json of it";
  return text;
}

expected<std::unique_ptr<tokenizer>> open_vocabulary(const fs::path& folder) {
  const auto document = read_vocabulary_document(folder);
  return document ? make_json_tokenizer(*document) : refuse(document.error());
}

}  // namespace troupe::gpu
