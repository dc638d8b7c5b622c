#include "actors/training/device/state_files.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "gpu/files/directory_entries.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/untrusted_file.hpp"
#include "messages/base/whole_file.hpp"

namespace troupe::actors {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t state_mark = 0x3165746174537254;  // "TrState1"
constexpr std::uint64_t max_state_name = 255;             // bytes of a file's name

/// Before the files; each has its name's length, its own, the name, and its bytes.
struct state_header {
  std::uint64_t mark = state_mark, iteration = 0, stage = 0, files = 0;
};

template <class T>
void append(std::vector<std::byte>& to, const T& value) {
  const auto bytes = std::as_bytes(std::span{&value, 1});
  to.insert(to.end(), bytes.begin(), bytes.end());
}

/// The bytes that are left of a state.
struct state_reader {
  std::span<const std::byte> rest;

  template <class T>
  bool take(T& value) {
    if (rest.size() < sizeof value) return false;
    std::memcpy(&value, rest.data(), sizeof value);
    rest = rest.subspan(sizeof value);
    return true;
  }
  bool take(std::span<const std::byte>& bytes, std::uint64_t size) {
    if (rest.size() < size) return false;
    bytes = rest.first(size);
    rest = rest.subspan(size);
    return true;
  }
};

tl::unexpected<reason> not_read(const fs::path& file) {
  return refuse(reason::kind::unavailable, "{} cannot be read", file.string());
}

expected<void> append_file(std::vector<std::byte>& all, const fs::path& file) {
  const auto in = untrusted_file::open(file.string(), links::refused);
  if (!in) return refuse(in.error());
  const auto size = in->size();
  const auto name = file.filename().string();
  append(all, std::uint64_t{name.size()});
  append(all, size);
  const auto bytes = std::as_bytes(std::span{name});
  all.insert(all.end(), bytes.begin(), bytes.end());
  const auto at = all.size();
  all.resize(at + size);
  return in->read(0, std::span{all}.subspan(at));
}

/// In the order of their names.
expected<std::vector<fs::path>> files_in(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> files;
  for (auto& entry : gpu::entries_of(folder, error))
    if (entry.extension() == ".safetensors") files.push_back(std::move(entry));
  if (error) return not_read(folder);
  std::ranges::sort(files);
  return files;
}

/// A name from another host must not lead out of the folder.
bool is_state_file(const std::string& name) {
  const fs::path path{name};
  return path == path.filename() && path.extension() == ".safetensors";
}

}  // namespace

// In blocks: the files need no second place in memory.
expected<void> copy_state(const fs::path& from, const fs::path& to) {
  constexpr std::size_t block_bytes = 1 << 20;
  const auto files = files_in(from);
  if (!files) return refuse(files.error());
  std::error_code error;
  fs::create_directories(to, error);
  if (error)
    return refuse(reason::kind::unavailable, "{} cannot be created: {}", to.string(),
                  error.message());
  for (const auto& file : *files) {
    const auto in = untrusted_file::open(file.string(), links::refused);
    if (!in) return refuse(in.error());
    expected<void> read;
    const auto written =
        write_whole_file((to / file.filename()).string(), [&](const byte_sink& sink) {
          std::vector<std::byte> block(std::min<std::uint64_t>(block_bytes, in->size()));
          for (std::uint64_t at = 0; at < in->size(); at += block.size()) {
            block.resize(std::min<std::uint64_t>(block_bytes, in->size() - at));
            read = in->read(at, block);
            if (!read || !sink(block)) return false;
          }
          return true;
        });
    if (!read) return read;
    if (!written) return written;
  }
  return {};
}

expected<payload> read_state(const fs::path& folder, const state_name& which) {
  const auto files = files_in(folder);
  if (!files) return refuse(files.error());
  std::vector<std::byte> all;
  append(all, state_header{state_mark, which.iteration, which.stage, files->size()});
  for (const auto& file : *files)
    if (auto ok = append_file(all, file); !ok) return refuse(ok.error());
  return payload{std::move(all)};
}

expected<void> write_state(const fs::path& folder, const payload& state, const state_name& which) {
  state_reader in{state.bytes()};
  state_header header;
  if (!in.take(header) || header.mark != state_mark)
    return refuse(reason::kind::malformed, "a stage's state of {} bytes is none", in.rest.size());
  if (header.iteration != which.iteration || header.stage != which.stage)
    return refuse(reason::kind::malformed,
                  "the state is of stage {} after iteration {}, expected stage {} after {}",
                  header.stage, header.iteration, which.stage, which.iteration);
  std::error_code error;
  fs::create_directories(folder, error);
  for (std::uint64_t i = 0; i < header.files; ++i) {
    std::uint64_t length = 0, size = 0;
    std::span<const std::byte> name, body;
    if (!in.take(length) || !in.take(size) || length > max_state_name || !in.take(name, length) ||
        !in.take(body, size))
      return refuse(reason::kind::malformed, "the state ends in file {} of {}", i + 1,
                    header.files);
    const std::string text{reinterpret_cast<const char*>(name.data()), name.size()};
    if (!is_state_file(text))
      return refuse(reason::kind::malformed, "the state has a file that is no file of a state");
    std::ofstream out{folder / text, std::ios::binary};
    out.write(reinterpret_cast<const char*>(body.data()), std::streamsize(body.size()));
    if (!out.flush())
      return refuse(reason::kind::unavailable, "{} cannot be written", (folder / text).string());
  }
  if (!in.rest.empty())
    return refuse(reason::kind::malformed, "{} bytes follow the state's files", in.rest.size());
  return {};
}

}  // namespace troupe::actors
