#include "wire_page.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>

#include "messages/codec/shape.hpp"
#include "messages/wire/message.hpp"
#include "messages/wire/task_kind.hpp"
#include "source_comments.hpp"

namespace troupe::testing {
namespace {

/// The messages of a section, which are those of one part of the headers.
struct page_section {
  std::string title;
  std::vector<std::string> files;
};
const std::vector<page_section> sections{
    {"Greetings and credit", {"session.hpp"}},
    {"Requests and replies", {"client.hpp"}},
    {"Between hosts", {"work.hpp"}},
    {"Training", {"stage.hpp"}},
    {"Serving", {"generation.hpp", "prefill.hpp", "serving_leases.hpp"}}};

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

/// "docs/x.md" as a link from a page in docs/.
std::string linked(const std::string& text) {
  static const std::regex page{R"(docs/([a-z_/]+\.md))"};
  return std::regex_replace(text, page, "[$1]($1)");
}

/// A paragraph, in lines as long as those of the other pages.
std::string paragraph(const std::string& text) {
  constexpr std::size_t longest = 110;
  std::istringstream in{linked(text)};
  std::string out, line;
  for (std::string word; in >> word;) {
    if (!line.empty() && line.size() + 1 + word.size() > longest)
      out += std::exchange(line, "") + "\n";
    line += (line.empty() ? "" : " ") + word;
  }
  return line.empty() ? "" : out + line + "\n\n";
}

std::string cell(const std::string& text) {
  return std::regex_replace(linked(text), std::regex{R"(\|)"}, "\\|");
}

class writer {
 public:
  writer(const source_comments& comments, std::string& problems)
      : comments_{comments}, problems_{problems} {}

  template <class... T>
  void messages(const std::variant<T...>*) {
    ((messages_[type_id<T>] = {file_of<T>(),
                               record<T>("### " + std::to_string(type_id<T>) + " ", true)}),
     ...);
  }

  template <class... T>
  void entries(const std::variant<T...>*) {
    std::size_t i = 0;
    ((entries_ += record<T>("### entry " + std::to_string(i++) + " ", true)), ...);
  }

  std::string page() const {
    std::string out;
    for (const auto& s : sections) {
      out += "## " + s.title + "\n\n" + paragraph(comments_.introductions.at(s.files.front()));
      for (const auto& [_, m] : messages_)
        if (std::ranges::count(s.files, m.file) > 0) out += m.text;
    }
    out += "## The journal\n\n" + paragraph(comments_.introductions.at("journal.hpp")) + entries_;
    out += "## Records\n\n";
    for (const auto& [_, text] : records_) out += text;
    out += "## Enums\n\n";
    for (const auto& [_, text] : enums_) out += text;
    return out;
  }

 private:
  struct message_text {
    std::string file, text;
  };

  template <class T>
  std::string file_of() {
    const auto found = comments_.records.find(page_name<T>());
    return found == comments_.records.end() ? "" : found->second.file;
  }

  template <shape::record T>
  std::string record(const std::string& title, bool has_text) {
    const auto name = page_name<T>();
    const auto found = comments_.records.find(name);
    if (found == comments_.records.end() || found->second.fields.size() != shape::field_count<T>) {
      problems_ += name + ": its header was not understood\n";
      return "";
    }
    const auto& r = found->second;
    if (has_text && r.text.empty()) problems_ += name + ": no comment above the struct\n";
    auto out = title + name + "\n\n" + paragraph(r.text) +
               "| # | field | type | meaning |\n|---|---|---|---|\n";
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (row<shape::field_type<T, I>>(out, r, I, I >= shape::required_fields<T>), ...);
    }
    (std::make_index_sequence<shape::field_count<T>>());
    return out + "\n";
  }

  template <class T>
  void row(std::string& out, const commented_record& r, std::size_t number, bool added_later) {
    const auto& field = r.fields[number];
    const auto meaning = r.meanings.find(field);
    out += "| " + std::to_string(number) + (added_later ? "*" : "") + " | `" + field + "` | `" +
           page_name<T>() + "` | " + (meaning == r.meanings.end() ? "" : cell(meaning->second)) +
           " |\n";
    follow<T>();
  }

  /// Adds the sections of the types that a field leads to.
  template <class T>
  void follow() {
    if constexpr (shape::is_vector<T> || shape::is_optional<T>) {
      follow<typename T::value_type>();
    } else if constexpr (shape::is_map<T>) {
      follow<typename T::mapped_type>();
    } else if constexpr (shape::record<T> && type_id<T> != 0) {  // it has a section
    } else if constexpr (shape::record<T>) {
      if (is_entry<T>(static_cast<const journal_entry*>(nullptr))) return;
      const auto name = page_name<T>();
      if (records_.emplace(name, "").second) records_[name] = record<T>("### ", false);
    } else if constexpr (std::is_enum_v<T>) {
      enumeration<T>();
    }
  }

  template <class T, class... E>
  static constexpr bool is_entry(const std::variant<E...>*) {
    return (std::is_same_v<T, E> || ...);
  }

  template <class T>
  void enumeration() {
    const auto name = page_name<T>();
    const auto found = comments_.enums.find(name);
    if (found == comments_.enums.end() || found->second.size() != shape::enum_count<T>) {
      problems_ += name + ": its header was not understood\n";
      return;
    }
    auto out = "### " + name + "\n\n| value | name | meaning |\n|---|---|---|\n";
    for (std::size_t i = 0; i < found->second.size(); ++i) {
      auto shown = found->second[i].first;
      if constexpr (requires(T e) { to_string(e); }) shown = to_string(static_cast<T>(i));
      out +=
          "| " + std::to_string(i) + " | " + shown + " | " + cell(found->second[i].second) + " |\n";
    }
    enums_[name] = out + "\n";
  }

  const source_comments& comments_;
  std::string& problems_;
  std::map<std::uint16_t, message_text> messages_;
  std::string entries_;
  std::map<std::string, std::string> records_, enums_;
};

/// The numbers of timed_task::what, which are no enum on the wire.
std::string task_numbers() {
  std::string all = ": ";
  for (std::size_t k = 0; k < task_kinds.size(); ++k)
    all += (k > 0 ? ", " : "") + std::to_string(k) + " " + std::string{task_kinds[k].name};
  return all;
}

}  // namespace

std::string wire_reference(const std::string& messages_folder, std::string& problems) {
  source_comments comments;
  for (const auto& f : std::filesystem::recursive_directory_iterator{messages_folder}) {
    if (f.path().extension() != ".hpp") continue;
    std::ifstream in{f.path()};
    comments.read(f.path().filename(), {std::istreambuf_iterator<char>{in}, {}});
  }
  comments.records["timed_task"].meanings["what"] += task_numbers();
  writer w{comments, problems};
  w.messages(static_cast<const message*>(nullptr));
  w.entries(static_cast<const journal_entry*>(nullptr));
  return w.page();
}

}  // namespace troupe::testing
