#include "runtime/virtual/virtual_coordinator.hpp"

#include <algorithm>
#include <caf/all.hpp>
#include <caf/scheduler/abstract_coordinator.hpp>
#include <deque>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "runtime/virtual/event_queue.hpp"

// The only file that uses CAF's internals.

// CAF's scheduler, replaced by one thread and one queue of events, so that a run is a function of
// its inputs. An event is one of: a message that becomes due, a call to a listener, a call of a
// function. Order: by time, and events of equal time in the order in which they were added. Actors
// that are ready run, first come first served, one message at a time, until none is left; only then
// virtual time advances to the next event. Handlers therefore take no virtual time.
namespace troupe::runtime {
namespace {

/// An event's action: a message to an actor, or a call.
struct happening {
  caf::strong_actor_ptr actor;
  caf::mailbox_element_ptr content;
  virtual_coordinator::listener* whom = nullptr;
  std::uint64_t token = 0;
  std::unique_ptr<std::function<void()>> call;
};

using happenings = event_queue<happening>;

class coordinator;

/// The clock that CAF gives to actors.
class virtual_clock final : public caf::actor_clock {
 public:
  explicit virtual_clock(coordinator& owner) : owner_{owner} {}

  time_point now() const noexcept override;
  void set_ordinary_timeout(time_point t, caf::abstract_actor* self, caf::atom_value type,
                            std::uint64_t id) override;
  void set_multi_timeout(time_point t, caf::abstract_actor* self, caf::atom_value type,
                         std::uint64_t id) override;
  void set_request_timeout(time_point t, caf::abstract_actor* self, caf::message_id id) override;
  void cancel_ordinary_timeout(caf::abstract_actor* self, caf::atom_value type) override;
  void cancel_request_timeout(caf::abstract_actor* self, caf::message_id id) override;
  void cancel_timeouts(caf::abstract_actor* self) override;
  void schedule_message(time_point t, caf::strong_actor_ptr receiver,
                        caf::mailbox_element_ptr content) override;
  void schedule_message(time_point t, caf::group target, caf::strong_actor_ptr sender,
                        caf::message content) override;
  void cancel_all() override;

 private:
  coordinator& owner_;
};

/// Queues actors that become ready while an actor runs, in the same queue as all others.
// CAF's own workers would run such an actor before those that wait.
class virtual_worker final : public caf::execution_unit {
 public:
  virtual_worker(caf::actor_system& system, std::deque<caf::resumable*>& ready)
      : caf::execution_unit{&system}, ready_{ready} {}
  void exec_later(caf::resumable* job) override { ready_.push_back(job); }

 private:
  std::deque<caf::resumable*>& ready_;
};

/// The actor behind aout(self); CAF's own would be a thread.
caf::behavior console(caf::event_based_actor* self) {
  self->set_default_handler(caf::drop);
  return {[](caf::add_atom, caf::actor_id, const std::string& text) { std::cout << text; },
          [](caf::flush_atom, caf::actor_id) { std::cout << std::flush; }};
}

class coordinator final : public caf::scheduler::abstract_coordinator, public virtual_coordinator {
 public:
  explicit coordinator(caf::actor_system& system)
      : abstract_coordinator{system}, worker_{system, ready_}, clock_{*this} {}

  // -- caf::scheduler::abstract_coordinator --

  // Everything that CAF delays passes through this clock: delayed messages, time-outs, requests.
  caf::actor_clock& clock() noexcept override { return clock_; }
  bool detaches_utility_actors() const override { return false; }
  void enqueue(caf::resumable* job) override { ready_.push_back(job); }

  void start() override {
    system_.await_actors_before_shutdown(false);
    utility_actors_[printer_id] = system_.spawn<caf::hidden + caf::lazy_init>(console);
  }

  /// Ends everything: scheduled events are dropped, and all ready actors, including those that
  /// become ready by this, are killed before they handle another message.
  void stop() override {
    stopping_ = true;
    utility_actors_[printer_id] = nullptr;
    queue_.cancel_if([](const happening&) { return true; });
    after_.clear();
    while (!ready_.empty()) {
      auto* job = ready_.front();
      ready_.pop_front();
      kill_and_release(job);
    }
  }

  // -- virtual_coordinator --

  time_ns now() const override { return now_; }

  event_id at(time_ns t, listener& whom, std::uint64_t token) override {
    if (stopping_) return {};
    return queue_.add(std::max(t, now_), {{}, {}, &whom, token, {}});
  }

  event_id at(time_ns t, std::function<void()> what) override {
    if (stopping_) return {};
    auto call = std::make_unique<std::function<void()>>(std::move(what));
    return queue_.add(std::max(t, now_), {{}, {}, nullptr, 0, std::move(call)});
  }

  bool cancel(event_id e) override { return queue_.cancel(e); }
  void after_handler(std::function<void()> what) override { after_.push_back(std::move(what)); }

  // Messages on the way to actors of a crashed host; those in their mailboxes end with them.
  void drop_events_of(std::span<const caf::actor> actors) override {
    queue_.cancel_if([&](const happening& h) {
      return h.actor && std::ranges::any_of(actors, [&](const caf::actor& a) {
               return caf::actor_cast<caf::strong_actor_ptr>(a) == h.actor;
             });
    });
  }

  void run_ready() override {
    const running guard{*this};
    drain();
  }

  bool step(time_ns limit) override {
    const running guard{*this};
    drain();
    return next_event(limit);
  }

  // Time advances to t even if nothing happens until then.
  void run_until(time_ns t) override {
    const running guard{*this};
    drain();
    while (next_event(t)) {
    }
    now_ = std::max(now_, t);
  }

  void run() override {
    const running guard{*this};
    drain();
    while (next_event(never_ns)) {
    }
  }

  std::uint64_t events() const override { return events_; }
  std::uint64_t resumes() const override { return resumes_; }
  std::size_t pending() const override { return queue_.size(); }

  // -- used by the clock --

  void send_at(caf::actor_clock::time_point t, caf::strong_actor_ptr receiver,
               caf::mailbox_element_ptr content, const timer_key& key = {}) {
    if (stopping_ || !receiver) return;
    queue_.add(std::max<time_ns>(t.time_since_epoch().count(), now_),
               {std::move(receiver), std::move(content), nullptr, 0, {}}, key);
  }

  happenings& queue() { return queue_; }

 private:
  /// Running the world from inside a handler or callback would reorder events.
  class running {
   public:
    explicit running(coordinator& owner) : owner_{owner} {
      if (owner.running_) throw std::logic_error("virtual time was advanced from within an event");
      owner.running_ = true;
      // CAF's logger would record the running actor in a locked hash map: a tenth of the run time.
      if (!std::exchange(owner.ran_, true)) caf::logger::set_current_actor_system(nullptr);
    }
    ~running() { owner_.running_ = false; }
    running(const running&) = delete;
    running& operator=(const running&) = delete;

   private:
    coordinator& owner_;
  };

  /// Lets the actor handle one message, then keeps or releases it as it requests.
  void resume(caf::resumable* job) {
    switch (job->resume(&worker_, 1)) {
      case caf::resumable::resume_later:
        ready_.push_back(job);
        break;
      case caf::resumable::done:
      case caf::resumable::awaiting_message:
        caf::intrusive_ptr_release(job);
        break;
      case caf::resumable::shutdown_execution_unit:
        break;
    }
  }

  void drain() {
    while (!ready_.empty()) {
      auto* job = ready_.front();
      ready_.pop_front();
      ++resumes_;
      resume(job);
      if (!after_.empty()) run_after();
    }
  }

  // These may add further ones, which run in the next turn of the loop: never inside each other.
  void run_after() {
    while (!after_.empty()) {
      const auto now_due = std::exchange(after_, {});
      for (const auto& what : now_due) what();
    }
  }

  /// No actor is ready. A message that an idle actor sent to itself, usually a timer, is handled
  /// directly: its mailbox would give the same result at twice the cost.
  void deliver(caf::actor_control_block& to, caf::mailbox_element_ptr content) {
    if (content->sender.get() == &to && !to.get()->getf(caf::abstract_actor::is_blocking_flag)) {
      auto& self = *static_cast<caf::scheduled_actor*>(to.get());
      ++resumes_;
      if (self.activate(&worker_, *content) != caf::scheduled_actor::activation_result::skipped)
        return;
    }
    to.enqueue(std::move(content), &worker_);
  }

  // An event stays in the queue until its time; after it everything that it made ready runs, at the
  // same instant.
  bool next_event(time_ns limit) {
    const auto* next = queue_.next();
    if (!next || next->time > limit) return false;
    now_ = next->time;
    ++events_;
    auto due = queue_.take();
    if (due.content) {
      deliver(*due.actor, std::move(due.content));
    } else if (due.whom) {
      due.whom->fire(due.token);
    } else if (due.call) {
      (*due.call)();
    }
    if (!after_.empty()) run_after();
    drain();
    return true;
  }

  void kill_and_release(caf::resumable* job) {
    if (job->subtype() != caf::resumable::scheduled_actor) {
      caf::intrusive_ptr_release(job);
      return;
    }
    // An exit message overtakes all others and ends the actor in the way that destroys its state.
    auto* actor = static_cast<caf::scheduled_actor*>(job);
    actor->eq_impl(caf::make_message_id(caf::message_priority::high), nullptr, &worker_,
                   caf::exit_msg{actor->address(), caf::exit_reason::kill});
    resume(job);
  }

  std::deque<caf::resumable*> ready_;
  virtual_worker worker_;
  virtual_clock clock_;
  happenings queue_;
  std::vector<std::function<void()>> after_;
  time_ns now_ = 0;
  std::uint64_t events_ = 0, resumes_ = 0;
  bool running_ = false, ran_ = false, stopping_ = false;
};

caf::actor_clock::time_point virtual_clock::now() const noexcept {
  return time_point{duration_type{owner_.now()}};
}

// Time-outs have keys, by which CAF cancels them; adding one with a key that is in use replaces the
// old one.
void virtual_clock::set_ordinary_timeout(time_point t, caf::abstract_actor* self,
                                         caf::atom_value type, std::uint64_t id) {
  owner_.send_at(t, self->ctrl(),
                 caf::make_mailbox_element(self->ctrl(), caf::make_message_id(), {},
                                           caf::timeout_msg{type, id}),
                 {self->id(), static_cast<std::uint64_t>(type), timer::ordinary});
}

void virtual_clock::set_multi_timeout(time_point t, caf::abstract_actor* self, caf::atom_value type,
                                      std::uint64_t id) {
  owner_.send_at(t, self->ctrl(),
                 caf::make_mailbox_element(self->ctrl(), caf::make_message_id(), {},
                                           caf::timeout_msg{type, id}),
                 {self->id(), static_cast<std::uint64_t>(type) ^ (id << 1), timer::multi});
}

void virtual_clock::set_request_timeout(time_point t, caf::abstract_actor* self,
                                        caf::message_id id) {
  owner_.send_at(
      t, self->ctrl(),
      caf::make_mailbox_element(self->ctrl(), id, {}, caf::make_error(caf::sec::request_timeout)),
      {self->id(), id.integer_value(), timer::request});
}

void virtual_clock::cancel_ordinary_timeout(caf::abstract_actor* self, caf::atom_value type) {
  owner_.queue().cancel(timer_key{self->id(), static_cast<std::uint64_t>(type), timer::ordinary});
}

void virtual_clock::cancel_request_timeout(caf::abstract_actor* self, caf::message_id id) {
  owner_.queue().cancel(timer_key{self->id(), id.integer_value(), timer::request});
}

void virtual_clock::cancel_timeouts(caf::abstract_actor* self) {
  owner_.queue().cancel_all_of(self->id());
}

void virtual_clock::schedule_message(time_point t, caf::strong_actor_ptr receiver,
                                     caf::mailbox_element_ptr content) {
  owner_.send_at(t, std::move(receiver), std::move(content));
}

void virtual_clock::schedule_message(time_point t, caf::group target, caf::strong_actor_ptr sender,
                                     caf::message content) {
  owner_.at(t.time_since_epoch().count(), [=] {
    if (target) target.get()->enqueue(sender, caf::make_message_id(), content, nullptr);
  });
}

void virtual_clock::cancel_all() {
  owner_.queue().cancel_if([](const happening& h) { return h.actor != nullptr; });
}

}  // namespace

void virtual_coordinator::install(caf::actor_system_config& cfg) {
  cfg.module_factories.emplace_back([](caf::actor_system& system) -> caf::actor_system::module* {
    return new coordinator{system};
  });
}

virtual_coordinator& virtual_coordinator::of(caf::actor_system& system) {
  return dynamic_cast<virtual_coordinator&>(system.scheduler());
}

}  // namespace troupe::runtime
