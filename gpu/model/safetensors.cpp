#include "gpu/model/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "gpu/model/json_file.hpp"
#include "messages/whole_file.hpp"

namespace troupe::gpu {

namespace {

using json = nlohmann::ordered_json;
using type = stored_tensor::type;
constexpr std::uint64_t prefix = 8;  // the header's length
constexpr std::size_t block_values = 1 << 18;

std::uint64_t bytes_a_value(type t) {
  return t == type::f32 ? 4 : 2;
}

float from_half(std::uint16_t h) {
  const std::uint32_t sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31, fraction = h & 1023u;
  if (exponent == 0) {  // zero or a denormal: fraction x 2^-24
    const float value = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -value : value;
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

bool is_count(const json& j) {
  return j.is_number_unsigned();
}

/// Empty text: it is well-formed, and lies inside `bytes`.
std::string read_tensor(const std::string& name, const json& j, std::uint64_t bytes,
                        std::map<std::string, stored_tensor>& out) {
  static const std::map<std::string, type> types{
      {"F32", type::f32}, {"F16", type::f16}, {"BF16", type::bf16}};
  if (!j.is_object() || !j.contains("dtype") || !j["dtype"].is_string() || !j.contains("shape") ||
      !j["shape"].is_array() || !j.contains("data_offsets") || !j["data_offsets"].is_array() ||
      j["data_offsets"].size() != 2 || !is_count(j["data_offsets"][0]) ||
      !is_count(j["data_offsets"][1]))
    return fmt::format("has no dtype, shape and data_offsets for '{}'", name);
  stored_tensor t;
  t.name = name;
  t.begin = j["data_offsets"][0].get<std::uint64_t>();
  t.end = j["data_offsets"][1].get<std::uint64_t>();
  if (t.begin > t.end || t.end > bytes)
    return fmt::format("places '{}' at bytes {} to {} of {}", name, t.begin, t.end, bytes);
  const auto known = types.find(j["dtype"].get<std::string>());
  if (known == types.end()) return {};
  t.values = known->second;
  std::uint64_t size = bytes_a_value(t.values);
  for (const auto& n : j["shape"]) {
    if (!is_count(n) || __builtin_mul_overflow(size, n.get<std::uint64_t>(), &size))
      return fmt::format("has an invalid shape for '{}'", name);
    t.shape.push_back(n.get<std::uint64_t>());
  }
  if (size != t.end - t.begin)
    return fmt::format("has {} bytes for '{}', whose shape needs {}", t.end - t.begin, name, size);
  out.emplace(name, std::move(t));
  return {};
}

}  // namespace

expected<safetensors> safetensors::open(const std::filesystem::path& path) {
  std::uint64_t used = 0;
  return open(path, used);
}

expected<std::vector<safetensors>> safetensors::open_all(
    const std::vector<std::filesystem::path>& files) {
  if (files.size() > max_safetensors_files)
    return refuse(
        reason::kind::malformed,
        fmt::format("{}: found {} *.safetensors, expected at most {}",
                    files[0].parent_path().string(), files.size(), max_safetensors_files));
  std::vector<safetensors> all;
  std::uint64_t used = 0;
  for (const auto& name : files) {
    auto file = open(name, used);
    if (!file) return refuse(file.error());
    all.push_back(std::move(*file));
  }
  return all;
}

expected<safetensors> safetensors::open(const std::filesystem::path& path, std::uint64_t& used) {
  auto file = untrusted_file::open(path.string());
  if (!file) return refuse(file.error());
  const auto no = [&](const std::string& text) {
    return refuse(reason::kind::malformed, fmt::format("{} {}", path.string(), text));
  };
  const auto size = file->size();
  if (size < prefix) return no("is too short for a safetensors file");
  std::uint64_t length = 0;
  if (auto ok = file->read(0, std::as_writable_bytes(std::span{&length, 1})); !ok)
    return refuse(ok.error());
  if (length > size - prefix) return no("is truncated, or not a safetensors file");
  if (length > max_header_bytes - used)
    return no(
        fmt::format("has a header of {} bytes, after {} of other files of its folder, "
                    "expected at most {} together",
                    length, used, max_header_bytes));
  used += length;
  std::string text(length, '\0');
  if (auto ok = file->read(prefix, std::as_writable_bytes(std::span{text})); !ok)
    return refuse(ok.error());
  const auto parsed = parse_json(text, path);
  if (!parsed) return refuse(parsed.error().code, parsed.error().text + " in its header");
  const auto& header = *parsed;
  safetensors s{std::move(*file)};
  s.data_ = prefix + length;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      if (!value.is_object()) return no("has metadata that is not an object");
      if (const auto at = value.find("iteration"); at != value.end() && at->is_string())
        s.iteration_ = at->get<std::string>();
    } else if (auto wrong = read_tensor(name, value, size - s.data_, s.tensors_); !wrong.empty()) {
      return no(wrong);
    }
  }
  return s;
}

const stored_tensor* safetensors::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

expected<void> safetensors::read(const stored_tensor& t, std::span<float> out) const {
  const auto from = data_ + t.begin;
  if (t.values == type::f32) return file_.read(from, std::as_writable_bytes(out));
  std::vector<std::uint16_t> words(std::min(out.size(), block_values));
  for (std::size_t done = 0; done < out.size(); done += words.size()) {
    words.resize(std::min(words.size(), out.size() - done));
    if (auto ok = file_.read(from + 2 * done, std::as_writable_bytes(std::span{words})); !ok)
      return ok;
    for (std::size_t i = 0; i < words.size(); ++i)
      out[done + i] = t.values == type::f16
                          ? from_half(words[i])
                          : std::bit_cast<float>(static_cast<std::uint32_t>(words[i]) << 16);
  }
  return {};
}

expected<void> write_safetensors(const std::filesystem::path& file,
                                 const std::vector<tensor_to_store>& tensors,
                                 const std::map<std::string, std::string>& metadata) {
  json header = json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t at = 0;
  for (const auto& t : tensors) {
    const auto end = at + t.values.size_bytes();
    header[t.name] = {{"dtype", "F32"}, {"shape", t.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  auto text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // aligns values to multiples of 8
  const std::uint64_t length = text.size();
  std::vector<std::span<const std::byte>> parts{std::as_bytes(std::span{&length, 1}),
                                                std::as_bytes(std::span{text})};
  for (const auto& t : tensors) parts.push_back(std::as_bytes(t.values));
  return write_whole_file(file.string(), parts);
}

}  // namespace troupe::gpu
