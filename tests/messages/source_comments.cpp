#include "source_comments.hpp"

#include <algorithm>
#include <sstream>

namespace troupe::testing {
namespace {

std::string trimmed(const std::string& s) {
  const auto first = s.find_first_not_of(" \n");
  return first == std::string::npos ? "" : s.substr(first, s.find_last_not_of(" \n") + 1 - first);
}

/// A line's code and its comment, without slashes.
std::pair<std::string, std::string> parts_of(const std::string& line) {
  const auto at = line.find("//");
  if (at == std::string::npos) return {trimmed(line), ""};
  const auto text = line.find_first_not_of('/', at);
  return {trimmed(line.substr(0, at)), text == std::string::npos ? "" : trimmed(line.substr(text))};
}

void append(std::string& text, const std::string& more) {
  if (!more.empty()) text += (text.empty() ? "" : " ") + more;
}

/// Without what is between these brackets, nested ones included.
std::string without(const std::string& s, char open, char close) {
  std::string out;
  int depth = 0;
  for (const char ch : s) {
    if (ch == open) ++depth;
    if (depth == 0) out += ch;
    if (ch == close) --depth;
  }
  return out;
}

std::vector<std::string> split(const std::string& s) {
  std::vector<std::string> all;
  std::istringstream in{s};
  for (std::string part; std::getline(in, part, ',');) all.push_back(trimmed(part));
  return all;
}

/// "std::vector<int> a{}, b = 1;" gives a and b.
std::vector<std::string> declared(const std::string& code) {
  auto names = split(without(without(code.substr(0, code.find(';')), '<', '>'), '{', '}'));
  for (auto& n : names) {
    n = trimmed(n.substr(0, n.find('=')));
    n = n.substr(n.find_last_of(' ') + 1);
  }
  return names;
}

class reader {
 public:
  reader(source_comments& all, std::string file, const std::string& source)
      : all_{all}, file_{std::move(file)} {
    std::istringstream in{source};
    for (std::string line; std::getline(in, line);) lines_.push_back(line);
  }

  void read() {
    std::string above, plain;
    for (; at_ < lines_.size(); ++at_) {
      const auto& line = lines_[at_];
      if (line.starts_with("//")) {
        append(line.starts_with("///") ? above : plain, parts_of(line).second);
        continue;
      }
      if (line.starts_with("namespace troupe {")) all_.introductions[file_] = plain;
      if (line.starts_with("enum class ")) read_enum("");
      if (line.starts_with("struct ") && line.ends_with("{")) read_struct(above);
      if (!line.empty()) plain.clear();
      above.clear();
    }
  }

 private:
  static std::string word_after(const std::string& line, const std::string& word) {
    const auto from = line.find(word) + word.size();
    return line.substr(from, line.find_first_of(" :", from) - from);
  }

  /// From the line with its name to the one with its closing brace.
  void read_enum(const std::string& within) {
    auto& found = all_.enums[within + word_after(lines_[at_], "enum class ")];
    auto body = lines_[at_].substr(lines_[at_].find('{') + 1);
    for (;; body = lines_[++at_]) {
      const auto [code, comment] = parts_of(body);
      for (const auto& name : split(code.substr(0, code.find('}'))))
        if (!name.empty()) found.emplace_back(name, "");
      if (!found.empty()) append(found.back().second, comment);
      if (code.find('}') != std::string::npos) return;
    }
  }

  void read_struct(const std::string& text) {
    commented_record r{file_, text, {}, {}};
    const auto name = word_after(lines_[at_], "struct ");
    std::string above, *trailing = nullptr;
    for (++at_; lines_[at_] != "};"; ++at_) {
      const auto& line = lines_[at_];
      if (line.starts_with("  //")) {
        append(above, parts_of(line).second);
      } else if (trimmed(line).starts_with("//")) {  // further in: it continues the one before
        if (trailing != nullptr) append(*trailing, parts_of(line).second);
      } else if (line.starts_with("  enum class ")) {
        read_enum(name + "::");
        above.clear();  // it is about the enum
      } else if (line.empty()) {
        above.clear();
      } else {
        trailing = read_member(r, std::exchange(above, {}));
      }
    }
    if (!r.fields.empty()) all_.records[name] = std::move(r);
  }

  /// A data member, of which it gives the meaning, or a function, which it passes over.
  std::string* read_member(commented_record& r, std::string meaning) {
    std::string code;
    for (int depth = 0;; ++at_) {
      const auto [more, comment] = parts_of(lines_[at_]);
      code += more + " ";
      append(meaning, comment);
      depth += static_cast<int>(std::ranges::count(more, '{') - std::ranges::count(more, '}'));
      if (depth == 0 && (more.ends_with(';') || more.ends_with('}'))) break;
    }
    if (code.find('(') == std::string::npos) {
      const auto names = declared(code);
      for (const auto& n : names) r.meanings[n];
      return &(r.meanings[names.front()] = meaning);
    }
    if (!code.starts_with("TROUPE_FIELDS(")) return nullptr;
    const auto from = code.find(',') + 1;  // behind the record's name
    r.fields = split(code.substr(from, code.find(')') - from));
    return nullptr;
  }

  source_comments& all_;
  std::string file_;
  std::vector<std::string> lines_;
  std::size_t at_ = 0;
};

}  // namespace

void source_comments::read(const std::string& file_name, const std::string& source) {
  reader{*this, file_name, source}.read();
}

}  // namespace troupe::testing
