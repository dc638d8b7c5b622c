#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/options/host_options.hpp"
#include "cli/output/output.hpp"
#include "web/http/http_server.hpp"
#include "web/openai/service.hpp"

namespace troupe::cli {

struct front_server_options {
  host_options host;
  std::string name;                            // in the cluster file's `fronts`
  std::string at;                              // where it listens for HTTP; empty: as in the file
  int port = -1;                               // -1: as in the file
  std::string api_keys;                        // file
  std::map<std::string, std::string> folders;  // of models' files, instead of the decoders'
  std::vector<std::string> origins;            // of pages that may read answers in a browser
  double grace_s = 30;                         // for answers that have begun, after a signal
  web::http_limits limits{};
  bool logs = false;  // a line for each request
};

/// Runs a front of a cluster with OpenAI's API until it is stopped. Models are offered as decoders
/// announce them. Writes its URL into the file `url` of its state directory.
int run_front(output& out, front_server_options options);

}  // namespace troupe::cli
