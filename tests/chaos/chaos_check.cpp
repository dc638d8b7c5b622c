// chaos_check CLUSTER.yaml JOURNAL: replays a journal through a ledger, which refuses a GPU that is
// granted twice, and prints its content: "contradiction SENTENCE", "entries N", "epochs N",
// "leases N", "job ID NAME STATE ENDS".

#include <cstdio>
#include <map>

#include "actors/control/ledger/ledger.hpp"
#include "formats/load/load.hpp"
#include "runtime/journal/sqlite_journal.hpp"

using namespace troupe;

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const auto c = formats::load_cluster(arguments[1]);
  auto journal = runtime::sqlite_journal::open(arguments[2]);
  if (!c || !journal) {
    std::printf("contradiction %s\n", (c ? journal.error() : c.error()).text.c_str());
    return 1;
  }
  actors::ledger book{*c};
  std::map<job_id, int> ends;
  std::size_t entries = 0, leases = 0;
  const auto replayed = (*journal)->replay([&](const journal_entry& e) {
    ++entries;
    if (auto ok = book.apply(e); !ok) std::printf("contradiction %s\n", ok.error().text.c_str());
    if (const auto* ended = std::get_if<job_ended>(&e)) ++ends[ended->job];
    if (std::holds_alternative<lease_granted>(e)) ++leases;
  });
  if (!replayed) std::printf("contradiction %s\n", replayed.error().text.c_str());
  std::printf("entries %zu\nepochs %llu\nleases %zu\n", entries,
              static_cast<unsigned long long>(book.epoch()), leases);
  for (const auto& [id, j] : book.jobs())
    std::printf("job %llu %s %s %d\n", static_cast<unsigned long long>(id), j.spec->name.c_str(),
                to_string(j.state), ends[id]);
  return 0;
}
