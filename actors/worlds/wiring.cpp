#include "actors/worlds/wiring.hpp"

#include <fmt/format.h>

#include "actors/control/leases/orchestrator.hpp"
#include "actors/control/scheduling/estimator.hpp"
#include "actors/control/scheduling/scheduler.hpp"
#include "actors/control/status/status_desk.hpp"
#include "actors/gateway/gateway.hpp"
#include "actors/node/node.hpp"
#include "actors/protocol/messenger.hpp"
#include "actors/protocol/permissions.hpp"
#include "actors/serving/front/front.hpp"
#include "planners/serving/scheduled_policy.hpp"

namespace troupe::actors {

namespace {

/// Limit of a job's description on the network.
constexpr std::size_t largest_submission_bytes = std::size_t{1} << 20;

/// The transport calls this from its own thread; an actor's mailbox is the only way in.
template <class Handle>
std::vector<caf::actor> listen(const runtime::host& h, const Handle& first) {
  auto receiver = caf::actor_cast<caf::actor>(first);
  h.net->listen([receiver](frame f) { caf::anon_send(receiver, arrived{std::move(f)}); });
  return {receiver};
}

/// Dispatches messages to the controller's actors, and forwards frames for other hosts (such as a
/// node's reply to a client).
class frame_dispatcher {
 public:
  using interface = frame_receiver;
  static constexpr const char* actor_name = "controller";

  void start(frame_receiver::pointer, runtime::host h, const shared_cluster& c,
             orchestrator_actor o, status_actor s) {
    guard_ = frame_guard{h, c};
    host_ = std::move(h);
    orchestrator_ = std::move(o);
    status_ = std::move(s);
  }

  // The credit goes back to the sender when the last copy of this pointer is gone: with the message
  // in the actor that it is handed to, or here if it is handed to none.
  void on(const arrived& a) {
    const auto& f = a.what;
    auto net = host_.net;
    const std::shared_ptr<const void> credit{nullptr, [net, f](const void*) { net->handled(f); }};
    auto envelope = peek(f.header.bytes());
    if (!envelope || !guard_.admits(*envelope)) return;
    // The controller is the hub between clients and nodes; it changes nothing in what it forwards.
    if (envelope->to != host_.self) {
      host_.net->send(envelope->to, f);
      return;
    }
    if (envelope->type == type_id<submit_job> && f.size() > largest_submission_bytes)
      return refuse_submission(envelope->from, f);
    auto decoded = decode(f.header.bytes());
    if (!decoded) return;
    std::visit([&](auto& m) { hand_over(envelope->from, m, f, credit); }, decoded->second);
  }

 private:
  /// Rejected before decoding: accepted jobs are stored permanently.
  void refuse_submission(address from, const frame& f) const {
    const auto request = peek_request(f.header.bytes());
    if (!request) return;
    send_message(host_, from,
                 submit_reply{*request,
                              0,
                              {reason::kind::invalid,
                               fmt::format("the job has {} bytes; the controller accepts {}",
                                           f.size(), largest_submission_bytes)}});
  }

  template <class T>
  void hand_over(address from, T& m, const frame& f,
                 const std::shared_ptr<const void>& credit) const {
    const auto to_actor = [&](const auto& actor) {
      caf::anon_send(actor,
                     inbound<T>{from, std::move(m), f.body, credit, host_.net->caller_of(f)});
    };
    // By the interfaces: a message that an actor takes is on its way to it without another list.
    if constexpr (takes_inbound<status_actor, T>)
      to_actor(status_);
    else if constexpr (takes_inbound<orchestrator_actor, T>)
      to_actor(orchestrator_);
    // Other messages are replies, and the controller sends no requests.
  }

  runtime::host host_;
  frame_guard guard_;
  orchestrator_actor orchestrator_;
  status_actor status_;
};

}  // namespace

controller_actors start_controller(caf::actor_system& system, const runtime::host& h,
                                   const controller_options& options) {
  auto own = options;
  own.policy = planners::as_scheduled(options.policy);
  auto o = spawn_actor<orchestrator_state>(system, h, own);
  // On a real host planning has its own thread, so that a job that is hard to plan delays no
  // decision. In virtual time nothing may depend on threads.
  auto e = options.virtual_time ? spawn_actor<estimator_state>(system, h, own)
                                : spawn_actor<estimator_state, caf::detached>(system, h, own);
  auto s = spawn_actor<scheduler_state>(system, h, own, o, e);
  auto desk = spawn_actor<status_desk_state>(system, h, own, o, s);
  auto d = spawn_actor<frame_dispatcher>(system, h, options.cluster, o, desk);
  controller_actors result{listen(h, d), o};
  result.all.push_back(caf::actor_cast<caf::actor>(o));
  result.all.push_back(caf::actor_cast<caf::actor>(e));
  result.all.push_back(caf::actor_cast<caf::actor>(s));
  result.all.push_back(caf::actor_cast<caf::actor>(desk));
  return result;
}

std::vector<caf::actor> start_gateway(caf::actor_system& system, const runtime::host& h,
                                      shared_cluster c, bool virtual_time,
                                      runtime::link_slowdown slow_links,
                                      std::function<void()> on_removed) {
  // In virtual time transfers that arrive at one instant compete.
  constexpr std::uint32_t rounds_of_an_instant = 3;
  wan_options wan;
  wan.pacing = std::make_shared<runtime::paced_links>(*c, datacenter_of(h.self), !virtual_time,
                                                      h.random, std::move(slow_links));
  wan.rounds = virtual_time ? rounds_of_an_instant : 0;
  return listen(h, spawn_actor<gateway_state>(system, h, std::move(c), std::move(wan),
                                              std::move(on_removed)));
}

std::vector<caf::actor> start_node(caf::actor_system& system, const runtime::host& h,
                                   node_options options) {
  return listen(h, spawn_actor<node_state>(system, h, std::move(options)));
}

std::vector<caf::actor> start_front(caf::actor_system& system, const runtime::host& h,
                                    shared_cluster c, completions local,
                                    std::function<void()> on_removed) {
  return listen(h, spawn_actor<front_state>(system, h, std::move(c), std::move(local),
                                            std::move(on_removed)));
}

client_actor start_client(caf::actor_system& system, const runtime::host& h) {
  auto c = spawn_actor<client_state>(system, h);
  listen(h, c);
  return c;
}

}  // namespace troupe::actors
