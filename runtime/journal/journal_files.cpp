#include <sqlite3.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "messages/base/invariant.hpp"
#include "messages/base/refuse.hpp"
#include "runtime/journal/sqlite_journal.hpp"

// The journal's part about its files, which only this process may change while it has them.

namespace troupe::runtime {

/// After each write of this process.
expected<void> sqlite_journal::note_files() {
  TROUPE_INVARIANT(places_.size() >= 3,
                   "the journal, its log and its witness are watched from its opening on");
  for (auto& p : places_) {
    struct stat s {};
    if (::stat(p.path.c_str(), &s) != 0)
      return refuse(reason::kind::unavailable, "cannot examine {}: {}", p.path,
                    std::strerror(errno));
    p.size = s.st_size;
    p.written = s.st_mtim;
  }
  return {};
}

/// SQLite does not notice that another program has cut or overwritten its files: it writes after
/// what it believes to be there, and the next process finds a hole. Only this process may write
/// them, so their sizes and times of change show it.
expected<void> sqlite_journal::unchanged() const {
  if (broken_)
    return refuse(reason::kind::unavailable, "an earlier write to the journal {} failed", path_);
  for (const auto& p : places_) {
    struct stat s {};
    const bool there = ::stat(p.path.c_str(), &s) == 0;
    if (!there || s.st_dev != p.device || s.st_ino != p.inode)
      return refuse(reason::kind::unavailable,
                    "{} was {} while the controller was running: further writes would be lost",
                    p.path, there ? "replaced" : "deleted");
    const bool other_time =
        s.st_mtim.tv_sec != p.written.tv_sec || s.st_mtim.tv_nsec != p.written.tv_nsec;
    if (s.st_size != p.size || other_time)
      return refuse(reason::kind::unavailable,
                    "{} was {} by another program while the controller was running: it may lack "
                    "entries that were durable",
                    p.path,
                    s.st_size < p.size ? fmt::format("cut from {} to {} bytes", p.size, s.st_size)
                                       : "written");
  }
  return {};
}

// Called periodically: a controller without a journal must stop even if it has nothing to write,
// since it promises durability with each acceptance.
expected<void> sqlite_journal::check() {
  const std::lock_guard guard{mutex_};
  if (auto ok = unchanged(); !ok) return give_up(ok.error());
  return witness_->sync();
}

}  // namespace troupe::runtime
