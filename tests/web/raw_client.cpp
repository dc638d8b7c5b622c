#include "web/raw_client.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>

namespace troupe::test {

raw_client::raw_client(std::uint16_t port) : socket_{::socket(AF_INET, SOCK_STREAM, 0)} {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval limit{30, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
    throw std::runtime_error{"connect"};
}

raw_client::~raw_client() {
  if (socket_ >= 0) ::close(socket_);
}

void raw_client::reset() {
  const linger at_once{1, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  ::close(socket_);
  socket_ = -1;
}

bool raw_client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

bool raw_client::more() {
  char some[16 << 10];
  const auto n = ::recv(socket_, some, sizeof some, 0);
  if (n > 0) buffer_.append(some, static_cast<std::size_t>(n));
  return n > 0;
}

bool raw_client::wait_for(std::string_view text) {
  while (buffer_.find(text) == std::string::npos)
    if (!more()) return false;
  return true;
}

bool raw_client::ended() {
  return buffer_.empty() && !more() && buffer_.empty();
}

bool raw_client::line(std::string& to) {
  if (!wait_for("\r\n")) return false;
  const auto end = buffer_.find("\r\n");
  to = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return true;
}

bool raw_client::bytes(std::size_t n, std::string& to) {
  while (buffer_.size() < n)
    if (!more()) return false;
  to += buffer_.substr(0, n);
  buffer_.erase(0, n);
  return true;
}

raw_answer raw_client::answer(bool head) {
  raw_answer a;
  std::string l;
  if (!line(l) || l.size() < 12) return a;
  a.status = std::stoi(l.substr(9, 3));
  while (line(l) && !l.empty()) {
    auto name = l.substr(0, l.find(':'));
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    a.fields[name] = l.substr(std::min(l.size(), l.find(':') + 2));
  }
  if (head || a.status == 204 || a.status == 100) {
    a.whole = true;
  } else if (a.fields.contains("content-length")) {
    a.whole = bytes(std::stoul(a.fields["content-length"]), a.body);
  } else if (a.fields.contains("transfer-encoding")) {
    while (line(l)) {
      const auto n = std::stoul(l, nullptr, 16);
      if (!bytes(n, a.body) || !line(l)) break;
      if (n == 0) {
        a.whole = true;
        break;
      }
    }
  } else {
    while (more()) {
    }
    a.body = std::exchange(buffer_, {});
    a.whole = true;
  }
  return a;
}

std::vector<nlohmann::json> raw_answer::events() const {
  std::vector<nlohmann::json> all;
  for (std::size_t at = 0, end; (end = body.find("\n\n", at)) != std::string::npos; at = end + 2) {
    const auto event = body.substr(at, end - at);
    if (event != "data: [DONE]") all.push_back(nlohmann::json::parse(event.substr(6)));
  }
  return all;
}

std::string post(const std::string& path, const std::string& body, const std::string& fields) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
      "{}\r\n"
      "{}\r\n{}",
      path, body.size(), fields, body);
}

std::string get(const std::string& path, const std::string& fields) {
  return fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", path, fields);
}

}  // namespace troupe::test
