#include <algorithm>
#include <filesystem>
#include <utility>

#include "cli/connection/job_endings.hpp"
#include "cli/options/assumed.hpp"
#include "cli/output/human.hpp"
#include "cli/programs/described_program.hpp"
#include "cli/verbs/verb.hpp"
#include "formats/load/load.hpp"
#include "messages/base/absolute_path.hpp"
#include "messages/domain/work_kind.hpp"
#include "planners/plans/places.hpp"

namespace troupe::cli {

namespace {

/// A job name for a command: its program's name, limited to valid characters.
std::string name_for(const std::string& program) {
  auto name = std::filesystem::path{program}.filename().string().substr(0, 64);
  for (auto& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '_' && c != '-')
      c = '-';
  // A name that begins with '-' would be read as an option by other verbs.
  name.erase(0, std::min(name.find_first_not_of(".-"), name.size()));
  return name.empty() ? "command" : name;
}

/// The file that a command gives to Python by itself; empty: it does not.
std::string python_file_of(const std::vector<std::string>& command) {
  const auto name = std::filesystem::path{command.front()}.filename().string();
  if (name.ends_with(".py")) return command.front();
  if (!name.starts_with("python")) return {};
  for (std::size_t i = 1; i < command.size(); ++i) {
    if (!command[i].starts_with('-')) return command[i].ends_with(".py") ? command[i] : "";
    // Behind these are no files.
    if (command[i] == "-m" || command[i] == "-c") return {};
  }
  return {};
}

/// The text with \xNN in place of bytes that are not printable ASCII.
std::string escaped(const std::string& word) {
  std::string text;
  for (const char c : word)
    if (c < ' ' || c == 0x7f)
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      text += c;
  return text;
}

/// Submits the jobs of files, or one whose command is on the command line, and with --wait waits
/// for their ends.
class submit_verb final : public verb {
 public:
  void options(CLI::App& app) override {
    app.add_option("JOB", files_, "Job files (docs/files.md); - is standard input");
    app.add_flag("--wait", wait_, "Wait for the jobs to end");
    given_ = {
        app.add_option("--model", model_, "For a command: model file or name of a shipped model"),
        app.add_option("--batch", batch_, "For a command: sequences per step (1)"),
        app.add_option("--gpus", gpus_,
                       "For a command: exact number of GPUs, as many of each of its nodes"),
        app.add_option("--max-gpus", max_gpus_, "For a command: largest number of GPUs"),
        app.add_option("--memory", memory_gb_, "For a command: memory that it needs, GB per GPU"),
        app.add_option("--name", name_, "For a command: job name"),
        app.add_option("--iterations", iterations_, "For a command: number of iterations"),
        app.add_option("--retries", retries_,
                       "For a command: how often it is repeated if it fails (0)")};
    remote_.options(app);
    app.footer(
        "Words after `--` are the command of a job without a file; it runs in this "
        "directory.\nWith --wait, the exit status is 0 if all jobs finished, else the largest exit "
        "status of a program (128 + n for signal n), or 1 for a job that ended otherwise. "
        "Interrupting the wait does not stop the job.");
  }

  bool take_command(const std::vector<std::string>& words) override {
    command_ = words;
    return true;
  }

  int run(output& out) override {
    std::vector<std::string> notices;
    // All files are read before the first job is sent: a mistake in the last one submits none.
    const auto jobs = load(out, notices);
    if (!jobs) return out.bad(jobs.error());
    for (const auto& n : notices) out.note("troupe: {}", n);
    json submitted = json::array(), refused = json::array();
    std::vector<job_id> accepted;
    std::optional<reason> silent;  // the controller does not answer: the rest is not sent
    for (std::size_t i = 0; i < jobs->size(); ++i) {
      const auto& job = (*jobs)[i];
      const auto assumed = assumption_text(
          job, command_.empty() ? "model, gpus or memory_gb" : "--model, --gpus or --memory");
      // The user should see a guess while the job can still be cancelled.
      if (!assumed.empty() && !silent) out.note("{}: {}", job.name, assumed);
      if (!silent)
        for (const auto& doubt : doubts_of(job)) out.note("{}: {}", job.name, doubt);
      const auto given = silent ? refuse(*silent) : remote_.submit(job);
      if (!given) {
        const auto& why = given.error();
        const bool gone = why.code == reason::kind::unavailable;
        // With a single job, or no controller at all, there is no list to report.
        if (jobs->size() == 1 || (gone && i == 0)) return out.failure(why);
        refused.push_back({{"name", job.name}, {"file", files_[i]}, {"reason", why.text}});
        out.note("troupe: {} ({}): {}", job.name, files_[i], why.text);
        if (gone) silent = why;
        continue;
      }
      accepted.push_back(*given);
      submitted.push_back({{"job", *given},
                           {"name", job.name},
                           {"assumed", assumed.empty() ? json() : json(assumed)}});
      out.line("job {}: {} submitted", *given, job.name);
      std::string notices_of;
      for (const auto& notice : {spread_notice(*given, job), launcher_notice(*given, job)}) {
        if (notice.empty()) continue;
        out.note("{}: {}", job.name, notice);
        notices_of += (notices_of.empty() ? "" : "; ") + notice;
      }
      if (!notices_of.empty()) submitted.back()["notice"] = std::move(notices_of);
    }
    (void)flush_output();
    json document{{"jobs", submitted}, {"refused", refused}};
    const int status = refused.empty() ? exit_done : exit_no;
    if (wait_ && !accepted.empty()) return std::max(status, wait(out, accepted, document));
    out.document(document);
    return status;
  }

 private:
  /// That a program's GPUs are of several datacenters, as `explain` says it; empty: they are not.
  std::string spread_notice(job_id id, const job_spec& job) {
    if (!facts_of(job).has_processes || job.request.gpus < 2) return {};
    const auto about = remote_.ask<explanation>(explain_job{0, id});
    if (!about) return {};
    const auto said = std::ranges::find_if(about->placement, [](const std::string& line) {
      return line.starts_with(planners::spread_words);
    });
    return said == about->placement.end() ? std::string{} : *said;
  }

  /// That a Python file will be one process a node, though each of its GPUs has a rank; empty: it
  /// has a launcher, or there is one GPU a node.
  std::string launcher_notice(job_id id, const job_spec& job) {
    if (!facts_of(job).has_processes || job.program.elastic || job.request.gpus < 2) return {};
    const auto file = python_file_of(job.program.command);
    if (file.empty()) return {};
    const auto now = remote_.ask<query_reply>(query_jobs{0, id});
    if (!now || std::ranges::none_of(now->nodes, [](const auto& n) { return n.gpus > 1; }))
      return {};
    return fmt::format(
        "the command is started once a node, with WORLD_SIZE={} in all; `torchrun {}` or `python3 "
        "-m troupe.run {}` starts a process for each GPU",
        job.request.gpus, file, file);
  }

  expected<std::vector<job_spec>> load(const output& out, std::vector<std::string>& notices) const {
    const auto bad = [](std::string why) { return refuse(reason::kind::invalid, std::move(why)); };
    std::vector<job_spec> jobs;
    if (files_.empty() && command_.empty())
      return bad("expected a job file, or a command after `--` (see troupe submit --help)");
    if (!files_.empty() && !command_.empty())
      return bad("expected files or a command after `--`, found both");
    for (const auto* option : given_)
      if (command_.empty() && option->count() > 0)
        return bad(fmt::format("{} is for a command after `--`; a job file has its own key",
                               option->get_name()));
    for (std::size_t i = 0; i < command_.size(); ++i)
      if (!is_utf8(command_[i]))
        return bad(fmt::format("word {} of the command: found '{}', expected UTF-8", i + 1,
                               escaped(command_[i])));
    for (const auto& file : files_) {
      auto job = load_job(out, file, &notices);
      if (!job) return refuse(job.error());
      jobs.push_back(std::move(*job));
    }
    if (!command_.empty()) {
      // Through the reader of job files, so that a command's options have the same ranges, defaults
      // and errors as keys. JSON is YAML.
      auto job = formats::parse_job("the command line", description().dump());
      if (!job) return refuse(job.error());
      jobs.push_back(std::move(*job));
    }
    // A relative directory is relative to the user's directory, not to the node's.
    for (auto& job : jobs) {
      if (!facts_of(job).has_processes) continue;
      const auto whole = absolute_path(job.program.working_directory);
      if (!whole) return refuse(whole.error());
      job.program.working_directory = std::filesystem::path{*whole}.lexically_normal();
    }
    return jobs;
  }

  /// The job of the command, as from a file.
  json description() const {
    json d{{"name", name_.empty() ? name_for(command_.front()) : name_}, {"command", command_}};
    if (!model_.empty()) d["model"] = model_;
    if (batch_) d["global_batch"] = *batch_;
    if (gpus_) d["gpus"] = *gpus_;
    if (max_gpus_) d["max_gpus"] = *max_gpus_;
    if (memory_gb_) d["memory_gb"] = *memory_gb_;
    if (iterations_) d["iterations"] = *iterations_;
    if (retries_) d["retries"] = *retries_;
    return d;
  }

  /// `document`: what was submitted, which becomes what has ended.
  int wait(const output& out, const std::vector<job_id>& jobs, json& document) {
    document["submitted"] = std::exchange(document["jobs"], json::array());
    int status = exit_done;
    const auto each = [&](const query_reply& r) {
      const auto& j = r.jobs.front();
      document["jobs"].push_back(ending_document(r));
      out.line("{}", ending_text(j));
      (void)flush_output();
      status = std::max(status, exit_status_of(j));
      note_output(out, remote_, j);
    };
    const auto ok = wait_for_jobs(remote_, jobs, each,
                                  [&](const job_status& j) { note_waiting(out, remote_, j); });
    if (!ok) document["error"] = ok.error().text, document["code"] = code_of(ok.error());
    out.document(document);
    return ok ? status : out.failure(ok.error());
  }

  std::vector<std::string> files_, command_;
  std::vector<CLI::Option*> given_;  // options that describe a command
  std::string model_, name_;
  std::optional<std::uint64_t> batch_, gpus_, max_gpus_, iterations_, retries_;
  std::optional<double> memory_gb_;
  bool wait_ = false;
  remote remote_;
};

}  // namespace

std::unique_ptr<verb> make_submit() {
  return std::make_unique<submit_verb>();
}

}  // namespace troupe::cli
