#include "text/tokens/vocabulary_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>

#include "messages/base/refuse.hpp"
#include "messages/base/shown.hpp"
#include "messages/base/untrusted_file.hpp"
#include "text/json/json_file.hpp"
#include "text/tokens/byte_level.hpp"

namespace troupe::gpu {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::size_t max_file_bytes = 64u << 20;
constexpr std::string_view end_of_text = "<|endoftext|>";
// As in Qwen2's published tokenizer.json.
constexpr char qwen2_words[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// vocab.json and merges.txt have no pattern for words: the class of the tokenizer implies it.
enum class split { gpt2, qwen2 };

auto malformed(const fs::path& file, const std::string& text) {
  return refuse(reason::kind::malformed, "{} {}", file.string(), text);
}

/// A string member of a file's object; empty: the file, or the member, is not there.
expected<std::string> member_of(const fs::path& file, const char* key) {
  const auto all = read_python_json_file_if_any(file, max_file_bytes);
  if (!all) return refuse(all.error());
  const auto found = all->find(key);
  return found != all->end() && found->is_string() ? found->get<std::string>() : std::string{};
}

/// The class decides, and without one the type of the model. A guess would give wrong tokens
/// without any error, so anything unknown is refused with the names that would settle it.
expected<split> split_of(const fs::path& folder) {
  const auto file = folder / "tokenizer_config.json", config = folder / "config.json";
  auto name = member_of(file, "tokenizer_class");
  if (!name) return refuse(name.error());
  if (name->ends_with("Fast")) name->resize(name->size() - 4);
  if (*name == "GPT2Tokenizer" || *name == "CodeGenTokenizer") return split::gpt2;
  if (*name == "Qwen2Tokenizer") return split::qwen2;
  if (!name->empty() && *name != "PreTrainedTokenizer")
    return refuse(reason::kind::invalid,
                  "{}: tokenizer_class '{}' is not supported with vocab.json; expected "
                  "GPT2Tokenizer, Qwen2Tokenizer or a tokenizer.json",
                  file.string(), shown(*name));
  const auto type = member_of(config, "model_type");
  if (!type) return refuse(type.error());
  if (type->empty() || *type == "gpt2") return split::gpt2;
  if (type->starts_with("qwen2") || type->starts_with("qwen3")) return split::qwen2;
  return refuse(reason::kind::invalid,
                "{}: model_type '{}' does not say how vocab.json splits text; expected "
                "tokenizer_class GPT2Tokenizer or Qwen2Tokenizer in {}",
                config.string(), shown(*type), file.string());
}

/// All 256 single bytes must have tokens, because a byte-level encoding has no unknown token: a
/// missing one would drop text.
expected<json> read_vocabulary(const fs::path& file) {
  auto all = read_python_json_file(file, max_file_bytes);
  if (!all) return refuse(all.error());
  std::set<std::string> single;
  for (const auto& [token, number] : all->items()) {
    if (!number.is_number_unsigned() ||
        number.get<std::uint64_t>() >= std::numeric_limits<std::uint32_t>::max())
      return malformed(file, fmt::format("has no id for '{}'", shown(token)));
    if (auto bytes = byte_level_bytes(token); bytes && bytes->size() == 1)
      single.insert(std::move(*bytes));
  }
  for (unsigned b = 0; b < 256; ++b)
    if (!single.contains(std::string(1, static_cast<char>(b))))
      return malformed(file, fmt::format("has no token for the single byte {}", b));
  return all;
}

/// One merge per line, the best first. Halves and result are checked here, where the number of the
/// line is known. The first line may be the version of the format.
expected<json> read_merges(const fs::path& file, const json& vocabulary) {
  const auto text = read_file(file.string(), max_file_bytes);
  if (!text) return refuse(text.error());
  auto merges = json::array();
  std::string_view rest{*text};
  for (std::uint32_t at = 1; !rest.empty(); ++at) {
    auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (at == 1 && line.starts_with("#version"))) continue;
    const auto space = line.find(' ');
    const auto first = std::string{line.substr(0, space)};
    const auto second = space == line.npos ? "" : std::string{line.substr(space + 1)};
    if (!byte_level_bytes(first) || second.empty() || !byte_level_bytes(second))
      return malformed(file, fmt::format("line {} is not two tokens", at));
    if (!vocabulary.contains(first) || !vocabulary.contains(second) ||
        !vocabulary.contains(first + second))
      return malformed(file, fmt::format("line {} has tokens that vocab.json does not have", at));
    merges.push_back({first, second});
  }
  return merges;
}

}  // namespace

/// The result is a document as tokenizer.json has it, so there is one reader for both forms.
expected<json> read_vocabulary_files(const fs::path& folder) {
  const auto how = split_of(folder);
  if (!how) return refuse(how.error());
  auto vocabulary = read_vocabulary(folder / "vocab.json");
  if (!vocabulary) return refuse(vocabulary.error());
  auto merges = read_merges(folder / "merges.txt", *vocabulary);
  if (!merges) return refuse(merges.error());
  json all{{"decoder", {{"type", "ByteLevel"}}}, {"added_tokens", json::array()}};
  // The classes of both have it as a special token, whatever the other files have.
  if (const auto end = vocabulary->find(end_of_text); end != vocabulary->end())
    all["added_tokens"].push_back({{"content", end_of_text}, {"id", *end}, {"special", true}});
  json bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}};
  if (*how == split::qwen2) {
    bytes["use_regex"] = false;
    all["normalizer"] = {{"type", "NFC"}};
    all["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         json::array(
             {{{"type", "Split"}, {"pattern", {{"Regex", qwen2_words}}}, {"behavior", "Isolated"}},
              std::move(bytes)})}};
  } else {
    all["pre_tokenizer"] = std::move(bytes);
  }
  all["model"] = {{"type", "BPE"}};
  all["model"]["vocab"] = std::move(*vocabulary);
  all["model"]["merges"] = std::move(*merges);
  return all;
}

}  // namespace troupe::gpu
