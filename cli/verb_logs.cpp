#include <algorithm>

#include "cli/progress.hpp"
#include "cli/remote.hpp"
#include "cli/verb.hpp"
#include "runtime/pause.hpp"
#include "runtime/stopwatch.hpp"

namespace troupe::cli {

namespace {

class logs_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("JOB", job_, "A job's number")->required();
    app.add_flag("-f,--follow", follow_, "Go on until the job has ended");
    app.add_option("--part", part_, "Which of its nodes, by rank")->capture_default_str();
    remote_.options(app);
  }

  int run(output& out) override {
    as_json_ = out.as_json();
    std::string text;
    lease_id lease = 0;
    for (std::uint64_t offset = 0;;) {
      const auto chunk = remote_.ask<log_chunk>(read_log{0, job_, 0, part_, offset});
      if (!chunk) return out.no(chunk.error());
      if (chunk->lease != 0 && lease != 0 && chunk->lease != lease) {
        out.note("troupe: the job goes on as lease {}", chunk->lease);
        lease = chunk->lease;
        offset = 0;
        continue;
      }
      if (chunk->lease != 0) lease = chunk->lease;
      const auto bytes = remote_.raw().bytes();
      const std::string_view piece{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
      if (out.as_json())
        text += piece;
      else
        out.text(piece);
      if (chunk->offset > offset)
        out.note("troupe: {} bytes of the log are no longer kept", chunk->offset - offset);
      offset = std::max(offset, chunk->offset) + bytes.size();
      if (bytes.empty() && (!follow_ || ended())) {
        if (!chunk->why.text.empty() && offset == 0) return out.no(chunk->why);
        break;
      }
      if (bytes.empty()) runtime::pause(0.2);
    }
    out.document({{"job", job_}, {"lease", lease}, {"part", part_}, {"text", text}});
    return exit_done;
  }

 private:
  bool ended() {
    const auto reply = remote_.ask<query_reply>(query_jobs{0, job_});
    if (!reply || reply->jobs.empty()) return true;
    show_progress(reply->jobs.front());
    return is_final(reply->jobs.front().state);
  }

  /// Trainings print nothing of themselves: a line every few seconds, and one at the end.
  void show_progress(const job_status& j) {
    constexpr double every_s = 3;
    if (!j.command.empty() || j.iteration == shown_ ||
        (shown_ > 0 && !is_final(j.state) && since_.s() < every_s))
      return;
    shown_ = j.iteration;
    since_ = {};
    if (as_json_) return;
    fmt::print("{}\n", progress_text(j));
    std::fflush(stdout);
  }

  job_id job_ = 0;
  bool follow_ = false;
  std::uint32_t part_ = 0;
  bool as_json_ = false;
  std::uint64_t shown_ = 0;   // the iteration of the last line about it
  runtime::stopwatch since_;  // that line
  remote remote_;
};

}  // namespace

std::unique_ptr<verb> make_logs() {
  return std::make_unique<logs_verb>();
}

}  // namespace troupe::cli
