#pragma once

#include <span>
#include <string_view>

namespace troupe::web {

/// A file of the dashboard's page, as the program has it: web/page/, put there by web/embed.cmake.
struct page_file {
  std::string_view path, content_type, text;
};

std::span<const page_file> page_files();

}  // namespace troupe::web
