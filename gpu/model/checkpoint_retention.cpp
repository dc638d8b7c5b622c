#include "gpu/model/checkpoint_retention.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "gpu/files/directory_entries.hpp"
#include "gpu/model/checkpoint_folders.hpp"
#include "gpu/model/layer_index.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/whole_file.hpp"
#include "messages/base/whole_number.hpp"
#include "text/json/json_file.hpp"

namespace troupe::gpu {

namespace {

namespace fs = std::filesystem;

constexpr const char* best_file = "best.json";

/// Without what a writer that was killed has left behind it: ".new", or a worker's ".4242.part".
std::string_view without_temporary_end(std::string_view name) {
  constexpr std::string_view fresh = ".new", part = ".part";
  if (name.ends_with(fresh)) return name.substr(0, name.size() - fresh.size());
  if (!name.ends_with(part)) return name;
  const auto rest = name.substr(0, name.size() - part.size());
  const auto dot = std::min(rest.rfind('.'), rest.size());
  return whole_number<std::uint64_t>(rest.substr(std::min(dot + 1, rest.size())))
             ? rest.substr(0, dot)
             : name;
}

/// A file of the built-in trainer's stages, or of a program's layers; of any lease, complete or
/// not.
bool is_stage_file(const fs::path& file) {
  const auto whole = file.filename().string();
  const auto name = without_temporary_end(whole);
  if (name == checkpoint_index) return true;
  return (name.starts_with("layers-") && name.ends_with(".safetensors")) || saved_layer_of(name);
}

/// A job's programs may write there, so the index may be a fifo: opening never waits.
descriptor open_at_once(const fs::path& index, int how) {
  return descriptor{::open(index.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | how)};
}

/// Without its index it is no checkpoint any more, so that goes first: what is left after a crash
/// is removed with a later one.
void remove_checkpoint(const fs::path& directory) {
  const auto index = directory / checkpoint_index;
  const auto fd = open_at_once(index, O_NOFOLLOW);
  if (fd >= 0 && ::flock(fd, LOCK_EX | LOCK_NB) != 0) return;  // a reader has it open
  std::error_code ignored;
  fs::remove(index, ignored);
  std::vector<fs::path> files;
  for (auto& entry : entries_of(directory, ignored))
    if (is_stage_file(entry)) files.push_back(std::move(entry));
  for (const auto& file : files) fs::remove(file, ignored);
  fs::remove(directory, ignored);  // unless it has files of others
}

}  // namespace

// A shared lock on the index lets many readers in and keeps the remover out. After locking, the
// file's link count shows whether it was removed between open() and flock().
expected<std::shared_ptr<const reading_lock>> reading_lock::of(const fs::path& checkpoint) {
  const auto index = checkpoint / checkpoint_index;
  auto fd = open_at_once(index, 0);
  struct stat s {};
  if (fd >= 0 && ::fstat(fd, &s) == 0 && !S_ISREG(s.st_mode))
    return refuse(reason::kind::invalid, "{}: is a {}, expected a regular file", index.string(),
                  S_ISDIR(s.st_mode)    ? "directory"
                  : S_ISFIFO(s.st_mode) ? "fifo"
                                        : "device");
  if (fd >= 0 && (::flock(fd, LOCK_SH | LOCK_NB) != 0 || ::fstat(fd, &s) != 0 || s.st_nlink == 0))
    return refuse(reason::kind::unavailable,
                  "the checkpoint {} is being removed: the training that writes it has newer ones",
                  checkpoint.string());
  return std::shared_ptr<const reading_lock>{new reading_lock{std::move(fd)}};
}

expected<void> write_best(const fs::path& root, const best_checkpoint& b) {
  return write_whole_file(
      (root / best_file).string(),
      nlohmann::json{{"iteration", b.iteration}, {"loss", b.loss}}.dump() + "\n");
}

expected<std::optional<best_checkpoint>> read_best(const fs::path& root) {
  constexpr std::size_t limit_bytes = 4096;
  const auto file = root / best_file;
  std::error_code error;
  if (!fs::exists(file, error)) return std::optional<best_checkpoint>{};
  const auto found = read_json_file(file, limit_bytes);
  if (!found) return refuse(found.error());
  try {
    return best_checkpoint{found->at("iteration").get<std::uint64_t>(),
                           found->at("loss").get<double>()};
  } catch (const nlohmann::json::exception&) {
    return refuse(reason::kind::malformed, "{}: expected the numbers iteration and loss",
                  file.string());
  }
}

/// Only complete checkpoints count; incomplete ones that are older than the last of the newest ones
/// go. Those after `iteration` are left alone.
void remove_old_checkpoints(const fs::path& root, std::uint64_t iteration,
                            const kept_checkpoints& keep) {
  auto all = checkpoints_in(root);
  std::erase_if(all, [&](const auto& c) { return c.iteration > iteration; });
  std::ranges::sort(all, std::ranges::greater{}, &listed_checkpoint::iteration);
  const auto stays = [&](const listed_checkpoint& c) {
    const bool is_multiple = keep.each > 0 && c.iteration % keep.each == 0;
    return c.complete && (is_multiple || (c.iteration > 0 && c.iteration == keep.best));
  };
  std::uint32_t kept = 0;
  for (const auto& c : all) {
    if (kept < keep.newest)
      kept += c.complete;
    else if (!stays(c))
      remove_checkpoint(c.directory);
  }
}

}  // namespace troupe::gpu
