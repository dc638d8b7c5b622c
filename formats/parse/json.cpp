#include <iterator>
#include <nlohmann/json.hpp>

#include "formats/parse/tree_builder.hpp"

namespace troupe::formats {

namespace {

/// The parser's position. After a number it has read one character ahead, so a line counts only
/// from its first character that is not a space.
// nlohmann's parser gives byte offsets and no lines, and its values keep neither; so the input is
// an iterator that counts lines while the parser reads, and a SAX handler builds the same tree as
// for YAML.
struct position {
  int line = 1, solid_line = 1;
};

class counting_iterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  counting_iterator(const char* at, position* where) : at_(at), where_(where) {}
  reference operator*() const { return *at_; }
  counting_iterator& operator++() {
    if (*at_ == '\n')
      ++where_->line;
    else if (*at_ != ' ' && *at_ != '\t' && *at_ != '\r')
      where_->solid_line = where_->line;
    ++at_;
    return *this;
  }
  counting_iterator operator++(int) {
    auto before = *this;
    ++*this;
    return before;
  }
  bool operator==(const counting_iterator& other) const { return at_ == other.at_; }
  bool operator!=(const counting_iterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  position* where_;
};

/// Builds the tree of a document, or gives each item of its outermost list to a function.
// For lists that are larger than the tree's limits (Philly's log has 117,000 jobs): only one item
// is in memory at a time, and the limits apply to each.
class json_handler {
 public:
  using json = nlohmann::json;
  using item_function = std::function<bool(const value&)>;
  explicit json_handler(const position& where, const item_function* each = nullptr)
      : where_(where), each_(each) {}

  tree_builder tree;
  bool stopped = false;

  bool null() { return leaf(value::kind::nothing, "", false); }
  bool boolean(bool v) { return leaf(value::kind::scalar, v ? "true" : "false", false); }
  bool number_integer(json::number_integer_t v) { return number(fmt::format("{}", v)); }
  bool number_unsigned(json::number_unsigned_t v) { return number(fmt::format("{}", v)); }
  bool number_float(json::number_float_t, const std::string& text) { return number(text); }
  bool string(std::string& v) { return leaf(value::kind::scalar, v, true); }
  bool binary(json::binary_t&) { return false; }
  bool start_object(std::size_t) { return begin(value::kind::map); }
  bool key(std::string& v) { return tree.key(v, line()); }
  bool end_object() { return end(); }
  bool start_array(std::size_t) { return begin(value::kind::list); }
  bool end_array() { return end(); }
  bool parse_error(std::size_t, const std::string& token, const nlohmann::detail::exception&) {
    return tree.refuse(where_.line, "not valid JSON near '{}'", shown(token));
  }

 private:
  int line() const { return where_.solid_line; }
  bool number(std::string text) { return leaf(value::kind::scalar, std::move(text), false); }
  bool begin(value::kind what) {
    const bool outermost = depth_++ == 0;
    if (!each_ || !outermost) return tree.begin(what, line());
    return what == value::kind::list || tree.refuse(line(), "expected a list");
  }
  bool leaf(value::kind what, std::string text, bool quoted) {
    if (each_ && depth_ == 0) return tree.refuse(line(), "expected a list");
    return tree.leaf(what, std::move(text), quoted, line()) && give();
  }
  bool end() {
    if (--depth_ == 0 && each_) return true;
    return tree.end() && give();
  }
  // `each` may stop the parse, which is no error.
  bool give() {
    if (!each_ || depth_ > 1) return true;
    stopped = !(*each_)(tree.root);
    tree = {};
    return !stopped;
  }

  const position& where_;
  const item_function* each_;
  std::size_t depth_ = 0;  // of the outermost list: 1
};

// Integers beyond 64 bits arrive as floating point, with their text.
expected<void> parse(const std::string& file, std::string_view text, position& where,
                     json_handler& h) {
  try {
    const bool read =
        nlohmann::json::sax_parse(counting_iterator{text.data(), &where},
                                  counting_iterator{text.data() + text.size(), &where}, &h);
    if (read || h.stopped) return {};
  } catch (const std::exception& e) {
    return refuse(complaint(file, where.line, "", std::string{"not valid JSON: "} + e.what()));
  }
  const auto& problem = h.tree.problem;
  return refuse(complaint(file, h.tree.line, "", problem.empty() ? "not valid JSON" : problem));
}

}  // namespace

expected<void> for_each_in_json_list(const std::string& file, std::string_view text,
                                     const std::function<bool(const value&)>& each) {
  position where;
  json_handler h{where, &each};
  return parse(file, text, where, h);
}

expected<value> parse_json(const std::string& file, const std::string& text) {
  position where;
  json_handler h{where};
  return parse(file, text, where, h).map([&] { return std::move(h.tree.root); });
}

}  // namespace troupe::formats
