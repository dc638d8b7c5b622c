#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "messages/base/reason.hpp"
#include "messages/base/untrusted_file.hpp"

// The safetensors format: the length of the header in eight bytes, little-endian; the header, JSON
// with the names and offsets of tensors; the data. In the order of their offsets, tensors lie one
// behind the other from the data's beginning to the file's end.

namespace troupe::gpu {

/// One tensor of a file.
struct stored_tensor {
  enum class type : std::uint8_t { f32, f16, bf16 };
  std::string name;
  std::string dtype;        // the format's name of its type: "F32", "I64"
  type values = type::f32;  // if dtype is one of these
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;  // its bytes, relative to the end of the header
};

/// Limits on the files of one folder, so that a folder of others cannot fill the memory: as
/// many as the largest model has stages, and headers that together are as long as the format allows
/// one to be, more than ten times what a model of 100,000 tensors has.
inline constexpr std::size_t max_safetensors_files = 10'000;
inline constexpr std::uint64_t max_header_bytes = 100'000'000;

/// A file that is open, with a checked header.
class safetensors {
 public:
  static expected<safetensors> open(const std::filesystem::path& file);
  /// All files of a folder. Fails if they are more, or have longer headers together, than allowed.
  static expected<std::vector<safetensors>> open_all(
      const std::vector<std::filesystem::path>& files);

  /// Those whose values read() can read.
  const std::map<std::string, stored_tensor>& tensors() const { return tensors_; }
  const stored_tensor* find(const std::string& name) const;
  /// Tensors of all types, in the header's order.
  const std::vector<stored_tensor>& all() const { return all_; }
  /// A text of its metadata.
  std::optional<std::string> metadata(const std::string& name) const;
  std::optional<std::string> iteration() const { return metadata("iteration"); }
  std::filesystem::path file() const { return file_.path(); }
  /// Reads a tensor's first values, as many as fit into `out`. Fails if the file has become too
  /// short for them, and if one is NaN or infinite.
  expected<void> read(const stored_tensor& t, std::span<float> out) const;
  /// Its bytes from `first` on, of any type and with any values.
  expected<void> read_bytes(const stored_tensor& t, std::uint64_t first,
                            std::span<std::byte> out) const;
  /// Its values from `first` on, whatever they are.
  expected<void> read_block(const stored_tensor& t, std::uint64_t first,
                            std::span<float> out) const;

 private:
  explicit safetensors(untrusted_file file) : file_{std::move(file)} {}
  /// `used`: bytes of the headers before it in its folder, to which its own are added.
  static expected<safetensors> open(const std::filesystem::path& file, std::uint64_t& used);

  untrusted_file file_;
  std::map<std::string, stored_tensor> tensors_;
  std::vector<stored_tensor> all_;
  std::map<std::string, std::string> metadata_;
  std::uint64_t data_ = 0;  // where it begins
};

/// A tensor and the file that has it; nulls: there is none.
struct found_tensor {
  const safetensors* file = nullptr;
  const stored_tensor* tensor = nullptr;
};
/// In the first of the files that has the name.
found_tensor find_tensor(std::span<const safetensors> files, const std::string& name);

/// For errors: "[2, 3]".
std::string shape_text(const std::vector<std::uint64_t>& shape);

/// A tensor to write.
struct tensor_to_store {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::span<const float> values;
};

/// Replaces the file as write_whole_file() does.
expected<void> write_safetensors(const std::filesystem::path& file,
                                 const std::vector<tensor_to_store>& tensors,
                                 const std::map<std::string, std::string>& metadata);

/// A tensor to copy from a file under another name. Both outlive the writing.
struct tensor_to_copy {
  std::string name;
  const safetensors* file = nullptr;
  const stored_tensor* tensor = nullptr;
  /// Its type in the new file: F32, F16 or BF16; values are rounded once. Empty: as stored.
  std::string dtype{};
  /// Added to a value, by its number, before it is rounded; null: nothing.
  std::function<double(std::uint64_t)> added{};
};

/// The same for tensors that are never in memory as a whole. Those of wider types come first, so
/// that every value is at a multiple of its size.
expected<void> copy_safetensors(const std::filesystem::path& file,
                                std::vector<tensor_to_copy> tensors,
                                const std::map<std::string, std::string>& metadata);

}  // namespace troupe::gpu
