// plant TABLE... SOURCES OUT: applies the rows of tables like planted.txt to copies, below OUT, of
// the files that they name. Rows of a later table find the bugs of earlier ones.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace {

struct row {
  std::string bug, file, original, replacement;
};

std::optional<std::string> content_of(const std::filesystem::path& file) {
  std::ifstream in{file, std::ios::binary};
  if (!in) return {};
  return std::string{std::istreambuf_iterator<char>{in}, {}};
}

/// Lines up to the one that is `end`.
std::string text_until(std::istream& in, const std::string& end) {
  std::string text;
  for (std::string line; std::getline(in, line) && line != end;) text += line + '\n';
  return text;
}

std::vector<row> rows_of(std::istream& in) {
  std::vector<row> rows;
  row next;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("bug ")) {
      const auto gap = line.find(' ', 4);
      next.bug = line.substr(4, gap - 4);
      next.file = line.substr(gap + 1);
    } else if (line == "<<<") {
      next.original = text_until(in, "===");
      next.replacement = text_until(in, ">>>");
      rows.push_back(next);
    }
  }
  return rows;
}

bool plant(const row& r, const char* table, std::string& text) {
  const auto at = text.find(r.original);
  if (at != std::string::npos && text.find(r.original, at + 1) == std::string::npos) {
    text.replace(at, r.original.size(), r.replacement);
    return true;
  }
  std::fprintf(stderr, "planted bug %s: %s has this text %s; adapt %s to what the code is now:\n%s",
               r.bug.c_str(), r.file.c_str(),
               at == std::string::npos ? "no more" : "more than once", table, r.original.c_str());
  return false;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) {
    std::fprintf(stderr, "usage: plant TABLE... SOURCES OUT\n");
    return 2;
  }
  const std::filesystem::path sources{arguments[count - 2]}, out{arguments[count - 1]};
  std::map<std::string, std::string> texts;
  bool good = true;
  for (int i = 1; i < count - 2; ++i) {
    std::ifstream table{arguments[i]};
    for (const auto& r : rows_of(table)) {
      if (!texts.contains(r.file)) {
        const auto text = content_of(sources / r.file);
        if (!text) {
          std::fprintf(stderr, "planted bug %s: there is no file %s\n", r.bug.c_str(),
                       r.file.c_str());
          return 1;
        }
        texts[r.file] = *text;
      }
      good = plant(r, arguments[i], texts[r.file]) && good;
    }
  }
  if (!good || texts.empty()) return 1;
  for (const auto& [file, text] : texts) {
    std::filesystem::create_directories((out / file).parent_path());
    std::ofstream to{out / file, std::ios::binary};
    to << "#include \"simulation/planted.hpp\"\n" << text;
    if (!to.flush()) return 1;
  }
  return 0;
}
