#include "gpu/model/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "gpu/model/finite.hpp"
#include "messages/base/find_in.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/shown.hpp"
#include "messages/base/whole_file.hpp"
#include "text/json/json_file.hpp"

namespace troupe::gpu {

namespace {

using json = nlohmann::ordered_json;
using type = stored_tensor::type;
constexpr std::uint64_t prefix = 8;            // the header's length
constexpr std::size_t block_values = 1 << 16;  // so that a block stays in the cache

std::uint64_t bytes_a_value(type t) {
  return t == type::f32 ? 4 : 2;
}

// The exponent's bias grows from 15 to 127, hence 112; infinities and NaN keep the largest
// exponent, so that the check for finite values finds them.
float from_half(std::uint16_t h) {
  const std::uint32_t sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31, fraction = h & 1023u;
  if (exponent == 0) {  // zero or a denormal: fraction x 2^-24
    const float value = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -value : value;
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

bool is_count(const nlohmann::json& j) {
  return j.is_number_unsigned();
}

/// The bytes of a value, of the types of which a value has whole bytes; 0: of another type.
std::uint64_t stored_bytes(const std::string& dtype) {
  static const std::map<std::string, std::uint64_t> known{
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
      {"F32", 4},  {"C64", 8}, {"F64", 8}, {"I64", 8},     {"U64", 8},     {"C128", 16}};
  const auto* bytes = find_in(known, dtype);
  return bytes ? *bytes : 0;
}

/// Empty text: it is well-formed, and lies inside `bytes`.
/// The header comes from a file of unknown origin: types and ranges are checked before any use, and
/// the product of a shape is computed with a test for overflow.
std::string read_tensor(const std::string& name, const nlohmann::json& j, std::uint64_t bytes,
                        stored_tensor& t) {
  if (!j.is_object() || !j.contains("dtype") || !j["dtype"].is_string() || !j.contains("shape") ||
      !j["shape"].is_array() || !j.contains("data_offsets") || !j["data_offsets"].is_array() ||
      j["data_offsets"].size() != 2 || !is_count(j["data_offsets"][0]) ||
      !is_count(j["data_offsets"][1]))
    return fmt::format("has no dtype, shape and data_offsets for '{}'", name);
  t.name = name;
  t.begin = j["data_offsets"][0].get<std::uint64_t>();
  t.end = j["data_offsets"][1].get<std::uint64_t>();
  if (t.begin > t.end || t.end > bytes)
    return fmt::format("places '{}' at bytes {} to {} of {}", name, t.begin, t.end, bytes);
  t.dtype = j["dtype"].get<std::string>();
  const auto width = stored_bytes(t.dtype);
  std::uint64_t size = std::max<std::uint64_t>(width, 1);
  for (const auto& n : j["shape"]) {
    if (!is_count(n) || __builtin_mul_overflow(size, n.get<std::uint64_t>(), &size))
      return fmt::format("has an invalid shape for '{}'", name);
    t.shape.push_back(n.get<std::uint64_t>());
  }
  if (width > 0 && size != t.end - t.begin)
    return fmt::format("has {} bytes for '{}', whose shape needs {}", t.end - t.begin, name, size);
  return {};
}

/// Empty text: the tensors, by their places, are all of the data, and no byte is of two.
std::string check_places(const std::vector<stored_tensor>& tensors, std::uint64_t bytes) {
  std::uint64_t end = 0;
  for (const auto& t : tensors) {
    if (t.begin != end)
      return fmt::format(
          "places '{}' at byte {}, expected byte {}: tensors lie one behind the other", t.name,
          t.begin, end);
    end = t.end;
  }
  if (end == bytes) return {};
  return fmt::format("has {} bytes of data, expected {}: there its last tensor ends", bytes, end);
}

/// Empty text: it is as the format has it.
/// The format allows only texts as metadata.
std::string read_metadata(const nlohmann::json& all, std::map<std::string, std::string>& out) {
  if (!all.is_object()) return "has metadata that is not an object";
  for (const auto& [name, value] : all.items()) {
    if (!value.is_string()) return fmt::format("has metadata '{}' that is not a text", shown(name));
    out.emplace(name, value.get<std::string>());
  }
  return {};
}

/// Those that can be read.
std::map<std::string, stored_tensor> floats_of(const std::vector<stored_tensor>& all) {
  static const std::map<std::string, type> types{
      {"F32", type::f32}, {"F16", type::f16}, {"BF16", type::bf16}};
  std::map<std::string, stored_tensor> out;
  for (const auto& t : all)
    if (const auto* known = find_in(types, t.dtype))
      out.emplace(t.name, t).first->second.values = *known;
  return out;
}

}  // namespace

expected<safetensors> safetensors::open(const std::filesystem::path& path) {
  std::uint64_t used = 0;
  return open(path, used);
}

expected<std::vector<safetensors>> safetensors::open_all(
    const std::vector<std::filesystem::path>& files) {
  if (files.size() > max_safetensors_files)
    return refuse(reason::kind::malformed, "{}: found {} *.safetensors, expected at most {}",
                  files[0].parent_path().string(), files.size(), max_safetensors_files);
  std::vector<safetensors> all;
  std::uint64_t used = 0;
  for (const auto& name : files) {
    auto file = open(name, used);
    if (!file) return refuse(file.error());
    all.push_back(std::move(*file));
  }
  return all;
}

// The length is compared with the file and with the limit of all headers of a folder before memory
// of that size is taken. Afterwards all tensors are checked, also those of types that are not read,
// since their places show whether the file is whole.
expected<safetensors> safetensors::open(const std::filesystem::path& path, std::uint64_t& used) {
  auto file = untrusted_file::open(path.string());
  if (!file) return refuse(file.error());
  const auto failure = [&](const std::string& text) {
    return refuse(reason::kind::malformed, "{} {}", path.string(), text);
  };
  const auto size = file->size();
  if (size < prefix) return failure("is too short for a safetensors file");
  std::uint64_t length = 0;
  if (auto ok = file->read(0, std::as_writable_bytes(std::span{&length, 1})); !ok)
    return refuse(ok.error());
  if (length > size - prefix) return failure("is truncated, or not a safetensors file");
  if (length > max_header_bytes - used)
    return failure(
        fmt::format("has a header of {} bytes, after {} of other files of its folder, "
                    "expected at most {} together",
                    length, used, max_header_bytes));
  used += length;
  std::string text(length, '\0');
  if (auto ok = file->read(prefix, std::as_writable_bytes(std::span{text})); !ok)
    return refuse(ok.error());
  const auto parsed = parse_json_of_unique_names(text, path);
  if (!parsed) return refuse(parsed.error().code, parsed.error().text + " in its header");
  if (!text.starts_with('{')) return failure("has a header that does not begin with '{'");
  safetensors s{std::move(*file)};
  s.data_ = prefix + length;
  for (const auto& [name, value] : parsed->items()) {
    const auto wrong = name == "__metadata__"
                           ? read_metadata(value, s.metadata_)
                           : read_tensor(name, value, size - s.data_, s.all_.emplace_back());
    if (!wrong.empty()) return failure(wrong);
  }
  // As they lie in the file, which is the header's order in files of all writers.
  std::ranges::stable_sort(s.all_, {}, [](const auto& t) { return std::pair{t.begin, t.end}; });
  if (const auto wrong = check_places(s.all_, size - s.data_); !wrong.empty())
    return failure(wrong);
  s.tensors_ = floats_of(s.all_);
  return s;
}

const stored_tensor* safetensors::find(const std::string& name) const {
  return find_in(tensors_, name);
}

std::optional<std::string> safetensors::metadata(const std::string& name) const {
  const auto* text = find_in(metadata_, name);
  return text ? std::optional{*text} : std::nullopt;
}

found_tensor find_tensor(std::span<const safetensors> files, const std::string& name) {
  for (const auto& file : files)
    if (const auto* t = file.find(name)) return {&file, t};
  return {};
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// Values from `first` on.
/// 16-bit formats widen exactly; bf16 is the upper half of a 32-bit value.
expected<void> safetensors::read_block(const stored_tensor& t, std::uint64_t first,
                                       std::span<float> out) const {
  const auto from = data_ + t.begin + first * bytes_a_value(t.values);
  if (t.values == type::f32) return file_.read(from, std::as_writable_bytes(out));
  std::vector<std::uint16_t> words(out.size());
  if (auto ok = file_.read(from, std::as_writable_bytes(std::span{words})); !ok) return ok;
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = t.values == type::f16
                 ? from_half(words[i])
                 : std::bit_cast<float>(static_cast<std::uint32_t>(words[i]) << 16);
  return {};
}

expected<void> safetensors::read(const stored_tensor& t, std::span<float> out) const {
  // In blocks that the cache still has when they are checked.
  for (std::size_t done = 0; done < out.size(); done += block_values) {
    const auto block = out.subspan(done, std::min(block_values, out.size() - done));
    if (auto ok = read_block(t, done, block); !ok) return ok;
    if (const auto wrong = not_finite(block, done); !wrong.empty())
      return refuse(reason::kind::malformed, "{}: '{}': {}", file().string(), t.name, wrong);
  }
  return {};
}

expected<void> safetensors::read_bytes(const stored_tensor& t, std::uint64_t first,
                                       std::span<std::byte> out) const {
  return file_.read(data_ + t.begin + first, out);
}

namespace {

/// The beginning of a file.
class header_writer {
 public:
  explicit header_writer(const std::map<std::string, std::string>& metadata) {
    if (!metadata.empty()) header_.emplace_back("__metadata__", metadata);
  }
  void add(const std::string& name, const std::string& dtype,
           const std::vector<std::uint64_t>& shape, std::uint64_t bytes) {
    // Callers' names differ. header_[name] would seek each among all before it.
    header_.emplace_back(
        name, json{{"dtype", dtype}, {"shape", shape}, {"data_offsets", {end_, end_ + bytes}}});
    end_ += bytes;
  }
  std::string text() const {
    auto text = json(header_).dump(-1, ' ', false, json::error_handler_t::replace);
    text.resize((text.size() + 7) / 8 * 8, ' ');  // aligns values to multiples of 8
    const std::uint64_t length = text.size();
    return std::string{reinterpret_cast<const char*>(&length), sizeof length} + text;
  }

 private:
  json::object_t header_;
  std::uint64_t end_ = 0;
};

}  // namespace

// Values go to the file straight from their arrays, without a copy of the whole file in memory.
expected<void> write_safetensors(const std::filesystem::path& file,
                                 const std::vector<tensor_to_store>& tensors,
                                 const std::map<std::string, std::string>& metadata) {
  header_writer header{metadata};
  for (const auto& t : tensors) header.add(t.name, "F32", t.shape, t.values.size_bytes());
  const auto text = header.text();
  std::vector<std::span<const std::byte>> parts{std::as_bytes(std::span{text})};
  for (const auto& t : tensors) parts.push_back(std::as_bytes(t.values));
  return write_whole_file(file.string(), parts);
}

namespace {

/// The nearest half, of two equally near ones the even one.
std::uint16_t to_half(float x) {
  constexpr std::uint32_t infinity = 0x7f800000, too_large = 0x477ff000, normal = 0x38800000;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const auto size = bits & 0x7fffffffU;
  const auto with = [&](std::uint32_t low) { return static_cast<std::uint16_t>(sign | low); };
  if (size > infinity) return with(0x7e00);
  if (size >= too_large) return with(0x7c00);
  if (size >= normal) return with((size - 0x38000000U + 0xfffU + ((size >> 13) & 1U)) >> 13);
  return with(static_cast<std::uint32_t>(std::nearbyint(std::bit_cast<float>(size) * 0x1p24F)));
}

/// The nearest value with 8 (bf16) or 11 bits; of two equally near ones the even one. A value of 32
/// bits in between is made odd where it is not exact, so that it is not rounded twice.
std::uint16_t rounded_to_16(double x, stored_tensor::type to) {
  auto f = static_cast<float>(x);
  auto bits = std::bit_cast<std::uint32_t>(f);
  if (static_cast<double>(f) != x && std::isfinite(f)) {
    if (std::abs(static_cast<double>(f)) > std::abs(x)) --bits;
    bits |= 1U;
  }
  if (to == stored_tensor::type::bf16) {
    const auto half = 0x7fffU + ((bits >> 16) & 1U);
    return static_cast<std::uint16_t>((bits + half) >> 16);
  }
  return to_half(std::bit_cast<float>(bits));
}

stored_tensor::type value_type_of(const std::string& dtype) {
  if (dtype == "F32") return stored_tensor::type::f32;
  return dtype == "F16" ? stored_tensor::type::f16 : stored_tensor::type::bf16;
}

/// A tensor's values as another file has them.
class converted {
 public:
  explicit converted(const tensor_to_copy& t)
      : t_{t}, from_{*t.tensor}, to_{value_type_of(t.dtype.empty() ? t.tensor->dtype : t.dtype)} {
    from_.values = value_type_of(from_.dtype);
  }

  /// Blocks of `count` values from `first` on.
  expected<std::span<const std::byte>> block(std::uint64_t first, std::uint64_t count) {
    values_.resize(count);
    if (auto ok = t_.file->read_block(from_, first, values_); !ok) return refuse(ok.error());
    bytes_.resize(count * (to_ == stored_tensor::type::f32 ? 4 : 2));
    for (std::uint64_t i = 0; i < count; ++i) {
      const double x = double{values_[i]} + (t_.added ? t_.added(first + i) : 0);
      const auto wide = static_cast<float>(x);
      const auto narrow = to_ == stored_tensor::type::f32 ? 0 : rounded_to_16(x, to_);
      if (to_ == stored_tensor::type::f32)
        std::memcpy(bytes_.data() + 4 * i, &wide, 4);
      else
        std::memcpy(bytes_.data() + 2 * i, &narrow, 2);
    }
    return std::span<const std::byte>{bytes_};
  }

 private:
  const tensor_to_copy& t_;
  stored_tensor from_;
  stored_tensor::type to_ = stored_tensor::type::f32;
  std::vector<float> values_;
  std::vector<std::byte> bytes_;
};

bool is_copied(const tensor_to_copy& t) {
  return !t.added && (t.dtype.empty() || t.dtype == t.tensor->dtype);
}

std::uint64_t count_of_values(const stored_tensor& t) {
  std::uint64_t n = 1;
  for (const auto size : t.shape) n *= size;
  return n;
}

/// Writes what a tensor is in the new file, in blocks; an error of reading goes to `read`.
bool write_tensor(const tensor_to_copy& t, const byte_sink& to, expected<void>& read) {
  constexpr std::uint64_t block_size = 1 << 20;
  if (!is_copied(t)) {
    converted made{t};
    const auto all = count_of_values(*t.tensor);
    for (std::uint64_t done = 0; done < all; done += block_size) {
      const auto next = made.block(done, std::min(block_size, all - done));
      if (!next) read = refuse(next.error());
      if (!next || !to(*next)) return false;
    }
    return true;
  }
  std::vector<std::byte> block(block_size);
  const auto bytes = t.tensor->end - t.tensor->begin;
  for (std::uint64_t done = 0; done < bytes; done += block_size) {
    const auto next = std::span{block}.first(std::min(block_size, bytes - done));
    read = t.file->read_bytes(*t.tensor, done, next);
    if (!read || !to(next)) return false;
  }
  return true;
}

}  // namespace

expected<void> copy_safetensors(const std::filesystem::path& file,
                                std::vector<tensor_to_copy> tensors,
                                const std::map<std::string, std::string>& metadata) {
  for (auto& t : tensors)
    if (t.dtype.empty()) t.dtype = t.tensor->dtype;
  std::ranges::stable_sort(tensors, std::ranges::greater{},
                           [](const auto& t) { return stored_bytes(t.dtype); });
  header_writer header{metadata};
  for (const auto& t : tensors)
    header.add(t.name, t.dtype, t.tensor->shape,
               is_copied(t) ? t.tensor->end - t.tensor->begin
                            : count_of_values(*t.tensor) * stored_bytes(t.dtype));
  const auto text = header.text();
  expected<void> read;
  auto written = write_whole_file(file.string(), [&](const byte_sink& to) {
    return to(std::as_bytes(std::span{text})) &&
           std::ranges::all_of(tensors, [&](const auto& t) { return write_tensor(t, to, read); });
  });
  return read ? written : read;
}

}  // namespace troupe::gpu
