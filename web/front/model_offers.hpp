#pragma once

#include <map>
#include <memory>
#include <string>

#include "actors/serving/front/completions.hpp"
#include "runtime/host/clock.hpp"
#include "runtime/host/shared_cluster.hpp"
#include "web/openai/service.hpp"

namespace troupe::web {

/// Offers the models of a front's decoders, and withdraws those that the controller no longer
/// names. A model is read again if its folder or the hash of its files has changed, and, if it
/// could not be read, after a while. Folders are read by threads of their own, a few at a time,
/// since a network's file system may not answer for hours; those that are still reading at the end
/// are left behind.
class model_offers {
 public:
  /// Folders that are read at a time. Others wait.
  static constexpr std::size_t max_readers = 8;
  static constexpr double retry_s = 30;

  /// c: the host's. folders: of models' files, instead of the decoders'.
  model_offers(actors::completions front, shared_cluster c,
               std::map<std::string, std::string> folders, const runtime::clock& clock,
               service& service);
  ~model_offers();
  model_offers(const model_offers&) = delete;

  /// Compares what is offered with what the front knows. Call it repeatedly; it does not block.
  void look();

 private:
  struct shared;

  const actors::completions front_;
  const std::map<std::string, std::string> folders_;
  const runtime::clock& clock_;
  const std::shared_ptr<shared> shared_;
};

}  // namespace troupe::web
