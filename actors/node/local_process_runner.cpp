#include "actors/node/local_process_runner.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "actors/node/memory_errors.hpp"
#include "actors/node/program_ends.hpp"
#include "actors/node/program_files.hpp"
#include "actors/node/worker_runner.hpp"
#include "actors/training/device/socket_folder.hpp"
#include "messages/base/absolute_path.hpp"
#include "messages/base/find_in.hpp"
#include "messages/base/refuse.hpp"
#include "messages/base/untrusted_file.hpp"
#include "runtime/host/log.hpp"
#include "runtime/host/real_clock.hpp"
#include "runtime/keeper/keeper.hpp"
#include "runtime/keeper/state_directory.hpp"
#include "runtime/process/free_ports.hpp"
#include "runtime/process/python_package.hpp"
#include "runtime/process/readable_watch.hpp"
#include "runtime/process/visible_gpus.hpp"

namespace troupe::actors {

namespace {

namespace fs = std::filesystem;
using runtime::kept_end;

constexpr std::size_t chunk_bytes = 64 * 1024;
constexpr double file_poll_s = 1;                  // of a running program's files
constexpr double short_poll_s = 0.25;              // of one that reads the control file
constexpr double signal_before_s = 5;              // its last request, before SIGKILL
constexpr double longest_retry_s = 60;             // of a node that can start nothing
constexpr std::uint64_t log_bytes = 256ull << 20;  // per lease; beyond it the older half is dropped

/// Python keeps what it prints to a file until it has 8 KiB, and loses it when it is killed.
void show_output_at_once(std::vector<std::pair<std::string, std::string>>& environment) {
  constexpr const char* name = "PYTHONUNBUFFERED";
  const bool set = std::ranges::any_of(environment, [](const auto& v) { return v.first == name; });
  if (!set && std::getenv(name) == nullptr) environment.emplace_back(name, "1");
}

class local_process_runner final : public process_runner {
 public:
  local_process_runner(const fs::path& state, std::uint64_t incarnation)
      : logs_{state / "logs"},
        records_{runtime::process_records(state.string())},
        files_{logs_, incarnation},
        first_port_{incarnation * 64} {}

  // Programs of an earlier process may still run if that was killed. They are ended first: their
  // GPUs are about to be given to others. The keeper server is forked before this process has
  // threads, since a child of a threaded one may call almost nothing before exec().
  expected<void> prepare(int lock) {
    std::error_code failed;
    fs::create_directories(logs_, failed);
    if (!failed) fs::create_directories(records_, failed);
    if (failed)
      return refuse(reason::kind::invalid, "{}: cannot be created: {}", logs_.string(),
                    failed.message());
    remove_left_socket_folders();
    if (const auto killed = runtime::reap_orphans(records_.string()); !killed.empty())
      runtime::log(runtime::log_level::warn, "node", "killed programs of an earlier process",
                   {{"groups", killed.size()}});
    look_for_torch();
    auto started = runtime::keeper_server::start(records_.string(), lock);
    if (!started) return refuse(started.error());
    keepers_ = std::move(*started);
    return {};
  }

  // A port that is free now may be taken when a lease uses it: start() looks again, and asks for
  // another list then.
  std::vector<std::uint16_t> free_ports() override {
    constexpr std::size_t count = 64;
    return runtime::free_ports(count, std::exchange(first_port_, first_port_ + count));
  }

  std::optional<python_environment> python() const override { return python_; }

  expected<void> start(const work_order& w) override {
    if (w.port && !runtime::is_free_port(*w.port))
      return refuse(reason::kind::stale, "its port {} (MASTER_PORT) is in use on this node",
                    *w.port);
    // A full disk is this machine's problem and not the job's: the node takes no more work, and the
    // job is queued again.
    if (auto ok = files_.prepare(w.lease); !ok) {
      take_no_more(ok.error().text);
      return ok;
    }
    runtime::process_options o;
    o.command = w.command;
    for (const auto& pair : w.environment)
      if (const auto equals = pair.find('='); equals != std::string::npos)
        o.environment.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
    runtime::visible_gpus::own().name_in(o.environment);
    o.environment.emplace_back("TROUPE_REPORT", files_.report(w.lease));
    o.environment.emplace_back("TROUPE_CONTROL", files_.control(w.lease));
    runtime::add_python_package(o.environment);
    show_output_at_once(o.environment);
    const auto order = w.program.value_or(program_order{});
    o.environment.emplace_back("TROUPE_GRACE_S", fmt::format("{:g}", order.grace_s));
    o.directory = w.working_directory;
    o.output = files_.log(w.lease);
    // The keeper ends the program at the lease's end even if this process is stopped or dead.
    auto started = keepers_->run(o, until_s_);
    if (!started) {
      check_keepers();
      if (started.error().code == reason::kind::unavailable) take_no_more(started.error().text);
      append_log(w.lease, "troupe: " + started.error().text);
      return refuse(started.error());
    }
    if (watch_) watch_->add((*started)->events());
    auto& r = running_[w.lease];
    r.program = std::move(*started);
    r.order = order;
    return {};
  }

  void watch(std::function<void()> on_event) override {
    workers_.watch(on_event);
    watch_.emplace(std::move(on_event));
    for (const auto& [lease, r] : running_) watch_->add(r.program->events());
  }

  // Also with a time in the past: then the keepers end their programs now.
  void renew(double until_s) override {
    until_s_ = until_s;
    for (auto& [lease, r] : running_) r.program->renew(until_s);
    workers_.renew(until_s);
  }

  gpu::worker_starter workers(lease_id lease) override { return workers_.starter(lease); }

  void end_workers(lease_id lease) override { workers_.end(lease); }

  void stop(lease_id lease, bool at_once) override {
    auto* r = find_in(running_, lease);
    if (!r) return;
    // A second graceful stop must not start the grace again.
    if (at_once)
      r->program->kill();
    else if (!r->stopping)
      request_stop(lease, *r);
    r->stopping = true;
    r->killed = r->killed || at_once;
  }

  std::vector<part_report> poll() override {
    check_keepers();
    std::vector<part_report> result;
    const double now_s = clock_.now_s();
    if (!unable_.empty() && now_s >= retry_s_) try_again();
    workers_.poll([this](lease_id lease, const gpu::worker_launch& w) { return run(lease, w); },
                  [this](int events) {
                    if (watch_) watch_->add(events);
                  });
    limit_logs_of_workers(now_s);
    for (auto it = running_.begin(); it != running_.end();) {
      auto& [lease, r] = *it;
      // The files are read once more after the end: the last report is what the program has saved.
      const auto end = r.program->poll();
      if (end || now_s >= r.next_poll_s) {
        read_report(lease, r);
        r.next_poll_s = now_s + (r.reported.control ? short_poll_s : file_poll_s);
        troupe::limit_disk_use(files_.log(lease), log_bytes);
      }
      if (end && end->what == kept_end::how::no_room) take_no_more(end->why);
      // A program that ran proves that programs can be started again.
      if (end && end->what == kept_end::how::exited) failures_ = 0;
      if (end && !end->why.empty()) append_log(lease, "troupe: " + end->why);
      result.push_back(report_on(lease, r, end));
      it = end ? running_.erase(it) : std::next(it);
    }
    return result;
  }

  std::string unable() const override { return unable_; }

  /// All workers of a lease write into one log, beside its trainer's events.
  void limit_logs_of_workers(double now_s) {
    if (now_s < next_limit_s_) return;
    next_limit_s_ = now_s + file_poll_s;
    for (const auto lease : workers_.leases()) troupe::limit_disk_use(files_.log(lease), log_bytes);
  }

  void append_log(lease_id lease, const std::string& line) override {
    if (!files_.make(lease)) (void)troupe::append_to(files_.log(lease), line + '\n');
  }

  // From disk and not from memory, so that logs of earlier attempts and of ended leases can be read
  // as well.
  expected<log_piece> read_log(lease_id lease, std::uint64_t offset) const override {
    const auto none = refuse(reason::kind::unknown, "no log of lease {} on this node", lease);
    const auto file = files_.newest_log(lease);
    if (file.empty()) return none;
    auto piece = troupe::read_piece(file, offset, chunk_bytes);
    if (!piece) return piece.error().code == reason::kind::unknown ? none : refuse(piece.error());
    const auto bytes = std::as_bytes(std::span{piece->bytes});
    return log_piece{piece->offset, payload{std::vector<std::byte>{bytes.begin(), bytes.end()}}};
  }

 private:
  expected<std::unique_ptr<runtime::kept_program>> run(lease_id lease,
                                                       const gpu::worker_launch& what) {
    if (auto ok = files_.prepare(lease); !ok) return refuse(ok.error());
    runtime::process_options o;
    o.command = what.command;
    o.environment = what.environment;
    runtime::visible_gpus::own().name_in(o.environment);
    runtime::add_python_package(o.environment);
    show_output_at_once(o.environment);
    o.directory = what.directory;
    o.output = files_.log(lease);
    return keepers_->run(o, until_s_);
  }

  void look_for_torch() {
    constexpr double limit_s = 10;
    const auto interpreter = runtime::python_interpreter({});
    const auto file = records_.parent_path() / "torch-version";
    const auto found = runtime::find_torch(interpreter, file.string(), limit_s);
    if (found) python_ = python_environment{interpreter, *found};
  }

  /// Ends this host, with the reason, so that its supervisor restarts it: a node that cannot start
  /// programs would otherwise look idle.
  void check_keepers() const {
    if (!keepers_->alive())
      throw std::runtime_error{"the process that starts programs' keepers was killed"};
  }

  /// Whatever could not be started here is queued again, and would otherwise come back at once.
  void take_no_more(const std::string& why) {
    // Doubling from one second: a disk that is full stays full for a while.
    const double wait_s = std::min(longest_retry_s, std::exp2(failures_++));
    retry_s_ = clock_.now_s() + wait_s;
    unable_ = why;
    runtime::log(runtime::log_level::warn, "node", "no program can be started, so none is taken",
                 {{"why", why}, {"next_try_s", wait_s}});
  }

  void try_again() {
    auto ok = files_.try_out();
    std::error_code failed;
    fs::create_directories(records_, failed);
    if (!ok || failed) return take_no_more(ok ? failed.message() : ok.error().text);
    unable_.clear();
    runtime::log(runtime::log_level::info, "node", "programs are taken again", {});
  }

  struct running {
    std::unique_ptr<runtime::kept_program> program;
    program_order order;
    bool stopping = false;                      // it was ordered to stop,
    std::optional<std::uint64_t> saved_before;  // as it had reported then
    bool killed = false;                        // without a grace period
    double next_poll_s = 0;                     // next poll of its files
    program_report reported;
  };

  /// Its first line may be out of sight later: what reads the control file goes on doing so.
  void read_report(lease_id lease, running& r) const {
    const bool control = r.reported.control;
    r.reported = read_program_report(files_.report(lease));
    r.reported.control = r.reported.control || control;
  }

  /// A program that reads the control file is asked by that: a signal would reach it anywhere, such
  /// as in the middle of a collective operation or while it saves. Others get SIGTERM at once.
  void request_stop(lease_id lease, running& r) {
    const double grace_s = r.order.grace_s;
    read_report(lease, r);
    r.saved_before = r.reported.saved;
    const auto written = files_.request_stop(lease, grace_s);
    if (!written)
      runtime::log(runtime::log_level::warn, "node", "a stop can be requested by SIGTERM alone",
                   {{"lease", lease}, {"why", written.error().text}});
    const bool reads = written && r.reported.control;
    r.program->terminate(grace_s, reads ? grace_s - std::min(signal_before_s, grace_s / 2) : 0);
  }

  part_report report_on(lease_id lease, const running& r,
                        const std::optional<kept_end>& end) const {
    part_report p;
    p.lease = lease;
    p.iterations = r.reported.iterations;
    p.peak_bytes = r.reported.peak_bytes;
    p.program = progress_of(r);
    if (!end) return p;
    p.program->signalled = end->asked;
    p.exit_code = end->status;
    using state = part_report::state;
    if (end->what == kept_end::how::not_started || end->what == kept_end::how::no_room) {
      const bool no_room = end->what == kept_end::how::no_room;
      p.now = no_room ? state::not_started : state::failed;
      if (!no_room) p.word = end_word::start_failed;
      p.detail = end->why;
    } else if (end->what != kept_end::how::exited) {  // not the job's failure
      p.now = state::stopped;
      p.detail = end->what == kept_end::how::lease_expired ? lease_expired : end->why;
      // A program that was asked to stop may exit with 0 after saving: it has succeeded only if it
      // says that it has finished.
    } else if (end->status == 0 && (!end->asked || p.program->finished)) {
      p.now = state::succeeded;
    } else if (end->asked || r.killed) {
      p.now = state::stopped;
      if (!has_saved(r)) p.detail = end_without_save(end->status);
      // Frameworks have no exit status for it, so the last lines of the output decide.
    } else if (const auto output = last_output(lease); ran_out_of_memory(end->status, output)) {
      p.now = state::out_of_memory;
      const auto line = memory_error_in(output);
      p.detail = fmt::format("exit status {}: {}", end->status,
                             line.empty() ? "it says that it ran out of memory" : line);
    } else {
      p.now = state::failed;
      if (end->by_signal) p.word = end_word::signal;
      p.detail = fmt::format("exit status {}{}", end->status, signal_of(end->status));
    }
    const bool failed = p.now == state::failed || p.now == state::out_of_memory;
    if (failed) p.rank = r.reported.failed_rank;
    if (failed && !p.rank) p.rank = rank_in_summary(last_output(lease));
    return p;
  }

  /// Since it was asked to stop, or all that it had done before.
  static bool has_saved(const running& r) {
    const auto& now = r.reported;
    return now.saved &&
           (now.saved != r.saved_before || (now.iteration && *now.saved >= *now.iteration));
  }

  static program_progress progress_of(const running& r) {
    const auto& reported = r.reported;
    const auto reached = reported.reached(r.order.iterations_done);
    // The job's file comes first: a program that says something else is told so by its variable.
    const auto last = r.order.last ? r.order.last : reported.last;
    const bool to_the_end = reached && last && *reached >= *last;
    program_progress p{reached, reported.saved, reported.resumed, reported.step_s,
                       reported.finished || to_the_end};
    p.loss = reported.loss;
    p.last = reported.last;
    return p;
  }

  std::string last_output(lease_id lease) const {
    auto tail = troupe::read_tail(files_.log(lease), chunk_bytes);
    return tail ? std::move(tail->bytes) : std::string{};
  }

  fs::path logs_, records_;
  program_files files_;
  runtime::real_clock clock_;
  double until_s_ = std::numeric_limits<double>::infinity();
  std::uint64_t first_port_;  // of the next that are looked for; nodes of a machine differ
  std::optional<python_environment> python_;
  std::string unable_;  // to start programs: the reason,
  double retry_s_ = 0;  // and when it is tried again
  int failures_ = 0;    // in a row
  std::unique_ptr<runtime::keeper_server> keepers_;
  std::map<lease_id, running> running_;
  worker_runner workers_;
  double next_limit_s_ = 0;  // of the disk that their logs take
  std::optional<runtime::readable_watch> watch_;
};

}  // namespace

expected<std::shared_ptr<process_runner>> make_process_launcher(const std::string& state_directory,
                                                                std::uint64_t incarnation,
                                                                int lock) {
  // From the root: programs are told where their files are, and have other working directories.
  const auto state = absolute_path(state_directory);
  if (!state) return refuse(state.error());
  auto result = std::make_shared<local_process_runner>(*state, incarnation);
  if (auto ok = result->prepare(lock); !ok) return refuse(ok.error());
  return result;
}

}  // namespace troupe::actors
