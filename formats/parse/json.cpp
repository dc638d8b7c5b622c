#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

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

class handler {
 public:
  using json = nlohmann::json;
  explicit handler(const position& where) : where_(where) {}
  tree_builder tree;

  bool null() { return leaf(value::kind::nothing, "", false); }
  bool boolean(bool v) { return leaf(value::kind::scalar, v ? "true" : "false", false); }
  bool number_integer(json::number_integer_t v) { return number(fmt::format("{}", v)); }
  bool number_unsigned(json::number_unsigned_t v) { return number(fmt::format("{}", v)); }
  bool number_float(json::number_float_t, const std::string& text) { return number(text); }
  bool string(std::string& v) { return leaf(value::kind::scalar, v, true); }
  bool binary(json::binary_t&) { return false; }
  bool start_object(std::size_t) { return tree.begin(value::kind::map, line()); }
  bool key(std::string& v) { return tree.key(v, line()); }
  bool end_object() { return tree.end(); }
  bool start_array(std::size_t) { return tree.begin(value::kind::list, line()); }
  bool end_array() { return tree.end(); }
  bool parse_error(std::size_t, const std::string& token, const nlohmann::detail::exception&) {
    return tree.refuse(where_.line, fmt::format("not valid JSON near '{}'", shown(token)));
  }

 private:
  int line() const { return where_.solid_line; }
  bool number(std::string text) { return leaf(value::kind::scalar, std::move(text), false); }
  bool leaf(value::kind what, std::string text, bool quoted) {
    return tree.leaf(what, std::move(text), quoted, line());
  }
  const position& where_;
};

/// Gives each item of the outermost list to a function.
// For lists that are larger than the tree's limits (Philly's log has 117,000 jobs): only one item
// is in memory at a time, and the limits apply to each.
class list_handler {
 public:
  using json = nlohmann::json;
  list_handler(const position& where, const std::function<bool(const value&)>& each)
      : where_(where), each_(each) {}

  bool stopped = false;
  int line = 0;
  std::string problem;

  bool null() {
    return leaf([](handler& h) { return h.null(); });
  }
  bool boolean(bool v) {
    return leaf([&](handler& h) { return h.boolean(v); });
  }
  bool number_integer(json::number_integer_t v) {
    return leaf([&](handler& h) { return h.number_integer(v); });
  }
  bool number_unsigned(json::number_unsigned_t v) {
    return leaf([&](handler& h) { return h.number_unsigned(v); });
  }
  bool number_float(json::number_float_t v, const std::string& text) {
    return leaf([&](handler& h) { return h.number_float(v, text); });
  }
  bool string(std::string& v) {
    return leaf([&](handler& h) { return h.string(v); });
  }
  bool binary(json::binary_t&) { return false; }
  bool start_object(std::size_t n) {
    if (depth_ == 0) return no_list();
    return begin([&](handler& h) { return h.start_object(n); });
  }
  bool key(std::string& v) { return item_ && passed(item_->key(v)); }
  bool end_object() {
    return end([](handler& h) { return h.end_object(); });
  }
  bool start_array(std::size_t n) {
    if (depth_ > 0) return begin([&](handler& h) { return h.start_array(n); });
    depth_ = 1;
    return true;
  }
  bool end_array() {
    if (depth_ > 1) return end([](handler& h) { return h.end_array(); });
    depth_ = 0;
    return true;
  }
  bool parse_error(std::size_t, const std::string& token, const nlohmann::detail::exception&) {
    return refuse(where_.line, fmt::format("not valid JSON near '{}'", shown(token)));
  }

 private:
  bool refuse(int at, std::string why) {
    line = at;
    problem = std::move(why);
    return false;
  }
  bool no_list() { return refuse(where_.solid_line, "expected a list"); }
  // An error inside an item is the item's own, at its own line.
  bool passed(bool ok) { return ok || refuse(item_->tree.line, item_->tree.problem); }

  // depth_: 0 before the list, 1 between its items, more inside one.
  template <class F>
  bool begin(F&& f) {
    if (depth_++ == 1) item_.emplace(where_);
    return passed(f(*item_));
  }
  template <class F>
  bool leaf(F&& f) {
    if (depth_ == 0) return no_list();
    if (depth_ == 1) item_.emplace(where_);
    return passed(f(*item_)) && (depth_ > 1 || give());
  }
  template <class F>
  bool end(F&& f) {
    return passed(f(*item_)) && (--depth_ > 1 || give());
  }
  // `each` may stop the parse, which is no error.
  bool give() {
    stopped = !each_(item_->tree.root);
    item_.reset();
    return !stopped;
  }

  const position& where_;
  const std::function<bool(const value&)>& each_;
  int depth_ = 0;
  std::optional<handler> item_;
};

}  // namespace

expected<void> for_each_in_json_list(const std::string& file, std::string_view text,
                                     const std::function<bool(const value&)>& each) {
  position where;
  list_handler h{where, each};
  try {
    const bool read =
        nlohmann::json::sax_parse(counting_iterator{text.data(), &where},
                                  counting_iterator{text.data() + text.size(), &where}, &h);
    if (read || h.stopped) return {};
    return refuse(complaint(file, h.line, "", h.problem.empty() ? "not valid JSON" : h.problem));
  } catch (const std::exception& e) {
    return refuse(complaint(file, where.line, "", std::string{"not valid JSON: "} + e.what()));
  }
}

// Integers beyond 64 bits arrive as floating point, with their text.
expected<value> parse_json(const std::string& file, const std::string& text) {
  position where;
  handler h{where};
  const auto failure = [&](int line, const std::string& problem) {
    return refuse(complaint(file, line, "", problem));
  };
  try {
    const char* first = text.data();
    if (!nlohmann::json::sax_parse(counting_iterator{first, &where},
                                   counting_iterator{first + text.size(), &where}, &h))
      return failure(h.tree.line, h.tree.problem.empty() ? "not valid JSON" : h.tree.problem);
  } catch (const std::exception& e) {
    return failure(where.line, std::string{"not valid JSON: "} + e.what());
  }
  return std::move(h.tree.root);
}

}  // namespace troupe::formats
