#include "web/openai/served_adapters.hpp"

#include <algorithm>
#include <utility>

#include "gpu/files/directory_entries.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/shown.hpp"

namespace troupe::web {

namespace {

namespace fs = std::filesystem;

/// The folders in a folder, by their names.
expected<std::vector<served_adapters::source>> adapters_in(const fs::path& folder) {
  std::error_code error;
  auto entries = gpu::entries_of(folder, error);
  if (error)
    return refuse(reason::kind::invalid, "--adapters {}: {}, expected a folder of adapters",
                  folder.string(), error.message());
  std::ranges::sort(entries);
  std::vector<served_adapters::source> all;
  for (const auto& e : entries) {
    auto name = e.filename().string();
    if (!name.starts_with('.') && fs::is_directory(e, error)) all.push_back({std::move(name), e});
  }
  return all;
}

std::uint64_t bytes_of(const std::vector<served_adapters::entry>& all) {
  std::uint64_t bytes = 0;
  for (const auto& e : all) bytes += e.adapter->bytes();
  return bytes;
}

}  // namespace

expected<served_adapters> served_adapters::read(const fs::path& base, const gpu::inference_model& m,
                                                std::vector<source> listed, fs::path folder,
                                                std::vector<std::string> taken) {
  served_adapters made;
  made.base_ = base;
  made.folder_ = std::move(folder);
  made.model_ = m;
  made.listed_ = std::move(listed);
  made.taken_ = std::move(taken);
  auto all = made.read_all();
  if (!all) return refuse(all.error());
  made.all_ = std::move(*all);
  return made;
}

// One that is there with the same files stays: requests go on to find its pages in the cache.
expected<std::vector<served_adapters::entry>> served_adapters::read_all() const {
  auto sources = listed_;
  if (!folder_.empty()) {
    auto more = adapters_in(folder_);
    if (!more) return refuse(more.error());
    sources.insert(sources.end(), more->begin(), more->end());
  }
  auto names = taken_;
  std::vector<entry> all;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto& [name, folder] = sources[i];
    if (name.empty() || std::ranges::count(names, name) > 0)
      return refuse(reason::kind::invalid,
                    "the adapter {}: found the name '{}', expected one that no other model or "
                    "adapter has",
                    folder.string(), shown(name));
    names.push_back(name);
    const auto before = std::ranges::find(all_, name, &entry::name);
    if (before != all_.end()) {
      // Those of --adapter are read once.
      const auto hash = i < listed_.size() ? expected<std::string>{before->adapter->sha256}
                                           : gpu::sha256_of_adapter(folder);
      if (hash && *hash == before->adapter->sha256) {
        all.push_back(*before);
        continue;
      }
    }
    auto adapter = gpu::open_adapter(folder, model_, base_);
    if (!adapter) return refuse(adapter.error());
    all.push_back({name, std::move(*adapter)});
  }
  return all;
}

std::uint64_t served_adapters::bytes() const {
  return bytes_of(all_);
}

void served_adapters::offer(service& s, const served_model& base,
                            const std::shared_ptr<generator>& by) const {
  for (const auto& e : all_) {
    auto model = base;
    model.name = e.name;
    model.parent = base.name;
    model.adapter = e.adapter;
    s.offer(std::move(model), by);
  }
}

expected<void> served_adapters::read_again(service& s, const served_model& base,
                                           const std::shared_ptr<generator>& by,
                                           std::uint64_t max_bytes) {
  if (folder_.empty()) return {};
  auto fresh = read_all();
  if (!fresh) return refuse(fresh.error());
  if (const auto need = bytes_of(*fresh); need > max_bytes)
    return refuse(reason::kind::insufficient,
                  "--adapters {}: the adapters need {} bytes of memory, expected at most {}",
                  folder_.string(), need, max_bytes);
  for (const auto& e : all_)
    if (std::ranges::count(*fresh, e.name, &entry::name) == 0) s.withdraw(e.name);
  all_ = std::move(*fresh);
  offer(s, base, by);
  return {};
}

}  // namespace troupe::web
