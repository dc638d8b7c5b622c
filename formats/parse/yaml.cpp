#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <sstream>
#include <string_view>

#include "formats/parse/tree_builder.hpp"

namespace troupe::formats {

namespace {

// YAML is read as events and not as yaml-cpp's nodes, for two reasons: a node of an alias refers to
// another one, so a small file can expand to billions of values, and nodes accept duplicate keys.
// Files need only maps, lists and scalars of YAML. Refused with a sentence: anchors, aliases and
// merge keys, tags, a second document. A plain scalar stays text here; the reader of a key decides
// whether it is a number or a boolean, so that `no`, `on` and 1_000 have no surprising types.
/// Stops the parser; never leaves this file.
struct stop_parsing {};

class yaml_handler final : public YAML::EventHandler {
 public:
  tree_builder tree;
  bool seen_document = false;

  void OnDocumentStart(const YAML::Mark& m) override {
    if (seen_document)
      check(tree.refuse(line(m), "second document; expected one document per file"));
    seen_document = true;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& m, YAML::anchor_t anchor) override {
    plain(m, anchor);
    check(tree.leaf(value::kind::nothing, "", false, line(m)));
  }
  void OnAlias(const YAML::Mark& m, YAML::anchor_t) override { plain(m, 1); }
  void OnScalar(const YAML::Mark& m, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    plain(m, anchor, tag);
    // yaml-cpp gives quoted scalars the tag "!", plain ones "?".
    const bool quoted = tag == "!";
    const bool nothing = !quoted && (text.empty() || text == "~" || text == "null");
    check(tree.leaf(nothing ? value::kind::nothing : value::kind::scalar, text, quoted, line(m)));
  }
  void OnSequenceStart(const YAML::Mark& m, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    plain(m, anchor, tag);
    check(tree.begin(value::kind::list, line(m)));
  }
  void OnSequenceEnd() override { check(tree.end()); }
  void OnMapStart(const YAML::Mark& m, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    plain(m, anchor, tag);
    check(tree.begin(value::kind::map, line(m)));
  }
  void OnMapEnd() override { check(tree.end()); }

 private:
  // A mark may be invalid (line -1) for values that the file omits.
  static int line(const YAML::Mark& m) { return std::max(m.line, 0) + 1; }

  // An exception, as yaml-cpp's event interface has no other way to stop the parser.
  static void check(bool good) {
    if (!good) throw stop_parsing{};
  }
  void plain(const YAML::Mark& m, YAML::anchor_t anchor, const std::string& tag = "?") {
    if (anchor != YAML::NullAnchor)
      check(tree.refuse(line(m),
                        "anchors and aliases (& and *) are not supported; repeat the value"));
    if (!tag.empty() && tag != "?" && tag != "!")
      check(tree.refuse(line(m), "tags (!) are not supported"));
  }
};

std::string_view line_of(std::string_view text, int number) {
  for (int at = 1; at < number && !text.empty(); ++at)
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  return text.substr(0, text.find('\n'));
}

std::size_t indent_of(std::string_view line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

bool is_blank(std::string_view line) {
  const auto at = indent_of(line);
  return at == line.size() || line[at] == '#';
}

/// The usual mistakes in words of files; the parser's words are those of a grammar. Empty: another
/// mistake.
std::string mistake_in(std::string_view text, int number) {
  const auto line = line_of(text, number);
  const auto indent = indent_of(line);
  if (indent < line.size() && line[indent] == '\t')
    return "the line is indented with a tab, expected spaces";
  auto before = number - 1;
  while (before > 0 && is_blank(line_of(text, before))) --before;
  if (before == 0 || is_blank(line)) return {};
  const auto above = line_of(text, before);
  const auto end = above.find_last_not_of(" \r");
  // Behind "key:" a deeper line begins; behind "key: value" none does.
  if (indent > indent_of(above) && end != above.npos && above[end] != ':' &&
      above.find(": ") != above.npos)
    return fmt::format(
        "the line is indented by {}, expected {} as the key above it, which has a value already",
        indent, indent_of(above));
  if (const auto colon = line.find(": ");
      colon != line.npos && line.find(": ", colon + 1) != line.npos)
    return "found ': ' twice in a line, expected once; text with a colon needs quotes";
  if (indent < indent_of(above) && indent > 0)
    return fmt::format("the line is indented by {}, as no line above it that it could belong to",
                       indent);
  return {};
}

}  // namespace

expected<value> parse_yaml(const std::string& file, const std::string& text) {
  yaml_handler h;
  const auto failure = [&](int line, const std::string& problem) {
    return refuse(complaint(file, line, "", problem));
  };
  try {
    std::istringstream in{text};
    YAML::Parser parser{in};
    while (parser.HandleNextDocument(h)) {
    }
  } catch (const stop_parsing&) {
    return failure(h.tree.line, h.tree.problem);
  } catch (const YAML::Exception& e) {
    const auto line = std::max(e.mark.line, 0) + 1;
    const auto mistake = mistake_in(text, line);
    return failure(line, "not valid YAML: " + (mistake.empty() ? e.msg : mistake));
  } catch (const std::exception& e) {
    return failure(0, std::string{"not valid YAML: "} + e.what());
  }
  // Only comments, or the single word null.
  if (h.tree.root.what == value::kind::nothing) return failure(0, "the file is empty");
  return std::move(h.tree.root);
}

}  // namespace troupe::formats
