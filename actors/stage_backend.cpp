#include "actors/stage_backend.hpp"
namespace troupe::actors {
expected<stage_backend> make_backend(const stage_setup&) {
  return refuse(reason::kind::invalid, "not yet");
}
std::uint64_t newest_saved(const std::string&) {
  return 0;
}
std::string checkpoint_path(const std::string& d, std::uint64_t) {
  return d;
}
expected<void> complete_checkpoint(const std::vector<stage_setup>&, std::uint64_t) {
  return {};
}
}  // namespace troupe::actors
