// mutate instrument SOURCES MODULE OUT: instruments the module's .cpp files into OUT/MODULE, and
// lists the mutants in OUT/MODULE.txt. OUT/MODULE-without.txt has lines (FILE:LINE) that get none,
// because they do not compile with them. mutate run MODULE OUT EQUIVALENT MUTANTS SEED PROGRAM...:
// see run.hpp.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>

#include "mutation/instrument.hpp"
#include "mutation/run.hpp"

namespace {

namespace fs = std::filesystem;
using namespace troupe::mutation_test;

std::string content_of(const fs::path& file) {
  std::ifstream in{file, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

/// An unchanged file is not compiled again.
void write_if_changed(const fs::path& file, const std::string& text) {
  if (fs::exists(file) && content_of(file) == text) return;
  fs::create_directories(file.parent_path());
  std::ofstream{file, std::ios::binary} << text;
}

std::map<std::string, std::set<std::size_t>> lines_without(const fs::path& file) {
  std::map<std::string, std::set<std::size_t>> all;
  std::ifstream in{file};
  for (std::string line; std::getline(in, line);)
    if (const auto colon = line.rfind(':'); colon != std::string::npos)
      all[line.substr(0, colon)].insert(std::stoul(line.substr(colon + 1)));
  return all;
}

int instrument_module(const fs::path& sources, const std::string& module, const fs::path& out) {
  constexpr int per_file =
      1000;  // so that a change in one file does not number those of others anew
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator{sources / module})
    if (entry.path().extension() == ".cpp") files.push_back(fs::relative(entry.path(), sources));
  std::sort(files.begin(), files.end());
  const auto without = lines_without(out / (module + "-without.txt"));
  std::string list;
  int first = 1;
  for (const auto& file : files) {
    const auto lines = without.find(file.string());
    const auto made = instrument(content_of(sources / file), first,
                                 lines != without.end() ? lines->second : std::set<std::size_t>{});
    write_if_changed(out / file, made.source);
    for (const auto& m : made.mutants)
      list += std::to_string(m.id) + '\t' + file.string() + '\t' + std::to_string(m.line) + '\t' +
              m.text + '\n';
    first += per_file;
  }
  write_if_changed(out / (module + ".txt"), list);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> a{arguments + 1, arguments + count};
  if (a.size() == 4 && a[0] == "instrument") return instrument_module(a[1], a[2], a[3]);
  if (a.size() > 6 && a[0] == "run")
    return run({a[1],
                fs::absolute(a[2]),
                a[3],
                {a.begin() + 6, a.end()},
                std::stoul(a[4]),
                std::stoul(a[5])});
  std::fprintf(stderr,
               "usage: mutate instrument SOURCES MODULE OUT\n"
               "       mutate run MODULE OUT EQUIVALENT MUTANTS SEED PROGRAM...\n");
  return 2;
}
