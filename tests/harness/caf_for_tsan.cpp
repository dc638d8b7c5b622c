#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <caf/all.hpp>

// Debian's CAF is not built for the thread sanitizer, which therefore does not see that a mailbox
// orders what a sender did before what the receiver does: it would call every message a race. These
// definitions come before the library's, declare that order to the sanitizer, and go on to them. It
// is a true one: a message is handled after it was sent.

namespace {

template <class Function>
Function library(const char* symbol) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, symbol));
}

}  // namespace

namespace caf {

void scheduled_actor::enqueue(mailbox_element_ptr what, execution_unit* where) {
  using function = void (*)(scheduled_actor*, mailbox_element_ptr, execution_unit*);
  static const auto original = library<function>(
      "_ZN3caf15scheduled_actor7enqueueESt10unique_ptrINS_15mailbox_elementENS_6detail8disposerEE"
      "PNS_14execution_unitE");
  __tsan_release(this);
  original(this, std::move(what), where);
}

// One thread after another handles an actor's messages.
scheduled_actor::activation_result scheduled_actor::reactivate(mailbox_element& x) {
  using function = activation_result (*)(scheduled_actor*, mailbox_element&);
  static const auto original =
      library<function>("_ZN3caf15scheduled_actor10reactivateERNS_15mailbox_elementE");
  __tsan_acquire(this);
  const auto result = original(this, x);
  __tsan_release(this);
  return result;
}

invoke_message_result scheduled_actor::consume(mailbox_element& x) {
  using function = invoke_message_result (*)(scheduled_actor*, mailbox_element&);
  static const auto original =
      library<function>("_ZN3caf15scheduled_actor7consumeERNS_15mailbox_elementE");
  __tsan_acquire(this);
  const auto result = original(this, x);
  __tsan_release(this);
  return result;
}

void blocking_actor::enqueue(mailbox_element_ptr what, execution_unit* where) {
  using function = void (*)(blocking_actor*, mailbox_element_ptr, execution_unit*);
  static const auto original = library<function>(
      "_ZN3caf14blocking_actor7enqueueESt10unique_ptrINS_15mailbox_elementENS_6detail8disposerEE"
      "PNS_14execution_unitE");
  __tsan_release(this);
  original(this, std::move(what), where);
}

mailbox_element_ptr blocking_actor::dequeue() {
  using function = mailbox_element_ptr (*)(blocking_actor*);
  static const auto original = library<function>("_ZN3caf14blocking_actor7dequeueEv");
  __tsan_acquire(this);
  return original(this);
}

intrusive::task_result blocking_actor::mailbox_visitor::operator()(mailbox_element& x) {
  using function = intrusive::task_result (*)(mailbox_visitor*, mailbox_element&);
  static const auto original =
      library<function>("_ZN3caf14blocking_actor15mailbox_visitorclERNS_15mailbox_elementE");
  __tsan_acquire(self);
  return original(this, x);
}

// An actor that ends destroys what it has not read.

bool scheduled_actor::cleanup(error&& why, execution_unit* where) {
  using function = bool (*)(scheduled_actor*, error&&, execution_unit*);
  static const auto original =
      library<function>("_ZN3caf15scheduled_actor7cleanupEONS_5errorEPNS_14execution_unitE");
  __tsan_acquire(this);
  return original(this, std::move(why), where);
}

bool blocking_actor::cleanup(error&& why, execution_unit* where) {
  using function = bool (*)(blocking_actor*, error&&, execution_unit*);
  static const auto original =
      library<function>("_ZN3caf14blocking_actor7cleanupEONS_5errorEPNS_14execution_unitE");
  __tsan_acquire(this);
  return original(this, std::move(why), where);
}

// The last one that lets go of an actor destroys what others have used before they let go.

void intrusive_ptr_release(actor_control_block* x) {
  using function = void (*)(actor_control_block*);
  static const auto original =
      library<function>("_ZN3caf21intrusive_ptr_releaseEPNS_19actor_control_blockE");
  __tsan_release(x);
  __tsan_acquire(x);
  original(x);
}

void intrusive_ptr_release_weak(actor_control_block* x) {
  using function = void (*)(actor_control_block*);
  static const auto original =
      library<function>("_ZN3caf26intrusive_ptr_release_weakEPNS_19actor_control_blockE");
  __tsan_release(x);
  __tsan_acquire(x);
  original(x);
}

}  // namespace caf
