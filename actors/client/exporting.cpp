#include "actors/client/exporting.hpp"

namespace troupe::actors {

expected<exported> export_model(const export_wish& w) {
  return gpu::export_model(w);
}

}  // namespace troupe::actors
