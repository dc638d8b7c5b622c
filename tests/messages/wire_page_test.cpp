#include <catch2/catch.hpp>

#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string_view>

#include "golden.hpp"
#include "harness/source_dir.hpp"
#include "messages/codec/shape.hpp"
#include "messages/wire/task_kind.hpp"

// docs/wire.md documents the format for authors of other clients; it is compared with the code.

using namespace troupe;
using namespace troupe::testing;

namespace {

/// A type's name on the page.
template <class T>
std::string page_name() {
  if constexpr (std::is_same_v<T, bool>) {
    return "bool";
  } else if constexpr (std::is_same_v<T, double>) {
    return "f64";
  } else if constexpr (std::is_same_v<T, std::string>) {
    return "str";
  } else if constexpr (shape::is_integer<T>) {
    return (std::is_signed_v<T> ? "i" : "u") + std::to_string(sizeof(T) * 8);
  } else if constexpr (shape::is_vector<T>) {
    return "[" + page_name<typename T::value_type>() + "]";
  } else if constexpr (shape::is_map<T>) {
    return "{" + page_name<typename T::key_type>() + ": " + page_name<typename T::mapped_type>() +
           "}";
  } else if constexpr (shape::is_optional<T>) {
    return page_name<typename T::value_type>() + "?";
  } else {  // "... [with T = troupe::reason::kind; ...]"
    const std::string_view all = __PRETTY_FUNCTION__;
    const std::string_view mark = "T = troupe::";
    const auto start = all.find(mark) + mark.size();
    return std::string{all.substr(start, all.find_first_of(";]", start) - start)};
  }
}

/// A journal entry's number; -1: T is not an entry.
template <class T, std::size_t I = 0>
constexpr int entry_number() {
  if constexpr (I == std::variant_size_v<journal_entry>)
    return -1;
  else if constexpr (std::is_same_v<T, std::variant_alternative_t<I, journal_entry>>)
    return static_cast<int>(I);
  else
    return entry_number<T, I + 1>();
}

/// The rows of each section's first table, by the section's title, without the two lines above
/// them.
class page {
 public:
  explicit page(const std::string& path) {
    std::ifstream in{path};
    std::string title;
    for (std::string line; std::getline(in, line); text_ += line + "\n") {
      if (line.starts_with("#")) title = line.substr(line.find(' ') + 1);
      if (line.starts_with("|")) rows_[title].push_back(cells(line));
    }
    for (auto& [_, rows] : rows_) rows.erase(rows.begin(), rows.begin() + 2);
  }

  const std::string& text() const { return text_; }
  const std::vector<std::vector<std::string>>& rows(const std::string& title) const {
    static const std::vector<std::vector<std::string>> none;
    const auto found = rows_.find(title);
    return found == rows_.end() ? none : found->second;
  }
  bool has(const std::string& title) const { return rows_.contains(title); }
  std::vector<std::string> titles() const {
    std::vector<std::string> all;
    for (const auto& [title, _] : rows_) all.push_back(title);
    return all;
  }

 private:
  static std::vector<std::string> cells(const std::string& line) {
    std::vector<std::string> all;
    std::istringstream in{line.substr(1)};
    for (std::string cell; std::getline(in, cell, '|');) {
      std::erase(cell, '`');
      const auto first = cell.find_first_not_of(' ');
      const auto last = cell.find_last_not_of(' ');
      all.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
    }
    return all;
  }

  std::string text_;
  std::map<std::string, std::vector<std::vector<std::string>>> rows_;
};

/// Walks over all types that a type leads to and compares each with its section, once.
class checker {
 public:
  explicit checker(const page& p) : page_{p} {}

  template <shape::record T>
  void record(const std::string& title) {
    if (!seen_.insert(title).second) return;
    INFO("section '" << title << "' of docs/wire.md");
    REQUIRE(page_.has(title));
    const auto& rows = page_.rows(title);
    REQUIRE(rows.size() == shape::field_count<T>);
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (field<shape::field_type<T, I>>(rows[I], I, I >= shape::required_fields<T>), ...);
    }
    (std::make_index_sequence<shape::field_count<T>>());
  }

  const std::set<std::string>& seen() const { return seen_; }

 private:
  template <class T>
  void field(const std::vector<std::string>& row, std::size_t number, bool added_later) {
    REQUIRE(row.size() >= 3);
    CHECK(row[0] == std::to_string(number) + (added_later ? "*" : ""));
    INFO("field '" << row[1] << "'");
    CHECK(row[2] == page_name<T>());
    follow<T>();
  }

  template <class T>
  void follow() {
    if constexpr (shape::is_vector<T> || shape::is_optional<T>) {
      follow<typename T::value_type>();
    } else if constexpr (shape::is_map<T>) {
      follow<typename T::mapped_type>();
    } else if constexpr (shape::record<T> && type_id<T> != 0) {
      record<T>(std::to_string(type_id<T>) + " " + page_name<T>());
    } else if constexpr (shape::record<T> && entry_number<T>() >= 0) {
      record<T>("entry " + std::to_string(entry_number<T>()) + " " + page_name<T>());
    } else if constexpr (shape::record<T>) {
      record<T>(page_name<T>());
    } else if constexpr (std::is_enum_v<T>) {
      if (!seen_.insert(page_name<T>()).second) return;
      INFO("section '" << page_name<T>() << "' of docs/wire.md");
      const auto& rows = page_.rows(page_name<T>());
      REQUIRE(rows.size() == shape::enum_count<T>);
      for (std::size_t i = 0; i < rows.size(); ++i) CHECK(rows[i].at(0) == std::to_string(i));
      names<T>(rows);
    }
  }

  /// Where the code has names for the values, the page has the same.
  template <class T>
  void names(const std::vector<std::vector<std::string>>& rows) {
    if constexpr (requires(T e) { to_string(e); })
      for (std::size_t i = 0; i < rows.size(); ++i)
        CHECK(rows[i].at(1) == to_string(static_cast<T>(i)));
  }

  const page& page_;
  std::set<std::string> seen_;
};

const page& wire_page() {
  static const page p{troupe::test::source_dir() + "/docs/wire.md"};
  return p;
}

template <class... T>
void check_messages(checker& c, const std::variant<T...>*) {
  (c.record<T>(std::to_string(type_id<T>) + " " + page_name<T>()), ...);
}

template <class... T>
void check_entries(checker& c, const std::variant<T...>*) {
  std::size_t i = 0;
  (c.record<T>("entry " + std::to_string(i++) + " " + page_name<T>()), ...);
}

}  // namespace

TEST_CASE("docs/wire.md lists every message, record and enum with the fields that the code has") {
  checker c{wire_page()};
  check_messages(c, static_cast<const message*>(nullptr));
  check_entries(c, static_cast<const journal_entry*>(nullptr));
  // And nothing else: other tables of the page are in these sections.
  const std::set<std::string> others{"Connections", "Values", "Worked examples"};
  for (const auto& title : wire_page().titles()) {
    INFO("section '" << title << "' of docs/wire.md");
    CHECK((c.seen().contains(title) || others.contains(title)));
  }
}

TEST_CASE("docs/wire.md numbers the kinds of tasks as the code does") {
  const auto& rows = wire_page().rows("timed_task");
  REQUIRE(!rows.empty());
  const auto& meaning = rows.front().back();
  for (std::size_t k = 0; k < task_kinds.size(); ++k) {
    INFO(task_kinds[k].name);
    CHECK(meaning.find(std::to_string(k) + " " + std::string{task_kinds[k].name}) !=
          std::string::npos);
  }
  CHECK(meaning.find(std::to_string(task_kinds.size()) + " ") == std::string::npos);
}

TEST_CASE("docs/wire.md shows the bytes that the code writes") {
  std::string text = wire_page().text();
  for (char& ch : text)
    if (ch == '\n') ch = ' ';
  for (const auto& g : golden_frames()) {
    INFO(g.name);
    CHECK(text.find(g.hex) != std::string::npos);
  }
  for (const auto& g : golden_entries()) {
    INFO(g.name);
    CHECK(text.find(g.hex) != std::string::npos);
  }
}

TEST_CASE("docs/wire.md names the protocol version of the code") {
  CHECK(wire_page().text().find("version " + std::to_string(protocol_version)) !=
        std::string::npos);
}
