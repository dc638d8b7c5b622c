#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "actors/serving/front/decoder_directory.hpp"
#include "gpu/inference/inference_device.hpp"
#include "gpu/inference/prefix_index.hpp"
#include "messages/base/name_hash.hpp"

namespace troupe::actors {

/// Which decoders have computed the beginnings of which prompts, as far as one front has given them
/// these. Decoders forget pages without a word, so this is a guess, by which only time is lost:
/// each decoder compares tokens by itself. Bounded: what was not used for longest goes first.
class known_prefixes {
 public:
  explicit known_prefixes(std::size_t max_pages = std::size_t{1} << 16) : max_pages_{max_pages} {}

  /// The decoder gets this prompt.
  // From the last page to the first: of one prompt the last page is the first to go.
  void add(const std::string& model, std::span<const std::uint32_t> prompt,
           const decoder_name& to) {
    auto all = hashes_of(model, prompt);
    std::ranges::reverse(all);
    for (const auto hash : all) {
      auto& p = pages_[hash];
      by_use_.erase({p.used, hash});
      p.used = ++times_;
      by_use_.emplace(p.used, hash);
      std::erase(p.decoders, to);
      p.decoders.insert(p.decoders.begin(), to);
      if (p.decoders.size() > max_decoders) p.decoders.pop_back();
    }
    while (pages_.size() > max_pages_) {
      pages_.erase(by_use_.begin()->second);
      by_use_.erase(by_use_.begin());
    }
  }

  /// Pages of the prompt's beginning that decoders have; those without are not named.
  // A decoder that has computed a page has computed all before it.
  std::map<decoder_name, std::uint32_t> pages_of(const std::string& model,
                                                 std::span<const std::uint32_t> prompt) const {
    std::map<decoder_name, std::uint32_t> all;
    std::uint32_t pages = 0;
    for (const auto hash : hashes_of(model, prompt)) {
      const auto at = pages_.find(hash);
      if (at == pages_.end()) break;
      ++pages;
      for (const auto& d : at->second.decoders) all[d] = pages;
    }
    return all;
  }

 private:
  static constexpr std::size_t max_decoders = 4;  // of a page; the newest
  struct page {
    std::vector<decoder_name> decoders;  // the newest first
    std::uint64_t used = 0;
  };

  /// Hashes of a prompt's whole pages, each of all tokens up to its end. The last token is computed
  /// in any case, so that a page which ends with it does not count.
  static std::vector<std::uint64_t> hashes_of(const std::string& model,
                                              std::span<const std::uint32_t> prompt) {
    constexpr std::size_t n = gpu::tile_positions;
    const gpu::prefix_owner owner{hash_of_name(model), {}};
    std::vector<std::uint64_t> all;
    for (std::size_t at = 0; at + n < prompt.size(); at += n)
      all.push_back(
          gpu::hash_of_prefix(owner, all.empty() ? 0 : all.back(), prompt.subspan(at, n)));
    return all;
  }

  std::size_t max_pages_;
  std::map<std::uint64_t, page> pages_;  // by the hash of the prefix
  std::set<std::pair<std::uint64_t, std::uint64_t>> by_use_;
  std::uint64_t times_ = 0;
};

}  // namespace troupe::actors
