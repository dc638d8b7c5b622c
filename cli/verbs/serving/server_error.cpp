#include "cli/verbs/serving/server_error.hpp"

#include "cli/output/output.hpp"

namespace troupe::cli {

namespace {

/// The first text in a value: itself, or that of the keys by which errors have one. Servers put
/// objects and lists of them into each other.
std::string sentence_in(const json& d, int depth = 0) {
  constexpr int max_depth = 4;
  if (d.is_string()) return d.get<std::string>();
  if (depth == max_depth) return {};
  if (d.is_array()) {
    std::string all;
    for (const auto& one : d)
      if (const auto text = sentence_in(one, depth + 1); !text.empty())
        all += (all.empty() ? "" : "; ") + text;
    return all;
  }
  if (!d.is_object()) return {};
  for (const char* key : {"error", "message", "msg", "detail", "error_message", "errors", "title"})
    if (const auto at = d.find(key); at != d.end())
      if (auto text = sentence_in(*at, depth + 1); !text.empty()) return text;
  return {};
}

/// The text of a page, for people.
std::string without_tags(std::string_view page) {
  std::string out;
  bool inside = false;
  for (const char c : page) {
    if (c == '<') inside = true;
    if (!inside) out += c;
    if (c == '>') inside = false, out += ' ';
  }
  return out;
}

std::string on_one_line(std::string_view text) {
  constexpr std::size_t max_bytes = 500;
  std::string out;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\t' || c == '\r' || c == '\n';
    if (!space)
      out += c;
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
    if (out.size() >= max_bytes) return out + " ...";
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

}  // namespace

std::string sentence_of_error(std::string_view body) {
  const auto d = json::parse(body.begin(), body.end(), nullptr, false);
  if (d.is_discarded())
    return on_one_line(body.find("</") == body.npos ? std::string{body} : without_tags(body));
  const auto sentence = sentence_in(d);
  return on_one_line(sentence.empty() ? body : std::string_view{sentence});
}

}  // namespace troupe::cli
