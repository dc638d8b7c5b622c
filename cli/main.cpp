// troupe: the program. Its verbs are in separate files, listed in verbs.def.
#include <algorithm>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/output/examples.hpp"
#include "cli/output/human.hpp"
#include "cli/output/standard_output.hpp"
#include "cli/output/version.hpp"
#include "cli/verbs/verb.hpp"
#include "formats/load/foreign_keys.hpp"
#include "formats/parse/reader.hpp"

extern const char* const troupe_build_commit;  // in a generated file

namespace troupe::cli {

namespace {

struct entry {
  std::string name;
  std::string summary;
  std::unique_ptr<verb> does;
  CLI::App* app = nullptr;
};

std::vector<entry> all_verbs() {
  std::vector<entry> verbs;
#define TROUPE_VERB(name, summary) verbs.push_back({#name, summary, make_##name()});
#include "cli/verbs/verbs.def"
#undef TROUPE_VERB
  return verbs;
}

/// A better error for an unknown verb than "unexpected argument".
bool is_unknown_verb(const std::string& word, const std::vector<entry>& verbs) {
  return !word.starts_with('-') && std::ranges::find(verbs, word, &entry::name) == verbs.end();
}

/// The counterparts of other schedulers' commands.
std::string_view advice_on_verb(std::string_view word) {
  static constexpr std::pair<std::string_view, std::string_view> words[] = {
      {"sbatch", "`troupe submit FILE` or `troupe submit -- COMMAND`"},
      {"srun", "`troupe submit --wait -- COMMAND`"},
      {"salloc", "`troupe submit -- COMMAND`; there are no interactive sessions"},
      {"run", "`troupe submit --wait -- COMMAND`"},
      {"exec", "`troupe submit --wait -- COMMAND`"},
      {"launch", "`troupe up CLUSTER` starts a cluster, `troupe submit FILE` a job"},
      {"apply", "`troupe submit FILE`"},
      {"create", "`troupe submit FILE`"},
      {"squeue", "`troupe queue`"},
      {"qstat", "`troupe queue`"},
      {"jobs", "`troupe queue`, or `troupe status` with those that have ended"},
      {"ps", "`troupe queue`"},
      {"get", "`troupe status`"},
      {"list", "`troupe status`"},
      {"ls", "`troupe status`"},
      {"sinfo", "`troupe status`"},
      {"nodes", "`troupe status`"},
      {"info", "`troupe status`"},
      {"sacct", "`troupe status`"},
      {"sstat", "`troupe status JOB`"},
      {"sprio", "`troupe queue` and `troupe explain JOB`"},
      {"sreport", "`troupe status`"},
      {"history", "`troupe status`"},
      {"scancel", "`troupe cancel JOB`"},
      {"qdel", "`troupe cancel JOB`"},
      {"kill", "`troupe cancel JOB`"},
      {"delete", "`troupe cancel JOB`"},
      {"rm", "`troupe cancel JOB`"},
      {"hold", "`troupe suspend JOB`"},
      {"pause", "`troupe suspend JOB`"},
      {"release", "`troupe resume JOB`"},
      {"unhold", "`troupe resume JOB`"},
      {"restart", "`troupe requeue JOB`"},
      {"scontrol", "`troupe suspend`, `troupe resume`, `troupe move` and `troupe explain`"},
      {"show", "`troupe explain JOB`"},
      {"why", "`troupe explain JOB`"},
      {"sattach", "`troupe logs JOB -f`"},
      {"log", "`troupe logs JOB`"},
      {"tail", "`troupe logs JOB -f`"},
      {"start", "`troupe up CLUSTER`"},
      {"stop", "`troupe down` ends a cluster, `troupe cancel JOB` a job"},
      {"sacctmgr", "keys are users: `troupe keys`; there are no quotas"},
      {"cordon", "`troupe drain NODE`"},
      {"uncordon", "`troupe undrain NODE`"},
  };
  const auto* const found = std::ranges::find(words, word, [](const auto& w) { return w.first; });
  return found == std::end(words) ? std::string_view{} : found->second;
}

std::string unknown_verb(const std::string& word, const std::vector<entry>& verbs) {
  if (const auto advice = advice_on_verb(word); !advice.empty())
    return fmt::format("unknown verb '{}'; {}", word, advice);
  return fmt::format("unknown verb '{}'{}", word, formats::hint(word, formats::names_of(verbs)));
}

/// For an option of other schedulers' commands (--time=1h, -N2) the key of a job file that it is
/// about; empty: it is no such option.
// Users of Slurm try its options first; the advice for the key of the same meaning answers both.
std::string foreign_key_of(const std::string& word) {
  static constexpr std::pair<char, std::string_view> letters[] = {
      {'A', "account"},    {'a', "array"},    {'c', "cpus_per_task"}, {'D', "chdir"},
      {'d', "dependency"}, {'G', "num_gpus"}, {'J', "job_name"},      {'N', "nodes"},
      {'n', "ntasks"},     {'o', "output"},   {'p', "partition"},     {'q', "qos"},
      {'t', "time"},       {'w', "nodelist"},
  };
  if (word.size() < 2 || word[0] != '-') return {};
  if (word[1] != '-') {
    const auto* const found =
        std::ranges::find(letters, word[1], [](const auto& l) { return l.first; });
    return found == std::end(letters) ? std::string{} : std::string{found->second};
  }
  auto key = word.substr(2, word.find('=') - 2);
  std::ranges::replace(key, '-', '_');
  return key;
}

/// The first of these words that is no option of `submit` but another scheduler's, with what to use
/// here; empty: there is none.
std::string unknown_option(const std::vector<std::string>& words, const CLI::App& submit) {
  for (const auto& word : words) {
    // Words that are options here are never advised against, also where Slurm's mean something
    // else.
    if (!word.starts_with('-') || submit.get_option_no_throw(word.substr(0, word.find('='))))
      continue;
    const auto key = foreign_key_of(word);
    if (const auto advice = formats::advice_on_key(key); !advice.empty())
      return fmt::format("unknown option '{}'; in a job file (docs/files.md): {}", word, advice);
  }
  return {};
}

/// Is its value a file or directory, whose name may have any bytes?
// Linux file names are bytes: a file with a Latin-1 name must be usable, while other values end up
// in JSON.
bool is_path(const std::string& verb, const std::string& option) {
  static constexpr std::string_view paths[] = {
      "JOB",        "CLUSTER",  "CHECKPOINT", "DIR",       "FILE",        "MODEL",
      "--cluster",  "--state",  "--keys",     "--out",     "--profile",   "--picture",
      "--timeline", "--trace",  "--faults",   "--prefill", "--tokenizer", "--dump-logits",
      "--api-keys", "--policy", "--lut"};
  // `submit --model` becomes a key of a job.
  return std::ranges::find(paths, option) != std::end(paths) ||
         (option == "--model" && verb != "submit");
}

/// Values that become text in messages, JSON and files must be UTF-8. Empty: all are.
std::string value_that_is_not_text(const std::string& verb, const CLI::App& app) {
  for (const auto* option : app.get_options())
    for (const auto& value : option->results())
      if (!is_utf8(value) && !is_path(verb, option->get_name()))
        return fmt::format("{}: found '{}', expected UTF-8", option->get_name(), printable(value));
  for (const auto* nested : app.get_subcommands())
    if (auto bad = value_that_is_not_text(verb, *nested); !bad.empty()) return bad;
  return {};
}

/// The parser would convert -1 to the largest number.
void refuse_negative(CLI::App& app) {
  const CLI::Validator whole{[](std::string& word) {
                               return word.starts_with('-')
                                          ? fmt::format(
                                                "found '{}', expected a non-negative integer", word)
                                          : std::string{};
                             },
                             ""};
  for (auto* option : app.get_options())
    if (option->get_type_name().starts_with("UINT")) option->check(whole);
  for (auto* nested : app.get_subcommands({})) refuse_negative(*nested);
}

/// `help`, `help VERB`, `-V` and `--version`, converted to options.
std::vector<std::string> normalised(std::vector<std::string> words) {
  if (words.empty()) return words;
  if (words[0] == "-V" || words[0] == "--version") words[0] = "version";
  if (words[0] == "help") {
    words.erase(words.begin());
    words.insert(words.begin() + (words.empty() || words[0].starts_with('-') ? 0 : 1), "--help");
  }
  return words;
}

/// The words after `--`: a command that the parser must not read.
std::vector<std::string> split_command(std::vector<std::string>& words) {
  const auto at = std::find(words.begin(), words.end(), "--");
  std::vector<std::string> command;
  if (at != words.end()) command.assign(at + 1, words.end());
  // The first `--` only: a command may have its own.
  words.erase(at, words.end());
  return command;
}

int run(std::vector<std::string> words) {
  words = normalised(std::move(words));
  // Before the parser: options of the user's program must not be read as this program's.
  const auto command = split_command(words);
  // Needed before parsing: with --json, parse errors are JSON documents, too.
  output out{std::find(words.begin(), words.end(), "--json") != words.end()};

  auto verbs = all_verbs();
  if (!words.empty() && is_unknown_verb(words[0], verbs))
    return out.bad(unknown_verb(words[0], verbs));

  CLI::App app{"Scheduler and training runtime for heterogeneous GPU clusters across datacenters.",
               "troupe"};
  app.require_subcommand(1);
  app.footer(
      "`troupe help VERB` describes one verb. Exit status: 0 success, 1 failure (with the reason), "
      "2 bad usage or a bad file.");
  bool json_flag = false;
  for (auto& e : verbs) {
    e.app = app.add_subcommand(e.name, e.summary);
    e.app->add_flag("--json", json_flag, "Print one JSON document on standard output");
    e.does->options(*e.app);
    refuse_negative(*e.app);
    const auto own = e.app->get_footer();  // the verb's own footer
    e.app->footer(own.empty() ? examples_of(e.name) : own + "\n\n" + examples_of(e.name));
    // `troupe keys make --json`: options of the verb are accepted behind its sub-verb too.
    for (auto* nested : e.app->get_subcommands({})) nested->fallthrough();
  }
  try {
    app.parse(std::vector<std::string>{words.rbegin(),
                                       words.rend()});  // CLI11 takes the words in reverse order
  } catch (const CLI::Success& e) {
    std::ostringstream help, notes;
    const int status = app.exit(e, help, notes);  // --help
    write_output(help.str());
    return status;
  } catch (const CLI::ParseError& e) {
    const auto found =
        std::find_if(verbs.begin(), verbs.end(), [](const entry& v) { return v.app->parsed(); });
    const auto where = found == verbs.end() ? std::string{"troupe"} : "troupe " + found->name;
    // Only `submit` has counterparts elsewhere; other verbs' unknown options get the parser's
    // message.
    if (found != verbs.end() && found->name == "submit")
      if (const auto unknown = unknown_option(words, *found->app); !unknown.empty())
        return out.bad(unknown);
    std::string what = e.what();
    if (what.starts_with("A subcommand is required")) what = "a verb is required";
    return out.bad(fmt::format("{} (see {} --help)", what, where));
  }
  for (auto& e : verbs) {
    if (!e.app->parsed()) continue;
    if (!command.empty() && !e.does->take_command(command))
      return out.bad(fmt::format("troupe {} takes no command after `--`", e.name));
    if (const auto bad = value_that_is_not_text(e.name, *e.app); !bad.empty()) return out.bad(bad);
    try {
      return e.does->run(out);
      // Only foreign code throws here (JSON, file systems, a policy's plug-in): verbs return their
      // errors.
    } catch (const std::exception& error) {
      return out.bad(error.what());
    }
  }
  return exit_bad;
}

}  // namespace

}  // namespace troupe::cli

int main(int argc, char** argv) {
  troupe::cli::keep_standard_descriptors();
  int status = troupe::cli::exit_bad;
  try {
    troupe::cli::set_build_commit(troupe_build_commit);
    status = troupe::cli::run({argv + 1, argv + argc});
  } catch (const std::exception& e) {
    troupe::cli::write_note(fmt::format("troupe: {}\n", e.what()));
  }
  return troupe::cli::finish_output(status);
}
