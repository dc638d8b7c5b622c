#include "runtime/keeper/starters.hpp"

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include <fmt/format.h>

#include "messages/base/whole_file.hpp"
#include "runtime/host/private_files.hpp"

namespace troupe::runtime {

// The guard and the server that start keepers (keeper_process.cpp). Their record is a file beside
// the groups' records, as a later process of the node must find them too: a server that was stopped
// when its node died would start a program long after.
namespace {

std::string file_of(const std::string& records) {
  return records + ".starters";
}

std::optional<starters> read_starters(const std::string& records) {
  std::ifstream in{file_of(records)};
  starters s;
  std::string boot;
  if (!(in >> boot >> s.guard.pid >> s.guard.started >> s.server.pid >> s.server.started))
    return {};
  if (boot != this_boot()) return {};
  return s;
}

}  // namespace

// The record is stale for a moment after the guard has replaced its server; the guard's children
// are the truth then.
starters starters::find(const std::string& records, const process_id& guard) {
  if (const auto s = read_starters(records); s && s->guard == guard) return *s;
  const auto children = is_alive(guard) ? living_children(guard.pid) : std::vector<process_id>{};
  return {guard, children.empty() ? process_id{} : children.front()};
}

bool starters::alive() const {
  return is_alive(guard) || is_alive(server);
}

void starters::wake() const {
  signal_process(guard, SIGCONT);
  signal_process(server, SIGCONT);
}

void starters::replace_server() const {
  signal_process(server, SIGKILL);
  signal_process(guard, SIGCONT);
}

void starters::end() const {
  signal_process(guard, SIGKILL);  // first: it would start another server
  if (!is_alive(server)) return;
  // These have no record yet if they were stopped at once. Their owner is gone: they end.
  const auto keepers = living_children(server.pid);
  signal_process(server, SIGKILL);
  for (const auto& k : keepers) signal_process(k, SIGCONT);
}

void record_starters(const std::string& records, const starters& s) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path{records}.parent_path(), ignored);
  const auto text = fmt::format("{} {} {} {} {}\n", this_boot(), s.guard.pid, s.guard.started,
                                s.server.pid, s.server.started);
  (void)write_whole_file(file_of(records), text, private_file_mode);
}

void forget_starters(const std::string& records) {
  std::error_code ignored;
  std::filesystem::remove(file_of(records), ignored);
}

void end_recorded_starters(const std::string& records) {
  if (const auto s = read_starters(records)) s->end();
}

}  // namespace troupe::runtime
