#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gpu/worker/worker_process.hpp"
#include "gpu/worker/worker_socket.hpp"

namespace troupe::gpu::python {

/// A worker and the connection to it: requests, each with its reply. Once the worker has died or
/// has broken the protocol, it is killed, and all requests fail with the same reason. One thread
/// uses it; close() may come from another one.
class worker_session {
 public:
  worker_session(std::unique_ptr<worker_process> process, worker_connection connection)
      : process_{std::move(process)}, connection_{std::move(connection)} {}

  /// The worker's first message. Fails if it is not the worker that was started.
  expected<worker_hello> greet(std::string_view token, double limit_s);
  /// Sends the request, whose sequence is set here, and returns its last reply. `file`: passed
  /// along; -1: none. An `error` is a reason too, after which the worker may go on,
  /// unless it lacked memory: then it has ended.
  expected<reply> ask(request_header& request, std::string_view body = {}, int file = -1);
  /// Ends the worker, for what it has sent.
  reason violated(const reason& why) { return end(why); }
  /// The request under way fails, and no other begins.
  void close();

 private:
  expected<reply> receive(const request_header& request);
  reason end(const reason& why);
  reason lacked_memory(const reason& why);
  std::string ending();
  std::optional<std::string> wait_for_end(double limit_s);

  std::unique_ptr<worker_process> process_;
  worker_connection connection_;
  std::optional<reason> over_;
  std::string_view doing_ = "its start";  // for errors
  std::uint32_t sequence_ = 0;
  std::atomic<bool> closing_ = false;
};

}  // namespace troupe::gpu::python
