#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace troupe::testing {

/// A struct with TROUPE_FIELDS, as its source describes it.
struct commented_record {
  std::string file;                             // its name
  std::string text;                             // above the struct
  std::vector<std::string> fields;              // in wire order
  std::map<std::string, std::string> meanings;  // by member
};

/// The comments of a module's headers, found line by line: the house's formatting is assumed.
struct source_comments {
  std::map<std::string, std::string> introductions;  // by file: above its namespace
  std::map<std::string, commented_record> records;
  // Enumerators and their meanings, by "record::enum" or "enum".
  std::map<std::string, std::vector<std::pair<std::string, std::string>>> enums;

  /// Adds a header's.
  void read(const std::string& file_name, const std::string& source);
};

}  // namespace troupe::testing
