#include "gpu/text/tokenizer.hpp"

#include <fmt/format.h>

#include "gpu/text/bpe.hpp"
#include "gpu/text/json_tokenizer.hpp"

namespace troupe::gpu {

namespace {

namespace fs = std::filesystem;

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
};

class gpt2_tokenizer final : public tokenizer {
 public:
  explicit gpt2_tokenizer(bpe b) : bpe_{std::move(b)} {
    const auto found = bpe_.encode(end_of_text);
    if (found.size() == 1) end_ = found[0];
  }
  std::vector<std::uint32_t> encode(std::string_view text,
                                    std::span<const text_range> literal) const override {
    return bpe_.encode(text, literal);
  }
  std::string text_of(std::uint32_t token, bool) const override {
    return token == end_ ? std::string{} : bpe_.decode({&token, 1});
  }
  std::string written(std::uint32_t token) const override { return bpe_.decode({&token, 1}); }
  std::optional<std::uint32_t> special(std::string_view name) const override {
    return name == end_of_text ? end_ : std::nullopt;
  }
  std::uint32_t size() const override { return bpe_.size(); }

 private:
  static constexpr std::string_view end_of_text = "<|endoftext|>";
  bpe bpe_;
  std::optional<std::uint32_t> end_;
};

}  // namespace

std::string tokenizer::decode(std::span<const std::uint32_t> tokens) const {
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) text += text_of(tokens[i], i == 0);
  return text;
}

expected<std::unique_ptr<tokenizer>> open_tokenizer(const fs::path& folder,
                                                    std::uint32_t vocabulary) {
  std::unique_ptr<tokenizer> opened;
  auto file = folder / "tokenizer.json";
  std::error_code error;
  if (fs::exists(file, error)) {
    auto t = open_json_tokenizer(file);
    if (!t) return refuse(t.error());
    opened = std::move(*t);
  } else if (file = folder / "vocab.json"; fs::exists(file, error)) {
    auto b = bpe::open(folder);
    if (!b) return refuse(b.error());
    opened = std::make_unique<gpt2_tokenizer>(std::move(*b));
  } else if (vocabulary == 256) {
    opened = std::make_unique<byte_tokenizer>();
  }
  if (opened && opened->size() > vocabulary)
    return refuse(reason::kind::invalid,
                  fmt::format("{}: has {} tokens, the model's vocabulary only {}", file.string(),
                              opened->size(), vocabulary));
  return opened;
}

}  // namespace troupe::gpu
