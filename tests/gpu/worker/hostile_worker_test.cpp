#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <future>

#include "gpu/device/clock.hpp"
#include "gpu/worker/forked_worker.hpp"
#include "gpu/worker/scripted_worker.hpp"
#include "gpu/worker/tensor_bytes.hpp"
#include "harness/scratch.hpp"
#include "messages/base/random.hpp"

// Workers that break the protocol: the stage ends with a sentence, the worker is killed, and
// nothing waits.

namespace troupe::test {

using namespace gpu::python;
namespace kind = gpu::operations;
using script = std::function<void(scripted_peer&)>;

namespace {

struct fixture {
  scratch directory;
  int killed = 0;

  gpu::python_spec spec(std::uint32_t stage = 0, std::uint32_t stages = 2) {
    gpu::python_spec s;
    s.stage.layers = 1;
    s.stage.stage = stage;
    s.stage.stages = stages;
    s.socket_directory = directory.path();
    s.token = "secret";
    s.connect_limit_s = 5;
    return s;
  }
  expected<gpu::python_stage> make(script lines, std::uint32_t stage = 0,
                                   std::uint32_t stages = 2) {
    return gpu::make_python_device(spec(stage, stages), scripted(std::move(lines), &killed));
  }
  /// The stage of a worker that starts well, and then follows the script.
  gpu::python_stage started(script lines, std::uint32_t stage = 0, std::uint32_t stages = 2) {
    auto made = make(
        [lines = std::move(lines)](scripted_peer& p) {
          p.start();
          lines(p);
        },
        stage, stages);
    if (!made) FAIL(made.error().text);
    return std::move(*made);
  }
  /// The error of a forward of the first of two stages.
  std::string forward_error(script lines) {
    auto s = started(std::move(lines));
    const auto r = run(*s.device, kind::forward{.keep = true});
    REQUIRE_FALSE(r);
    const auto again = run(*s.device, kind::gradients{});
    REQUIRE_FALSE(again);
    CHECK(again.error().text == r.error().text);
    code = r.error().code;
    return r.error().text;
  }
  reason::kind code = reason::kind::invalid;
};

std::string error_of(const expected<gpu::python_stage>& s) {
  return s ? std::string{} : s.error().text;
}

/// A reply to it with an output of that many bytes.
reply_header output_of(const scripted_peer::request& r, std::uint64_t bytes) {
  reply_header h;
  h.sequence = r.header.sequence;
  auto place = unpacked(r.header.out);
  place.bytes = bytes;
  h.out = packed(place);
  return h;
}

}  // namespace

TEST_CASE_METHOD(fixture, "a worker that says no hello, or a wrong one, does not start") {
  CHECK(error_of(make([](scripted_peer&) {})) ==
        "the worker has run out of lines during its start");
  CHECK(error_of(make([](scripted_peer& p) { p.send("hello"); })) ==
        "the worker sent 5 bytes, expected 64 at least, during its start");
  CHECK(error_of(make([](scripted_peer& p) { p.reply({}); })) ==
        "the worker's first message is done, expected hello, during its start");
  CHECK(killed == 3);
}

TEST_CASE_METHOD(fixture, "a worker that cannot greet says why") {
  const auto made = make([](scripted_peer& p) {
    reply_header h;
    h.kind = message_kind::error;
    p.reply(h, R"({"type":"","message":"found no PyTorch","cause":"exception"})");
    p.receive();
  });
  CHECK(error_of(made) == "found no PyTorch");
  CHECK(made.error().code == reason::kind::invalid);  // not repeated as after a lost worker
  CHECK(killed == 1);
}

TEST_CASE_METHOD(fixture, "a process without the token is not the worker") {
  const auto made = make([](scripted_peer& p) {
    reply_header h;
    h.kind = message_kind::hello;
    p.reply(h, R"({"protocol":2,"token":"guessed","package":"","python":"","torch":"","cuda":"",)"
               R"("blas":"","pid":1})");
    p.receive();
  });
  CHECK(error_of(made) == "the worker's token is not its node's, during its start");
}

TEST_CASE_METHOD(fixture, "a worker that connects and is silent has a limit") {
  auto s = spec();
  s.connect_limit_s = 0.2;
  const auto made = gpu::make_python_device(s, scripted([](scripted_peer& p) { p.receive(); }));
  CHECK(error_of(made).starts_with("the worker "));
}

TEST_CASE_METHOD(fixture, "a process that ends before it connects is not waited for") {
  auto s = spec();
  s.connect_limit_s = 60;
  s.command = {"false"};
  const double began_s = gpu::now_s();
  CHECK(error_of(gpu::make_python_device(s, forked())) ==
        "the worker ended with status 1 before it connected");
  CHECK(gpu::now_s() - began_s < 30);
}

TEST_CASE_METHOD(fixture, "a program that cannot be made is the start's error") {
  const auto made = make([](scripted_peer& p) {
    p.hello();
    const auto setup = p.receive();
    reply_header h;
    h.sequence = setup.header.sequence;
    h.kind = message_kind::error;
    p.reply(h, R"({"type":"NameError","message":"no x","cause":"exception","file":"/p/m.py",)"
               R"("line":3})");
    p.receive();
  });
  CHECK(error_of(made) == "NameError: no x (m.py:3)");
}

TEST_CASE_METHOD(fixture, "a reply to another request ends the stage") {
  CHECK(forward_error([](scripted_peer& p) {
          auto r = p.operation();
          ++r.header.sequence;
          p.done(r);
          p.receive();
        }) ==
        "the worker replied to message 6 of stage 0, expected message 5 of stage 0, during "
        "forward");
  CHECK(code == reason::kind::malformed);
  CHECK(killed == 1);
}

TEST_CASE_METHOD(fixture, "a forward without the output that the next stage needs is an error") {
  CHECK(forward_error([](scripted_peer& p) {
          p.done(p.operation());
          p.receive();
        }).starts_with("the worker's reply has no output, expected one"));
}

TEST_CASE_METHOD(fixture, "an output outside of its buffer ends the stage") {
  CHECK(forward_error([](scripted_peer& p) {
          const auto r = p.operation();
          p.reply(output_of(r, unpacked(r.header.out).bytes + 64));
          p.receive();
        }).starts_with("the worker's reply to forward has an output of "));
  CHECK(code == reason::kind::malformed);
}

TEST_CASE_METHOD(fixture, "an output that is not tensors ends the stage") {
  // The buffer's bytes are zero: tensors of 0 bytes.
  CHECK(forward_error([](scripted_peer& p) {
          p.reply(output_of(p.operation(), 128));
          p.receive();
        }) == "tensors: found 128 bytes, expected 0, during forward");
  CHECK(code == reason::kind::malformed);
}

TEST_CASE_METHOD(fixture, "a buffer larger than the memory for buffers is refused") {
  auto s = started([](scripted_peer& p) {
    auto h = output_of(p.operation(), 0);
    h.flags = reply_flag::larger;
    h.out = packed({0, 0, std::uint64_t{8} << 30});
    p.reply(h);
    p.receive();
  });
  const auto r = run(*s.device, kind::forward{.keep = true});
  REQUIRE_FALSE(r);
  CHECK(r.error().code == reason::kind::infeasible);
  CHECK(
      r.error().text.starts_with("a tensor of 8589934592 bytes finds no room in 1073741824 bytes"));
}

TEST_CASE_METHOD(fixture, "a worker asks for a larger buffer once") {
  CHECK(forward_error([](scripted_peer& p) {
          for (std::uint64_t bytes = 2 << 20; bytes <= 4 << 20; bytes *= 2) {
            auto h = output_of(p.operation(), 0);
            h.flags = reply_flag::larger;
            h.out = packed({0, 0, bytes});
            p.reply(h);
          }
          p.receive();
        }) == "the worker asks for a larger buffer a second time, during output");
}

TEST_CASE_METHOD(fixture, "a message that is too long ends the stage") {
  CHECK(forward_error([](scripted_peer& p) {
          p.operation();
          p.send(std::string(max_message_bytes + 1, 'x'));
          p.receive();
        }) == "the worker sent more than 131072 bytes, during forward");
}

TEST_CASE_METHOD(fixture, "a worker cannot shrink the memory under the node") {
  auto s = make([](scripted_peer& p) {
    const auto memory = p.start(1000);
    const bool changed = ::ftruncate(memory, 0) == 0;
    p.done(p.operation());
    if (changed) p.send("shrunk");
    p.receive();
  });
  REQUIRE(s);
  auto r = run(*s->device, kind::gradients{});
  REQUIRE(r);
  const auto& own = r->of<kind::gradients>().own;
  REQUIRE(own.bytes().size() == 4000);
  CHECK(own.values<float>() == std::vector<float>(1000));
}

TEST_CASE_METHOD(fixture, "a worker that dies late is lost, with how it ended") {
  CHECK(forward_error([](scripted_peer& p) { p.operation(); }) ==
        "the worker has run out of lines during forward");
  CHECK(code == reason::kind::worker_lost);
}

TEST_CASE_METHOD(fixture, "a device does not wait for a silent worker") {
  std::promise<void> asked, closed;
  std::promise<expected<gpu::outcome>> made;
  auto s = started([&](scripted_peer& p) {
    p.operation();
    asked.set_value();
    CHECK(p.receive().header.kind == message_kind::stop);
    closed.set_value();
  });
  s.device->submit({kind::gradients{}},
                   [&](expected<gpu::outcome> r) { made.set_value(std::move(r)); });
  asked.get_future().wait();
  s.device = nullptr;
  closed.get_future().wait();
  const auto r = made.get_future().get();
  REQUIRE_FALSE(r);
  CHECK(r.error().text == "the device was closed during this operation");
}

TEST_CASE_METHOD(fixture, "a worker's times cannot be other than the operation's") {
  auto s = started([](scripted_peer& p) {
    reply_header h;
    h.sequence = p.operation().header.sequence;
    h.begin_ns = 5;
    h.end_ns = ~std::uint64_t{0};
    p.reply(h);
    p.receive();
  });
  const double before_s = gpu::now_s();
  const auto r = run(*s.device, kind::update{});
  REQUIRE(r);
  CHECK(r->begin_s >= before_s);
  CHECK(r->end_s >= r->begin_s);
  CHECK(r->end_s <= gpu::now_s());
}

TEST_CASE_METHOD(fixture,
                 "an emulated slower machine stretches an operation by its processor time") {
  auto how = spec();
  how.emulate_speed = 0.25;
  auto s = gpu::make_python_device(how, scripted([](scripted_peer& p) {
                                     p.start();
                                     reply_header h;
                                     h.sequence = p.operation().header.sequence;
                                     h.cpu_us = 50'000;
                                     p.reply(h);
                                     p.receive();
                                   }));
  REQUIRE(s);
  const auto r = run(*s->device, {.what = kind::update{}, .timed = true});
  REQUIRE(r);
  CHECK(r->end_s - r->begin_s >= 0.2);
  CHECK(r->compute_s == r->end_s - r->begin_s);
}

TEST_CASE_METHOD(fixture, "whatever a reply's numbers are, the operation ends") {
  random_source random{1};
  int refused = 0;
  for (int round = 0; round < 150; ++round) {
    auto s = started([&](scripted_peer& p) {
      const auto r = p.operation();
      auto h = output_of(r, unpacked(r.header.out).bytes);
      auto bytes = encode(h, random.below(2) == 0 ? "" : std::string(random.below(200), '{'));
      for (auto changes = random.below(4); changes > 0; --changes)
        bytes[random.below(bytes.size())] = static_cast<char>(random.next());
      p.send(bytes);
    });
    const auto r = run(*s.device, kind::forward{.keep = true});
    if (!r) ++refused;
  }
  // Without tensors in the buffer none can be right.
  CHECK(refused == 150);
}

TEST_CASE_METHOD(fixture, "a save that never ends its replies ends the stage") {
  auto s = started([](scripted_peer& p) {
    reply_header h;
    h.sequence = p.operation().header.sequence;
    h.flags = reply_flag::more;
    p.reply(h);
    p.reply(h);
    p.receive();
  });
  const auto r = run(*s.device, kind::save{"x"});
  REQUIRE_FALSE(r);
  CHECK(r.error().text == "the worker replied to save more than twice, during save");
}

TEST_CASE_METHOD(fixture,
                 "an input that is not tensors is refused, and the worker is not to blame") {
  auto s = started(
      [](scripted_peer& p) {
        p.done(p.operation());
        p.receive();
      },
      1);
  const auto bad =
      run(*s.device, kind::forward{.keep = true, .input = payload{std::vector<std::byte>(128)}});
  REQUIRE_FALSE(bad);
  CHECK(bad.error().code == reason::kind::malformed);
  CHECK(killed == 0);
  CHECK(run(*s.device, kind::forward{.keep = true, .input = vector_payload({1})}));
}

TEST_CASE_METHOD(fixture, "norms that are not one for each layer end the stage") {
  auto s = started([](scripted_peer& p) {
    p.done(p.operation(), "1234567");
    p.receive();
  });
  const auto r = run(*s.device, kind::norms{});
  REQUIRE_FALSE(r);
  CHECK(r.error().text == "the worker sent 7 bytes of norms, expected 8, during norms");
}

}  // namespace troupe::test
