#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gpu/worker/python_device.hpp"
#include "messages/base/descriptor.hpp"

namespace troupe::test {

/// A worker's side of a connection, for what no honest worker would send.
class scripted_peer {
 public:
  scripted_peer(const std::string& path, std::string token);

  struct request {
    gpu::python::request_header header;
    std::string body;
    descriptor file;  // that came along
  };
  /// kind stop: the node has closed the connection.
  request receive();
  void send(const std::string& bytes);
  void reply(const gpu::python::reply_header& h, const std::string& body = {});
  /// An answer without an output.
  void done(const request& to, const std::string& body = {});

  void hello();
  /// Answers everything up to the start like a worker of one layer with `parameters`. Returns the
  /// first region, which has its gradients.
  descriptor start(std::uint64_t parameters = 4);
  /// Receives until there is something else than a region.
  request operation();

 private:
  descriptor socket_;
  std::string token_;
};

/// Runs the script on a thread, in place of a process. `killed`: counts calls of kill().
gpu::worker_starter scripted(std::function<void(scripted_peer&)> script, int* killed = nullptr);

}  // namespace troupe::test
