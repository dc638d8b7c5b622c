#include "gpu/inference/other_formats.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <system_error>

#include "messages/base/shown.hpp"
#include "messages/base/untrusted_file.hpp"
#include "text/json/json_file.hpp"

namespace troupe::gpu {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view folder_wanted =
    "expected a folder with config.json, *.safetensors and tokenizer.json";
constexpr std::string_view gguf_text = "GGUF, the format of llama.cpp, which is not read";

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

/// Does a name look like one of the Hub's, and not like a path?
bool is_hub_name(const std::string& name) {
  const auto good = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  };
  const auto slash = name.find('/');
  const auto first = name.substr(0, slash);
  const auto second = slash == name.npos ? std::string{"x"} : name.substr(slash + 1);
  return !first.empty() && !second.empty() && first[0] != '.' && second[0] != '.' &&
         std::ranges::all_of(first, good) && std::ranges::all_of(second, good);
}

bool begins_with(const fs::path& file, std::string_view sign) {
  const auto opened = untrusted_file::open(file.string());
  if (!opened) return false;
  const auto piece = opened->piece(0, sign.size());
  return piece && piece->bytes == sign;
}

std::string what_file(const fs::path& file) {
  const auto extension = file.extension();
  const auto name = file.string();
  if (extension == ".gguf" || begins_with(file, "GGUF"))
    return fmt::format("{}: is a file in {}; {}", name, gguf_text, folder_wanted);
  if (extension == ".safetensors" || extension == ".bin" || extension == ".pt" ||
      extension == ".pth")
    return fmt::format("{}: is a file of weights; {}", name, folder_wanted);
  return fmt::format("{}: is a file; {}", name, folder_wanted);
}

/// The adapter's base model, if its file says so.
std::string adapter_text(const fs::path& folder) {
  std::string base;
  constexpr std::size_t limit_bytes = 1u << 20;
  if (const auto about = read_python_json_file(folder / "adapter_config.json", limit_bytes))
    if (const auto found = about->find("base_model_name_or_path");
        found != about->end() && found->is_string())
      base = fmt::format(" of '{}'", shown(found->get<std::string>()));
  return fmt::format(
      "{}: has adapter_config.json: it is an adapter (LoRA){}, and no model; give the folder of "
      "its model, and this one with --adapter, or merge it (merge_and_unload() of peft)",
      folder.string(), base);
}

/// The first file of a folder, by name, that ends so.
std::string first_file(const fs::path& folder, std::string_view end) {
  std::string first;
  std::error_code error;
  std::size_t left = 10'000;
  for (fs::directory_iterator at{folder, error}, last; !error && at != last && left > 0;
       at.increment(error), --left) {
    auto name = at->path().filename().string();
    if (name.ends_with(end) && (first.empty() || name < first)) first = std::move(name);
  }
  return first;
}

std::string what_folder(const fs::path& folder) {
  const auto name = folder.string();
  if (is_there(folder / "adapter_config.json")) return adapter_text(folder);
  if (is_there(folder / "config.json")) return {};
  if (is_there(folder / "snapshots") && is_there(folder / "refs"))
    return fmt::format(
        "{}: is a folder of the Hugging Face Hub's cache; expected one of those in {}", name,
        (folder / "snapshots").string());
  if (const auto file = first_file(folder, ".gguf"); !file.empty())
    return fmt::format("{}: has no config.json, but {}, which is in {}; {}", name, shown(file),
                       gguf_text, folder_wanted);
  if (is_there(folder / "params.json"))
    return fmt::format(
        "{}: has params.json and no config.json: it is a model in the form of its authors; {}: "
        "the same model in Hugging Face's form",
        name, folder_wanted);
  return fmt::format("{}: has no config.json; {} (`troupe export` makes one of a checkpoint)", name,
                     folder_wanted);
}

}  // namespace

std::string no_model_folder(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return what_folder(path);
  if (fs::exists(path, error)) return what_file(path);
  const auto name = path.string();
  if (const auto scheme = name.find(":/"); scheme != name.npos && scheme > 1)
    return fmt::format("{}: is a URL; {}: models are not downloaded", shown(name), folder_wanted);
  if (!is_hub_name(name)) return {};
  return fmt::format(
      "{}: there is no such folder; if it is a name of the Hugging Face Hub: models are not "
      "downloaded, so download it ('hf download {}') and give the folder",
      name, name);
}

std::string other_weights(const fs::path& folder) {
  struct form {
    std::string_view end, what;
  };
  constexpr std::string_view convert =
      "; save it with safetensors (save_pretrained() of transformers)";
  constexpr form forms[] = {{".bin", "PyTorch's pickle"}, {".bin.index.json", "PyTorch's pickle"},
                            {".pth", "PyTorch's pickle"}, {".pt", "PyTorch's pickle"},
                            {".gguf", gguf_text},         {".h5", "TensorFlow's form"},
                            {".msgpack", "Flax's form"},  {".onnx", "ONNX"}};
  for (const auto& f : forms)
    if (const auto file = first_file(folder, f.end); !file.empty())
      return fmt::format("{}: has weights only in {} ({}), expected *.safetensors{}",
                         folder.string(), f.what, shown(file), convert);
  return {};
}

}  // namespace troupe::gpu
