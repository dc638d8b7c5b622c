#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "messages/base/invariant.hpp"
#include "messages/base/untrusted_file.hpp"
#include "runtime/process/program.hpp"

// Why a program could not start. The kernel has one number for several files: ENOENT is also what
// a script gets whose interpreter is missing, and EACCES what a directory gets.

namespace troupe::runtime {

namespace {

constexpr std::size_t head_bytes = 256;  // of a file; the kernel reads as much of a first line
constexpr int longest_chain = 5;         // of scripts whose interpreters are scripts

/// The PATH of a program with these options.
std::string search_path(const process_options& o) {
  for (const auto& [name, value] : o.environment)
    if (name == "PATH") return value;
  const char* inherited = std::getenv("PATH");
  return inherited ? inherited : "";
}

/// Control characters as their escapes: a carriage return would be invisible, or worse.
std::string visible(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c == '\r')
      out += "\\r";
    else if (static_cast<unsigned char>(c) < ' ' || c == 0x7f)
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      out += c;
  return out;
}

struct file_kind {
  bool exists = false, directory = false, executable = false;
  std::string link_to;  // of a link to nothing
};

file_kind kind_of(const std::string& file) {
  file_kind k;
  struct stat s {};
  k.exists = ::stat(file.c_str(), &s) == 0;
  k.directory = k.exists && S_ISDIR(s.st_mode);
  k.executable = k.exists && (s.st_mode & 0111) != 0;
  if (!k.exists && ::lstat(file.c_str(), &s) == 0 && S_ISLNK(s.st_mode)) {
    char target[4096];
    const auto n = ::readlink(file.c_str(), target, sizeof target);
    if (n > 0) k.link_to.assign(target, static_cast<std::size_t>(n));
  }
  return k;
}

std::string head_of(const std::string& file) {
  const auto f = untrusted_file::open(file);
  auto piece = f ? f->piece(0, head_bytes) : refuse(f.error());
  return piece ? std::move(piece->bytes) : std::string{};
}

/// The interpreter that a script's first line names; empty: it is no script.
std::string interpreter_of(std::string_view head) {
  if (!head.starts_with("#!")) return {};
  head = head.substr(2, head.find('\n') - 2);
  head.remove_prefix(std::min(head.find_first_not_of(" \t"), head.size()));
  return std::string{head.substr(0, head.find_first_of(" \t"))};
}

/// As the program's process would find it.
std::string found_from(const std::string& directory, const std::string& path) {
  return path.starts_with('/') || directory.empty() ? path : directory + "/" + path;
}

/// Why the file `path` cannot be run; `shown`: its name as the user knows it.
std::string why_not(const std::string& path, const std::string& shown, int why,
                    const std::string& directory, int depth = 0) {
  const auto file = found_from(directory, path);
  const auto kind = kind_of(file);
  const std::string plain = std::strerror(why);
  if (!kind.link_to.empty())
    return fmt::format("{}: it is a link to {}, which does not exist on this node", shown,
                       visible(kind.link_to));
  if (!kind.exists) return fmt::format("{}: {}", shown, plain);
  if (kind.directory) return fmt::format("{}: it is a directory", shown);
  if (why == EACCES && !kind.executable)
    return fmt::format("{}: {}: it is not executable (chmod +x)", shown, plain);
  const auto head = head_of(file);
  const auto interpreter = interpreter_of(head);
  if (why == ENOENT && head.starts_with("\x7f"
                                        "ELF"))
    return fmt::format(
        "{}: the loader that it names is not there: it was built for another system or C library",
        shown);
  if (why == ENOEXEC)
    return fmt::format("{}: {}: it was built for another kind of machine, or is cut", shown, plain);
  if (interpreter.empty() || depth >= longest_chain || (why != ENOENT && why != EACCES))
    return fmt::format("{}: {}", shown, plain);
  const auto name = visible(interpreter);
  if (interpreter.ends_with('\r'))
    return fmt::format(
        "{}: its first line names the interpreter {}, with a carriage return, as files of Windows "
        "have: no such file; remove it from each line (sed -i 's/\\r$//' {})",
        shown, name, shown);
  const auto of_it = kind_of(found_from(directory, interpreter));
  if (!of_it.exists && of_it.link_to.empty())
    return fmt::format(
        "{}: its first line names the interpreter {}, which does not exist on this node (has its "
        "environment been moved?)",
        shown, name);
  return fmt::format("{}: its interpreter {}", shown,
                     why_not(interpreter, name, why, directory, depth + 1));
}

std::string why_not_program(const process_options& o, int why) {
  TROUPE_INVARIANT(!o.command.empty(), "a program that was to start has a name");
  const auto& word = o.command.front();
  auto name = visible(word);
  const char* python = std::getenv("TROUPE_PYTHON");
  if (python && word == python && o.command.size() > 1 && o.command[1] == "-m")
    name += " (TROUPE_PYTHON)";
  // The one that decided: the first that is there.
  const auto files = files_to_run(o);
  const auto at = std::ranges::find_if(files, [&](const std::string& file) {
    const auto k = kind_of(found_from(o.directory, file));
    return !k.link_to.empty() || (k.exists && (files.size() == 1 || !k.directory));
  });
  if (at != files.end()) return why_not(*at, name, why, o.directory);
  auto text = fmt::format("{}: {}", name, std::strerror(why));
  if (word.find_first_of(" \t") != std::string::npos)
    text += fmt::format(
        "; the command's first word has blanks, so all of it is the program's name: give each word "
        "by itself, as in command: [python, train.py], or [sh, -c, '{}']",
        visible(word));
  return text;
}

}  // namespace

std::vector<std::string> files_to_run(const process_options& o) {
  if (o.command.empty()) return {};
  const auto& word = o.command.front();
  if (word.empty() || word.find('/') != std::string::npos) return {word};
  auto path = search_path(o);
  if (path.empty()) path = "/usr/local/bin:/usr/bin:/bin";
  std::vector<std::string> files;
  for (std::size_t at = 0; at <= path.size();) {
    const auto end = std::min(path.find(':', at), path.size());
    const auto folder = path.substr(at, end - at);
    // An empty folder is the working directory.
    files.push_back((folder.empty() ? "." : folder) + "/" + word);
    at = end + 1;
  }
  return files;
}

int exit_status_of(const start_failure& f) {
  constexpr int cannot_run = 126, not_found = 127;
  const bool found = f.where == start_failure::step::program && f.why != ENOENT && f.why != 0;
  return found ? cannot_run : not_found;
}

std::string describe(const start_failure& f, const process_options& o) {
  using step = start_failure::step;
  const std::string why = std::strerror(f.why);
  switch (f.where) {
    case step::directory:
      return fmt::format("cannot run in {}: {}", o.directory, why);
    case step::output:
      return fmt::format("cannot write to {}: {}", o.output, why);
    case step::program:
      return "cannot run " + why_not_program(o, f.why);
    case step::fork:
      return fmt::format("cannot start a process: {}", why);
    case step::group:
      break;
  }
  return fmt::format("cannot create a process group: {}", why);
}

}  // namespace troupe::runtime
