#include "runtime/journal/journal_witness.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"
#include "runtime/host/private_files.hpp"

namespace troupe::runtime {
namespace {

constexpr std::size_t slot_bytes = 512;
constexpr unsigned slots = 2;

// Text, for people who examine a damaged journal. The checksum covers the line before it; the
// padding makes both slots whole sectors, which disks write in one piece.
std::string slot_of(const journal_witness::record& r) {
  auto text = fmt::format("troupe journal witness\njournal {:016x}\nsequence {:020}\n", r.journal,
                          r.sequence);
  text += fmt::format("checksum {:016x}\n", XXH3_64bits(text.data(), text.size()));
  text.resize(slot_bytes - 1, ' ');
  return text + '\n';
}

/// Null: not a valid slot.
std::optional<journal_witness::record> read_slot(const std::string& text) {
  journal_witness::record r;
  unsigned long long journal = 0, sequence = 0;
  if (std::sscanf(text.c_str(), "troupe journal witness\njournal %16llx\nsequence %20llu", &journal,
                  &sequence) != 2)
    return {};
  r.journal = journal;
  r.sequence = sequence;
  if (slot_of(r) != text) return {};
  return r;
}

}  // namespace

// O_NOFOLLOW: a link in place of the file would let its owner choose which file is overwritten.
expected<std::unique_ptr<journal_witness>> journal_witness::open(const std::string& path) {
  descriptor fd{::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, private_file_mode)};
  if (fd < 0)
    return refuse(reason::kind::unavailable, "cannot open {}: {}", path, std::strerror(errno));
  ::fchmod(fd, private_file_mode);
  std::unique_ptr<journal_witness> w{new journal_witness{std::move(fd)}};
  struct stat s {};
  if (::fstat(w->fd_, &s) != 0) return refuse(w->failure("read").error());
  w->new_ = s.st_size == 0;
  for (unsigned i = 0; i < slots; ++i) {
    std::string text(slot_bytes, '\0');
    if (::pread(w->fd_, text.data(), slot_bytes, static_cast<off_t>(i * slot_bytes)) !=
        static_cast<ssize_t>(slot_bytes))
      continue;
    const auto r = read_slot(text);
    if (!r) continue;
    // The next write goes to the older or damaged slot.
    if (w->found_.empty() || r->sequence >= w->found_.front().sequence) w->next_slot_ = 1 - i;
    w->found_.push_back(*r);
  }
  return w;
}

expected<void> journal_witness::failure(const char* what) const {
  return refuse(reason::kind::unavailable, "cannot {} the journal's witness: {}", what,
                std::strerror(errno));
}

expected<void> journal_witness::write(const record& r) {
  TROUPE_INVARIANT(r.journal != last_.journal || r.sequence >= last_.sequence,
                   "the number of entries that a journal's witness has noted does not fall");
  last_ = r;
  const auto text = slot_of(r);
  TROUPE_INVARIANT(text.size() == slot_bytes && next_slot_ < slots,
                   "the witness is written to whole sectors of its file");
  // The first record is written to both slots, so that the file has its full size from then on and
  // a full disk cannot prevent later writes.
  for (unsigned i = 0; i < (new_ ? slots : 1); ++i) {
    const auto at = static_cast<off_t>(next_slot_ * slot_bytes);
    if (::pwrite(fd_, text.data(), text.size(), at) != static_cast<ssize_t>(text.size()))
      return failure("write");
    next_slot_ = (next_slot_ + 1) % slots;
  }
  new_ = false;
  dirty_ = true;
  return {};
}

expected<void> journal_witness::sync() {
  if (!dirty_) return {};
  if (::fdatasync(fd_) != 0) return failure("sync");
  dirty_ = false;
  return {};
}

}  // namespace troupe::runtime
