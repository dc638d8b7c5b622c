#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::test {

/// An answer as it was on the wire.
struct raw_answer {
  int status = 0;                             // 0: the connection ended before it
  std::map<std::string, std::string> fields;  // names in lower case
  std::string body;                           // without the framing of chunks
  bool whole = false;                         // it has arrived to its end

  nlohmann::json document() const { return nlohmann::json::parse(body); }
  /// The documents of a stream's events, without [DONE].
  std::vector<nlohmann::json> events() const;
};

/// A connection to 127.0.0.1, without any HTTP of its own. Waits 30 s at most.
class raw_client {
 public:
  explicit raw_client(std::uint16_t port);
  ~raw_client();
  raw_client(const raw_client&) = delete;
  raw_client& operator=(const raw_client&) = delete;

  /// false: the peer has closed it.
  bool send(std::string_view bytes);
  /// head: the answer has no body, whatever its Content-Length.
  raw_answer answer(bool head = false);
  /// Waits for that text; it, and what follows, is still to be read.
  bool wait_for(std::string_view text);
  /// Has the peer closed it, once all is read?
  bool ended();
  /// Closes it so that the peer sees it at once.
  void reset();

 private:
  bool more();
  bool line(std::string& to);
  bool bytes(std::size_t n, std::string& to);

  int socket_ = -1;
  std::string buffer_;
};

/// A request with a body.
std::string post(const std::string& path, const std::string& body, const std::string& fields = {});
std::string get(const std::string& path, const std::string& fields = {});

}  // namespace troupe::test
