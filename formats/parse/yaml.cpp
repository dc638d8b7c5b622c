#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <sstream>

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
    return failure(std::max(e.mark.line, 0) + 1, "not valid YAML: " + e.msg);
  } catch (const std::exception& e) {
    return failure(0, std::string{"not valid YAML: "} + e.what());
  }
  // Only comments, or the single word null.
  if (h.tree.root.what == value::kind::nothing) return failure(0, "the file is empty");
  return std::move(h.tree.root);
}

}  // namespace troupe::formats
