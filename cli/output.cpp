#include "cli/output.hpp"

#include <unistd.h>

namespace troupe::cli {

void output::document(const json& d) const {
  // A name with bytes that are not UTF-8 must not cost the reader the whole document.
  if (json_) write(stdout, d.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

int output::no(std::string_view why) const {
  note("troupe: {}", why);
  return exit_no;
}

int output::bad(std::string_view why) const {
  note("troupe: {}", why);
  document({{"error", why}});
  return exit_bad;
}

bool on_terminal() {
  return isatty(STDERR_FILENO) != 0;
}

}  // namespace troupe::cli
