#include "web/report/report_page.hpp"

#include <string_view>

#include "web/dashboard/dashboard_page.hpp"

namespace troupe::web {

namespace {

std::string_view text_of(std::string_view path) {
  for (const auto& f : page_files())
    if (f.path == path) return f.text;
  return {};
}

/// The modules as one: a page from a disk may not import files, so imports go, and what they name
/// is in the same scope. Modules that are put together have no names in common.
std::string script() {
  std::string all;
  for (const auto* path :
       {"/page/text.js", "/page/dom.js", "/page/chart.js", "/page/timeline.js", "report/report.js"})
    for (auto rest = text_of(path); !rest.empty();) {
      auto line = rest.substr(0, rest.find('\n') + 1);
      rest.remove_prefix(line.size());
      if (line.starts_with("import ")) continue;
      constexpr std::string_view keyword = "export ";
      if (line.starts_with(keyword)) line.remove_prefix(keyword.size());
      all += line;
    }
  return all;
}

/// '<' could end the element that the data is in, or begin a comment.
std::string embedded(const nlohmann::ordered_json& data) {
  std::string out;
  for (const char c : data.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace))
    c == '<' ? out += "\\u003c" : out += c;
  return out;
}

}  // namespace

std::string report_page(const nlohmann::ordered_json& data) {
  std::string page;
  auto rest = text_of("report/report.html");
  const auto put = [&](std::string_view mark, const std::string& text) {
    const auto at = rest.find(mark);
    page += rest.substr(0, at);
    page += text;
    rest.remove_prefix(at + mark.size());
  };
  put("@style@",
      std::string{text_of("/page/style.css")} + std::string{text_of("report/report.css")});
  put("@data@", embedded(data));
  put("@script@", script());
  return page.append(rest);
}

}  // namespace troupe::web
