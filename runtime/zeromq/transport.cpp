#include "runtime/zeromq/transport.hpp"

#include <utility>

#include "runtime/zeromq/engine.hpp"

// Keeps ZeroMQ's headers out of transport.hpp: everything is the engine's.

namespace troupe::runtime {

zeromq_transport::zeromq_transport(std::unique_ptr<engine> e) : engine_{std::move(e)} {}
zeromq_transport::~zeromq_transport() = default;

expected<std::shared_ptr<zeromq_transport>> zeromq_transport::open(zeromq_options options) {
  auto e = std::make_unique<engine>(std::move(options));
  if (auto ok = e->open(); !ok) return refuse(ok.error());
  return std::shared_ptr<zeromq_transport>{new zeromq_transport{std::move(e)}};
}

address zeromq_transport::self() const {
  return engine_->self();
}
bool zeromq_transport::send(address to, frame f, std::uint32_t lane) {
  return engine_->send(to, std::move(f), lane);
}
void zeromq_transport::listen(receiver r) {
  engine_->start(std::move(r));
}
void zeromq_transport::begin() {
  engine_->start({});
}
expected<void> zeromq_transport::add_link(const zeromq_link& l) {
  return engine_->add_link(l);
}
caller zeromq_transport::caller_of(const frame& f) const {
  const auto* in = inbox_of(f);
  return in == nullptr ? caller{"", false} : (*in)->from();
}
void zeromq_transport::handled(const frame& f) {
  engine_->handled(f);
}
bool zeromq_transport::greeted() const {
  return engine_->greeted();
}
expected<void> zeromq_transport::wait_until_greeted(double s) const {
  return engine_->greetings().wait_until_greeted(s);
}
std::optional<reason> zeromq_transport::refused() const {
  return engine_->greetings().refused();
}
std::string zeromq_transport::endpoint() const {
  return engine_->endpoint();
}
zeromq_counts zeromq_transport::counts() const {
  return engine_->counts();
}

}  // namespace troupe::runtime
