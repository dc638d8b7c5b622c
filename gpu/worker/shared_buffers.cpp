#include "gpu/worker/shared_buffers.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "gpu/worker/tensors.hpp"
#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"

namespace troupe::gpu::python {

struct shared_buffers::state {
  using free_pieces = std::map<std::uint64_t, std::uint64_t>;  // of free memory: bytes by offset

  std::optional<buffer_place> find(std::uint64_t bytes);
  expected<void> grow(std::uint64_t bytes);
  void give_back(const buffer_place& place);
  std::uint64_t room_to_grow() const {
    return regions.size() < max_regions ? limit_bytes - total_bytes : 0;
  }
  std::span<std::byte> memory(const buffer_place& p) const {
    return regions[p.region - 1].memory->bytes().subspan(p.offset, p.bytes);
  }

  // Number 0 is the memory of gradients, which has no buffers.
  static constexpr std::size_t max_regions = max_region;

  mutable std::mutex guard;
  std::uint64_t limit_bytes = 0, total_bytes = 0;
  std::vector<region> regions;
  std::vector<free_pieces> free;  // by region
  std::size_t given = 0;          // regions that the worker knows of
};

// The lowest place that is large enough: it has been used before, if any has.
std::optional<buffer_place> shared_buffers::state::find(std::uint64_t bytes) {
  for (std::size_t r = 0; r < free.size(); ++r) {
    const auto piece = std::find_if(free[r].begin(), free[r].end(),
                                    [&](const auto& p) { return p.second >= bytes; });
    if (piece == free[r].end()) continue;
    const auto [offset, size] = *piece;
    free[r].erase(piece);
    if (size > bytes) free[r].emplace(offset + bytes, size - bytes);
    return buffer_place{regions[r].number, offset, bytes};
  }
  return {};
}

// Doubles what there is, so that the number of regions stays small.
expected<void> shared_buffers::state::grow(std::uint64_t bytes) {
  constexpr std::uint64_t smallest = std::uint64_t{4} << 20;
  if (bytes > room_to_grow())
    return refuse(reason::kind::infeasible,
                  "a tensor of {} bytes finds no room in {} bytes of shared memory; slot_mb may be "
                  "too small",
                  bytes, limit_bytes);
  const auto size =
      std::min({room_to_grow(), std::max({bytes, total_bytes, smallest}), max_buffer});
  auto memory = shared_memory::make(size);
  if (!memory) return refuse(memory.error());
  regions.push_back({static_cast<std::uint32_t>(regions.size() + 1), std::move(*memory)});
  free.push_back({{0, size}});
  total_bytes += size;
  TROUPE_INVARIANT(total_bytes <= limit_bytes, "shared memory grows up to its limit");
  return {};
}

void shared_buffers::state::give_back(const buffer_place& place) {
  if (place.bytes == 0) return;
  TROUPE_INVARIANT(place.region > 0 && place.region <= free.size(),
                   "a buffer lies in a region that was made for buffers");
  auto& pieces = free[place.region - 1];
  auto [piece, fresh] = pieces.emplace(place.offset, place.bytes);
  TROUPE_INVARIANT(fresh, "a piece of shared memory is given back once");
  const auto next = std::next(piece);
  TROUPE_INVARIANT(next == pieces.end() || piece->first + piece->second <= next->first,
                   "a buffer ends before the free memory behind it");
  if (next != pieces.end() && next->first == piece->first + piece->second) {
    piece->second += next->second;
    pieces.erase(next);
  }
  if (piece == pieces.begin()) return;
  const auto before = std::prev(piece);
  TROUPE_INVARIANT(before->first + before->second <= piece->first,
                   "a buffer begins behind the free memory before it");
  if (before->first + before->second == piece->first) {
    before->second += piece->second;
    pieces.erase(piece);
  }
}

shared_buffers::shared_buffer::~shared_buffer() {
  std::lock_guard lock{from_->guard};
  from_->give_back(place_);
}

void shared_buffers::shared_buffer::shorten(std::uint64_t bytes) {
  const auto kept = aligned(bytes);
  if (kept >= place_.bytes) return;
  std::lock_guard lock{from_->guard};
  from_->give_back({place_.region, place_.offset + kept, place_.bytes - kept});
  place_.bytes = kept;
  bytes_ = bytes_.first(kept);
}

shared_buffers::shared_buffers(std::uint64_t limit_bytes) : state_{std::make_shared<state>()} {
  state_->limit_bytes = limit_bytes / tensor_alignment * tensor_alignment;
}

expected<std::shared_ptr<shared_buffer>> shared_buffers::take(std::uint64_t bytes) {
  const auto wanted = aligned(std::max<std::uint64_t>(bytes, 1));
  if (wanted > max_buffer)
    return refuse(reason::kind::infeasible, "a tensor has {} bytes, expected {} at most", bytes,
                  max_buffer);
  std::lock_guard lock{state_->guard};
  auto place = state_->find(wanted);
  if (!place) {
    if (auto ok = state_->grow(wanted); !ok) return refuse(ok.error());
    place = state_->find(wanted);
    TROUPE_INVARIANT(place, "a new region has room for the buffer that it was made for");
  }
  TROUPE_INVARIANT(place->offset % tensor_alignment == 0,
                   "buffers begin where a header can say, and where tensors are aligned");
  return std::make_shared<shared_buffer>(state_, state_->memory(*place), *place);
}

bool shared_buffers::has_room(std::uint64_t bytes) const {
  std::lock_guard lock{state_->guard};
  const auto fits = [&](const auto& pieces) {
    return std::any_of(pieces.begin(), pieces.end(),
                       [&](const auto& p) { return p.second >= bytes; });
  };
  return state_->room_to_grow() >= bytes ||
         std::any_of(state_->free.begin(), state_->free.end(), fits);
}

std::vector<shared_buffers::region> shared_buffers::take_new_regions() {
  std::lock_guard lock{state_->guard};
  const auto first = state_->regions.begin() + static_cast<std::ptrdiff_t>(state_->given);
  std::vector<region> fresh{first, state_->regions.end()};
  state_->given = state_->regions.size();
  return fresh;
}

payload as_payload(std::shared_ptr<const shared_buffer> s) {
  const auto bytes = s->bytes();
  return {std::move(s), bytes};
}

}  // namespace troupe::gpu::python
