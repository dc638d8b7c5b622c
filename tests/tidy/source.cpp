#include "tidy/source.hpp"

#include <cctype>

namespace troupe::tidy {

namespace {

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const auto end = text.find('\n');
    lines.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

/// Walks C++ once, copying what is code; what is not becomes nothing, but for newlines.
class stripper {
 public:
  explicit stripper(std::string_view text) : text_{text} {}

  std::string run() {
    while (at_ < text_.size()) step();
    return std::move(out_);
  }

 private:
  void step() {
    if (starts("//")) {
      skip_to("\n", 0);
    } else if (starts("/*")) {
      skip_to("*/", 2);
    } else if (starts("R\"")) {
      const auto open = text_.find('(', at_);
      const auto mark = ")" + std::string{text_.substr(at_ + 2, open - at_ - 2)} + "\"";
      at_ = open;
      out_ += "\"\"";
      skip_to(mark, mark.size());
    } else if (text_[at_] == '`') {  // of JavaScript
      ++at_;
      out_ += "``";
      skip_to("`", 1);
    } else if (text_[at_] == '"' && !in_include()) {
      literal('"');
    } else if (text_[at_] == '\'' && !(at_ > 0 && std::isalnum(byte(at_ - 1)))) {
      literal('\'');
    } else {
      out_ += text_[at_++];
    }
  }

  /// An include's "path" stays: rules look at it.
  bool in_include() const {
    const auto start = out_.rfind('\n') + 1;
    return out_.compare(start, 8, "#include") == 0;
  }

  void literal(char quote) {
    out_ += quote;
    for (++at_; at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n'; ++at_)
      if (text_[at_] == '\\') ++at_;
    out_ += quote;
    if (at_ < text_.size() && text_[at_] == quote) ++at_;
  }

  void skip_to(std::string_view mark, std::size_t and_past) {
    const auto end = text_.find(mark, at_);
    const auto stop = end == std::string_view::npos ? text_.size() : end + and_past;
    for (; at_ < stop; ++at_)
      if (text_[at_] == '\n') out_ += '\n';
  }

  bool starts(std::string_view mark) const { return text_.substr(at_).starts_with(mark); }
  int byte(std::size_t i) const { return static_cast<unsigned char>(text_[i]); }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

bool source::is_header() const {
  return path.ends_with(".hpp");
}

bool source::is_code() const {
  return is_cpp() || path.ends_with(".py") || path.ends_with(".js");
}

bool source::is_build_file() const {
  return path.ends_with(".cmake") || path.ends_with("CMakeLists.txt");
}

bool source::is_cpp() const {
  return is_header() || path.ends_with(".cpp") || path.ends_with(".cu");
}

source read_source(std::string path, std::string_view text) {
  source s{std::move(path), split_lines(text), {}};
  s.code = s.is_cpp() || s.path.ends_with(".js") ? split_lines(stripper{text}.run()) : s.lines;
  s.code.resize(s.lines.size());
  return s;
}

}  // namespace troupe::tidy
