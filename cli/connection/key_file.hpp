#pragma once

#include <optional>
#include <string>

#include "web/openai/service.hpp"

namespace troupe::cli {

/// The file of API keys of a server, which is read again after each SIGHUP. One at a time.
class key_file {
 public:
  /// An empty path: everybody may ask, which is refused for a host that is not loopback. `option`:
  /// its name, for the sentence.
  static expected<std::optional<web::api_keys>> read(const std::string& path,
                                                     const std::string& host,
                                                     const std::string& option);

  /// From here on SIGHUP does not end the program.
  key_file(std::string path, web::service& service);
  ~key_file();
  key_file(const key_file&) = delete;
  key_file& operator=(const key_file&) = delete;

  /// Call now and then. A file that cannot be read changes nothing but the log. True: SIGHUP has
  /// come since the last call.
  bool look();

 private:
  void read_again();

  const std::string path_;
  web::service& service_;
};

}  // namespace troupe::cli
