#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "cli/connection/controller_connection.hpp"
#include "cli/output/log_printer.hpp"
#include "cli/output/progress.hpp"
#include "cli/verbs/verb.hpp"
#include "runtime/host/pause.hpp"
#include "runtime/host/stopwatch.hpp"

namespace troupe::cli {

namespace {

/// A log that is being read: its position and its printer.
struct open_log {
  log_name which;
  std::uint64_t offset = 0;  // bytes
  log_printer printer;
};

/// Output of a job's programs, by attempt and rank, from the nodes that keep it; with -f until the
/// job ends, across its attempts.
class logs_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("JOB", job_, "Job number")->required();
    app.add_flag("-f,--follow", follow_, "Follow until the job ends");
    app.add_option("--rank,--part", rank_, "Node of the job, by rank from 0 (default: 0)");
    app.add_option("--attempt", attempt_, "Attempt, from 1 (default: the latest)")
        ->check(CLI::PositiveNumber);
    app.add_flag("--all", all_,
                 "All nodes and attempts, each line prefixed with attempt and rank; limited by "
                 "--attempt or --rank");
    app.add_option("--tail", tail_,
                   "Show only the last N lines of each log, and with -f new lines as they come");
    remote_.options(app);
    app.footer(
        "With --json, one document; with --json and -f, one document per line of the log: "
        "{\"job\", \"attempt\", \"rank\", \"lease\", \"line\"}.");
  }

  int run(output& out) override {
    as_json_ = out.as_json();
    if (auto ok = look(); !ok) return out.failure(ok.error());
    if (const auto ok = read_all(out); !ok) {
      // A training without events has no log: its progress is shown.
      if (reached_.empty() || follow_ || out.as_json()) return out.failure(ok.error());
      out.line("{}", reached_);
    }
    return exit_done;
  }

 private:
  /// Queries the job's progress.
  expected<void> look() {
    const auto reply = remote_.ask<query_reply>(query_jobs{0, job_});
    if (!reply) return refuse(reply.error());
    if (reply->jobs.empty()) {
      // Its journal has the job; the reply comes once it has been replayed.
      if (seen_) return {};  // a controller that has just restarted does not know it yet
      return refuse(reason::kind::unknown, fmt::format("no job {}", job_));
    }
    seen_ = true;
    made_ = reply->jobs.front().progress.attempts;
    ended_ = is_final(reply->jobs.front().state);
    if (!has_processes(reply->jobs.front())) reached_ = progress_text(reply->jobs.front());
    if (follow_) show_progress(reply->jobs.front());
    return {};
  }

  /// Trainings print nothing: a line every few seconds, and one at the end.
  void show_progress(const job_status& j) {
    constexpr double every_s = 3;
    if (has_processes(j) || j.iteration == shown_ ||
        (shown_ > 0 && !is_final(j.state) && since_.s() < every_s))
      return;
    shown_ = j.iteration;
    since_ = {};
    if (as_json_) return;
    write_output(progress_text(j) + "\n");
    (void)flush_output();
  }

  // The node that ran the part has the log; the controller passes the question on, and the answer's
  // bytes follow the frame.
  expected<log_chunk> read(std::uint32_t attempt, std::uint32_t rank, std::uint64_t offset) {
    return remote_.ask<log_chunk>(read_log{0, job_, attempt, rank, offset});
  }

  // Valid until the next question.
  std::string_view bytes() const {
    const auto raw = remote_.raw().bytes();
    return {reinterpret_cast<const char*>(raw.data()), raw.size()};
  }

  log_printer::form form_for(const output& out) const {
    if (out.as_json()) return follow_ ? log_printer::form::lines : log_printer::form::text;
    return all_ ? log_printer::form::prefixed : log_printer::form::plain;
  }

  /// Attempt by attempt, from the first requested one. With --follow, the last one is followed.
  expected<void> read_all(const output& out) {
    // A waiting job has no log yet; with -f it will have one.
    while (made_ == 0 && follow_ && !ended_) {
      runtime::pause(poll_s);
      if (auto ok = look(); !ok) return ok;
    }
    const bool document = out.as_json() && !follow_;
    bool separate = false;
    for (auto attempt = attempt_ > 0 ? attempt_ : all_ ? 1 : made_;; ++attempt) {
      auto logs = open_logs(out, attempt);
      if (!logs) return refuse(logs.error());
      // The document has been begun and cannot become an error any more.
      if (out.as_json()) out.documented();  // later errors are not documents
      if (document && all_ && !separate) out.raw(fmt::format("{{\"job\": {}, \"logs\": [", job_));
      if (auto ok = read_attempt(out, *logs, separate); !ok) return ok;
      separate = true;
      if (attempt >= made_ || attempt_ > 0 || !(all_ || follow_)) break;
      if (follow_ && !all_) out.note("troupe: the job continues as attempt {}", attempt + 1);
    }
    if (document && all_) out.raw("]}\n");
    return {};
  }

  /// An attempt's log of one rank or of all. Attempt 0 (the job has none) is an error.
  expected<std::vector<open_log>> open_logs(const output& out, std::uint32_t attempt) {
    std::vector<open_log> logs;
    const bool every = all_ && !rank_;
    for (auto rank = rank_.value_or(0);; ++rank) {
      const auto about = read(attempt, rank, end_of_log);
      if (!about) return refuse(about.error());
      // The number of ranks differs between attempts, so ranks are tried until one does not exist.
      if (every && rank > 0 && about->why.code == reason::kind::invalid && !about->why.text.empty())
        break;  // there is no such rank
      // With --all or -f a part without a log (its node is away) does not end the others.
      const bool none = about->lease == 0 || !(all_ || follow_);
      if (none && !about->why.text.empty()) return refuse(about->why);
      const log_name which{attempt, rank, about->lease};
      logs.push_back({which, 0, {out, form_for(out), job_, which}});
      if (tail_) {
        auto from = start_of_tail(which, about->why.text.empty() ? about->offset : 0);
        if (!from) return refuse(from.error());
        logs.back().offset = *from;
      }
      if (!every) break;
    }
    return logs;
  }

  expected<void> read_attempt(const output& out, std::vector<open_log>& logs, bool separate) {
    const bool document = out.as_json() && !follow_;
    for (auto& l : logs) {
      if (document) begin_document(out, l.which, std::exchange(separate, true));
      if (auto ok = drain(out, l); !ok) return ok;
      // A followed log may go on in the middle of a line.
      if (!follow_) l.printer.end();
      if (document) out.raw(all_ ? "\"}" : "\"}\n");
    }
    while (follow_) {
      // Only after the end is known: reads the rest.
      if (auto ok = look(); !ok) return ok;
      // Asked before the rest is read: what a program writes at its end comes before its end is
      // known, so nothing is lost.
      const bool over = ended_ || made_ > logs.front().which.attempt;
      for (auto& l : logs)
        if (auto ok = drain(out, l); !ok) return ok;
      // Nobody would ever see the rest, however long the job runs.
      if (!flush_output() || over) break;
      runtime::pause(poll_s);
    }
    for (auto& l : logs) l.printer.end();
    return {};
  }

  void begin_document(const output& out, const log_name& which, bool separate) const {
    out.raw(separate ? ", " : "");
    out.raw(fmt::format(
        "{{\"job\": {}, \"lease\": {}, \"attempt\": {}, \"rank\": {}, \"part\": {}, \"text\": \"",
        job_, which.lease, which.attempt, which.rank, which.rank));
  }

  /// Prints everything from the present position.
  expected<void> drain(const output& out, open_log& l) {
    for (;;) {
      const auto chunk = read(l.which.attempt, l.which.rank, l.offset);
      if (!chunk) return refuse(chunk.error());
      const auto piece = bytes();
      if (piece.empty()) return {};
      // Nodes keep the end of a long log.
      if (chunk->offset > l.offset)
        out.note("troupe: the first {} bytes of the log are no longer kept",
                 chunk->offset - l.offset);
      l.printer.print(piece);
      l.offset = chunk->offset + piece.size();
    }
  }

  /// The offset of the last tail_ lines: read backwards, piece by piece.
  expected<std::uint64_t> start_of_tail(const log_name& which, std::uint64_t size) {
    // From the end: the log may have gigabytes, of which a few lines are wanted.
    constexpr std::uint64_t piece_bytes = 64 * 1024;
    if (*tail_ == 0) return size;
    std::uint64_t lines = 0;
    for (auto end = size; end > 0;) {
      const auto begin = end - std::min(end, piece_bytes);
      const auto chunk = read(which.attempt, which.rank, begin);
      if (!chunk) return refuse(chunk.error());
      // The node has rotated the log meanwhile.
      if (chunk->offset >= end) return end;  // earlier text was dropped
      const auto piece = bytes().substr(0, end - chunk->offset);
      for (auto i = piece.size(); i > 0; --i) {
        const auto after = chunk->offset + i;  // the byte behind this one
        if (piece[i - 1] == '\n' && after != size && ++lines == *tail_) return after;
      }
      end = begin;
    }
    return std::uint64_t{0};
  }

  static constexpr double poll_s = 0.2;
  static constexpr std::uint64_t end_of_log = std::uint64_t{1} << 62;  // larger than any log

  job_id job_ = 0;
  bool follow_ = false, all_ = false, seen_ = false, ended_ = false;
  std::optional<std::uint32_t> rank_;
  std::optional<std::uint64_t> tail_;
  std::uint32_t attempt_ = 0, made_ = 0;
  std::string reached_;  // by a training
  bool as_json_ = false;
  std::uint64_t shown_ = 0;   // the iteration of the last line about it
  runtime::stopwatch since_;  // time of that line
  remote remote_;
};

}  // namespace

std::unique_ptr<verb> make_logs() {
  return std::make_unique<logs_verb>();
}

}  // namespace troupe::cli
