#include "text/tokens/tokenizer_folder.hpp"

#include <system_error>

#include "text/json/json_file.hpp"
#include "text/tokens/tokenizer_settings.hpp"
#include "text/tokens/vocabulary_files.hpp"

namespace troupe::gpu {

namespace {

namespace fs = std::filesystem;

/// The document with the folder's settings.
expected<tokenizer_document> completed(const fs::path& folder, fs::path file,
                                       expected<nlohmann::json> content) {
  if (!content) return refuse(content.error());
  tokenizer_document d{std::move(file), std::move(*content)};
  const auto settings = tokenizer_settings::read(folder);
  if (!settings) return refuse(settings.error());
  if (auto ok = settings->apply(d); !ok) return refuse(ok.error());
  return d;
}

}  // namespace

expected<std::optional<tokenizer_document>> read_tokenizer_document(const fs::path& folder) {
  constexpr std::size_t limit_bytes = 64u << 20;
  std::error_code error;
  if (const auto file = folder / "tokenizer.json"; fs::exists(file, error))
    return completed(folder, file, read_json_file(file, limit_bytes));
  if (!fs::exists(folder / "vocab.json", error)) return std::nullopt;
  return read_vocabulary_document(folder);
}

expected<tokenizer_document> read_vocabulary_document(const fs::path& folder) {
  return completed(folder, folder / "vocab.json", read_vocabulary_files(folder));
}

}  // namespace troupe::gpu
