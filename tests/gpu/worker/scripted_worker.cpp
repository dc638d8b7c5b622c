#include "gpu/worker/scripted_worker.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <cstring>

namespace troupe::test {

using gpu::python::message_kind;
using gpu::python::reply_header;

scripted_peer::scripted_peer(const std::string& path, std::string token)
    : socket_{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)}, token_{std::move(token)} {
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::memcpy(at.sun_path, path.c_str(), path.size() + 1);
  [[maybe_unused]] const int ok =
      ::connect(socket_, reinterpret_cast<const sockaddr*>(&at), sizeof at);
}

scripted_peer::request scripted_peer::receive() {
  request r;
  std::string bytes(gpu::python::max_message_bytes, '\0');
  iovec part{bytes.data(), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr m{};
  m.msg_iov = &part;
  m.msg_iovlen = 1;
  m.msg_control = control;
  m.msg_controllen = sizeof control;
  const auto n = ::recvmsg(socket_, &m, MSG_CMSG_CLOEXEC);
  if (n < static_cast<ssize_t>(sizeof r.header)) return r;
  std::memcpy(&r.header, bytes.data(), sizeof r.header);
  r.body = bytes.substr(sizeof r.header, static_cast<std::size_t>(n) - sizeof r.header);
  if (const auto* c = CMSG_FIRSTHDR(&m); c != nullptr && c->cmsg_type == SCM_RIGHTS) {
    int file = -1;
    std::memcpy(&file, CMSG_DATA(c), sizeof file);
    r.file = descriptor{file};
  }
  return r;
}

void scripted_peer::send(const std::string& bytes) {
  [[maybe_unused]] const auto n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

void scripted_peer::reply(const reply_header& h, const std::string& body) {
  send(gpu::python::encode(h, body));
}

void scripted_peer::done(const request& to, const std::string& body) {
  reply_header h;
  h.sequence = to.header.sequence;
  reply(h, body);
}

void scripted_peer::hello() {
  reply_header h;
  h.kind = message_kind::hello;
  reply(h, R"({"protocol":2,"token":")" + token_ +
               R"(","package":"0.1.0","python":"3","torch":"1","cuda":"","blas":"","pid":1})");
}

descriptor scripted_peer::start(std::uint64_t parameters) {
  hello();
  done(receive(), R"({"members":[{"layers":[{"name":"Scale","parameter_bytes":4,)"
                  R"("buffer_bytes":0}],"own_parameters":)" +
                      std::to_string(parameters) +
                      R"(,"tied_parameters":0,"optimizer_state_bytes":8,"needs_norm":true}]})");
  auto region = receive();
  done(region);
  done(receive());
  return std::move(region.file);
}

scripted_peer::request scripted_peer::operation() {
  for (;;) {
    auto r = receive();
    if (r.header.kind != message_kind::region) return r;
    done(r);
  }
}

namespace {

class script_process final : public gpu::worker_process {
 public:
  script_process(std::function<void(scripted_peer&)> script, const gpu::worker_launch& what,
                 int* killed)
      : killed_{killed} {
    std::string socket, token;
    for (const auto& [name, value] : what.environment) {
      if (name == "TROUPE_WORKER_SOCKET") socket = value;
      if (name == "TROUPE_WORKER_TOKEN") token = value;
    }
    thread_ = std::thread{[this, script = std::move(script), socket, token] {
      {
        scripted_peer peer{socket, token};
        script(peer);
      }
      over_ = true;
    }};
  }
  ~script_process() override { thread_.join(); }

  void kill() override {
    if (killed_ != nullptr) ++*killed_;
  }
  std::optional<std::string> ended() override {
    if (over_) return "has run out of lines";
    return {};
  }

 private:
  int* killed_;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

}  // namespace

gpu::worker_starter scripted(std::function<void(scripted_peer&)> script, int* killed) {
  return [script = std::move(script), killed](
             const gpu::worker_launch& what) -> expected<std::unique_ptr<gpu::worker_process>> {
    return std::make_unique<script_process>(script, what, killed);
  };
}

}  // namespace troupe::test
