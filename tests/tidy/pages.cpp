#include <algorithm>
#include <regex>
#include <sstream>

#include "tidy/rules.hpp"

namespace troupe::tidy {

std::string normal_path(const std::string& path) {
  std::vector<std::string> parts;
  std::istringstream in{path};
  for (std::string part; std::getline(in, part, '/');) {
    if (part == ".." && !parts.empty())
      parts.pop_back();
    else if (part != "." && part != ".." && !part.empty())
      parts.push_back(part);
  }
  std::string out;
  for (const auto& part : parts) out += (out.empty() ? "" : "/") + part;
  return out.empty() ? "." : out;
}

namespace {

void check_links(const source& s, std::size_t i, const checkout& c, std::vector<finding>& out) {
  static const std::regex link{R"(\]\(([^)\s]+)\))"};
  static const std::regex elsewhere{R"(^([a-z]+:|#).*)"};
  const auto folder = s.path.substr(0, s.path.rfind('/') + 1);
  const auto& line = s.lines[i];
  for (std::sregex_iterator m{line.begin(), line.end(), link}, end; m != end; ++m) {
    const auto target = (*m)[1].str();
    if (std::regex_match(target, elsewhere)) continue;
    const auto path = normal_path(folder + target.substr(0, target.find('#')));
    if (!c.exists(path))
      out.push_back({s.path, i + 1, "links to " + path + ", which is not there"});
  }
}

/// The words of a command, up to its comment; a leading "$ " is a prompt.
std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in{line};
  std::vector<std::string> words;
  for (std::string w; in >> w && !w.starts_with("#");)
    if (w != "$" || !words.empty()) words.push_back(w);
  return words;
}

void check_command(const source& s, std::size_t i, const checkout& c, std::vector<finding>& out) {
  const auto words = words_of(s.lines[i]);
  if (words.size() < 2) return;
  static const std::regex name{"[a-z][a-z-]*"};
  const auto& verb = words[1];
  const bool named = std::regex_match(verb, name);
  if (words[0] == "./dev") {
    const auto& known = c.dev_commands;
    if (named && std::find(known.begin(), known.end(), verb) == known.end())
      out.push_back({s.path, i + 1, "./dev has no command '" + verb + "'"});
  } else if (words[0] == "troupe" || words[0] == "build/release/troupe") {
    if (named && std::find(c.verbs.begin(), c.verbs.end(), verb) == c.verbs.end())
      out.push_back({s.path, i + 1, "troupe has no verb '" + verb + "'"});
  } else {
    return;
  }
  for (const auto& w : words)
    if (w.starts_with("configs/") && !c.exists(normal_path(w)))
      out.push_back({s.path, i + 1, "names " + w + ", which is not there"});
}

}  // namespace

std::vector<finding> check_page(const source& s, const checkout& c) {
  std::vector<finding> out;
  bool fenced = false;
  for (std::size_t i = 0; i < s.lines.size(); ++i) {
    const auto& line = s.lines[i];
    if (line.starts_with("```")) {
      fenced = !fenced;
    } else if (fenced || line.starts_with("    ")) {
      check_command(s, i, c, out);
    } else {
      check_links(s, i, c, out);
    }
  }
  return out;
}

std::vector<std::string> read_dev_commands(const source& dev) {
  static const std::regex branch{R"(\s*([a-z]+)(\s*\|[^)]*)?\)\s.*)"};
  std::vector<std::string> commands;
  bool inside = false;
  for (const auto& line : dev.lines) {
    std::smatch m;
    if (line.starts_with("case \"$verb\" in")) inside = true;
    if (inside && std::regex_match(line, m, branch)) commands.push_back(m[1]);
  }
  return commands;
}

std::vector<std::string> read_verbs(const source& list) {
  static const std::regex entry{R"re(TROUPE_VERB\((\w+),.*)re"};
  std::vector<std::string> verbs;
  for (const auto& line : list.lines)
    if (std::smatch m; std::regex_match(line, m, entry)) verbs.push_back(m[1]);
  return verbs;
}

}  // namespace troupe::tidy
