#include "gpu/worker/worker_protocol.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>

namespace troupe::test {

using namespace gpu::python;

namespace {

/// The error's text, or nothing.
template <class T>
std::string error_of(const expected<T>& r) {
  return r ? std::string{} : r.error().text;
}

std::string error_of_reply(const reply_header& h, const request_header& to) {
  const auto r = decode_reply(encode(h, {}));
  if (!r) return r.error().text;
  return error_of(check_reply(*r, to));
}

request_header with_output() {
  request_header to;
  to.sequence = 7;
  to.kind = message_kind::forward;
  to.out = packed({2, 128, 256});
  return to;
}

reply_header answer() {
  reply_header h;
  h.sequence = 7;
  return h;
}

constexpr auto hello = R"({"protocol":2,"token":"t","package":"0.1","python":"3.9",)"
                       R"("torch":"2.1","cuda":"","blas":"libblas.so.3","pid":12})";

}  // namespace

TEST_CASE("a request has its numbers at the places that the page says") {
  request_header h{.sequence = 0x01020304,
                   .kind = message_kind::update,
                   .flags = 16,
                   .stage = 0x0506,
                   .iteration = 9,
                   .microbatch = 10};
  h.in = packed({1, 64, 128});
  h.scale = 0.5;
  const auto bytes = encode(h, "body");
  REQUIRE(bytes.size() == 68);
  CHECK(bytes.substr(0, 8) == std::string("\4\3\2\1\x25\x10\6\5", 8));
  CHECK(bytes[8] == 9);
  CHECK(bytes[16] == 10);
  CHECK(bytes[20] == 4);
  CHECK(bytes.substr(24, 8) == std::string("\2\0\0\x10\0\0\0\1", 8));
  double scale = 0;
  std::memcpy(&scale, bytes.data() + 48, sizeof scale);
  CHECK(scale == 0.5);
}

TEST_CASE("a datagram of any wrong length is no reply") {
  const auto good = encode(answer(), "body");
  CHECK(decode_reply(good));
  for (std::size_t n = 0; n < good.size(); ++n) CHECK_FALSE(decode_reply(good.substr(0, n)));
  CHECK(error_of(decode_reply(good + "x")) ==
        "the worker sent a body of 5 bytes, its header says 4");
  CHECK(error_of(decode_reply("")) == "the worker sent 0 bytes, expected 64 at least");
}

TEST_CASE("only hello, done and error are replies") {
  for (int kind = 0; kind < 256; ++kind) {
    auto h = answer();
    h.kind = static_cast<message_kind>(kind);
    CHECK(decode_reply(encode(h, {})).has_value() == (kind >= 1 && kind <= 3));
  }
  auto h = answer();
  h.flags = 16;
  CHECK(error_of(decode_reply(encode(h, {}))) == "the worker's reply has unknown flags 16");
}

TEST_CASE("a reply answers its request") {
  auto h = answer();
  CHECK(error_of_reply(h, with_output()) == "");
  h.sequence = 6;
  CHECK(error_of_reply(h, with_output()) ==
        "the worker replied to message 6 of stage 0, expected message 7 of stage 0");
  h = answer();
  h.stage = 1;
  CHECK(error_of_reply(h, with_output()) ==
        "the worker replied to message 7 of stage 1, expected message 7 of stage 0");
  h = answer();
  h.kind = message_kind::hello;
  CHECK(error_of_reply(h, with_output()) == "the worker sent a second hello");
  h = answer();
  h.flags = reply_flag::more;
  CHECK(error_of_reply(h, with_output()) == "the worker replies twice to forward");
  h.flags = reply_flag::skipped;
  CHECK(error_of_reply(h, with_output()) == "the worker skips a forward");
  h.flags = reply_flag::moved;
  CHECK(error_of_reply(h, with_output()) == "the worker has moved buffers by a forward");
  h.flags = reply_flag::skipped;
  h.kind = message_kind::error;
  CHECK(error_of_reply(h, with_output()) == "the worker's error has flags 4 and an output 0");
}

TEST_CASE("an output lies at the beginning of the buffer that was given for it") {
  const auto error_at = [](const buffer_place& p) {
    auto h = answer();
    h.out = packed(p);
    return error_of_reply(h, with_output());
  };
  CHECK(error_at({2, 128, 256}) == "");
  CHECK(error_at({2, 128, 64}) == "");
  CHECK(error_at({2, 128, 320}) ==
        "the worker's reply to forward has an output of 320 bytes at 128 of region 2, expected up "
        "to 256 bytes at 128 of region 2");
  CHECK(error_at({2, 128, 0}) != "");
  CHECK(error_at({2, 192, 64}) != "");
  CHECK(error_at({1, 128, 64}) != "");
  auto h = answer();
  h.out = packed({1, 0, 64});
  request_header none = with_output();
  none.out = 0;
  CHECK(error_of_reply(h, none) == "the worker's reply to forward has an output, expected none");
  h.out = 0;
  h.flags = reply_flag::larger;
  CHECK(error_of_reply(h, none) != "");
}

TEST_CASE("a worker may ask for a larger buffer only") {
  auto h = answer();
  h.flags = reply_flag::larger;
  h.out = packed({0, 0, 320});
  CHECK(error_of_reply(h, with_output()) == "");
  h.out = packed({0, 0, 256});
  CHECK(error_of_reply(h, with_output()) ==
        "the worker asks for a buffer of 256 bytes, expected more than the 256 that it has");
  h.out = packed({1, 0, 320});
  CHECK(error_of_reply(h, with_output()) != "");
}

TEST_CASE("a hello says who the worker is") {
  const auto read = read_hello(hello);
  REQUIRE(read);
  CHECK(read->torch == "2.1");
  CHECK(read->blas == "libblas.so.3");
  CHECK(read->pid == 12);
  CHECK(error_of(read_hello(R"({"protocol":2})")) ==
        "the worker's hello: 'token': expected it to be there");
  CHECK_FALSE(read_hello("[]"));
  CHECK_FALSE(read_hello("{"));
  CHECK_FALSE(read_hello(R"({"protocol":-1})"));
}

TEST_CASE("a worker of another protocol is refused with both numbers") {
  auto other = std::string{hello};
  other.replace(other.find(":2"), 2, ":1");
  CHECK(error_of(read_hello(other)) ==
        "the worker of package troupe 0.1 has protocol 1, this node has 2");
}

TEST_CASE("the answer to setup has each layer, and sizes that memory may have") {
  const std::string start = R"({"members":[{"layers":[{"name":"L","parameter_bytes":4,)"
                            R"("buffer_bytes":0}],"own_parameters":)";
  const std::string end = R"(,"tied_parameters":0,"optimizer_state_bytes":8,"needs_norm":true}]})";
  worker_stage one;
  one.layers = 1;
  const auto read = read_ready(start + "5" + end, {one});
  REQUIRE(read);
  CHECK(read->front().own_parameters == 5);
  CHECK(read->front().needs_norm);
  CHECK(read->front().layers.front().name == "L");
  one.layers = 2;
  CHECK(error_of(read_ready(start + "5" + end, {one})) == "the worker made 1 layers, expected 2");
  CHECK(error_of(read_ready(start + "5" + end, {})) == "the worker has 1 stages, expected 0");
  CHECK_FALSE(read_ready(start + "99999999999999" + end, {one}));
  CHECK_FALSE(read_ready(start + "-5" + end, {one}));
  CHECK_FALSE(read_ready(start + "1e300" + end, {one}));
  CHECK_FALSE(read_ready(R"({"members":[3]})", {one}));
}

TEST_CASE("an error is one sentence with layer, type, file and line") {
  const auto why =
      read_error(R"({"type":"ValueError","message":"mat1\nand mat2","cause":"exception","layer":3,)"
                 R"("layer_name":"Block","file":"/home/a/gpt.py","line":41,"traceback":"..."})");
  CHECK(why.text == "layer 3 (Block): ValueError: mat1 and mat2 (gpt.py:41)");
  CHECK(why.code == reason::kind::invalid);
  const auto memory = read_error(R"({"type":"MemoryError","message":"","cause":"out_of_memory"})");
  CHECK(memory.text == "MemoryError: ");
  CHECK(memory.code == reason::kind::out_of_memory);
  const auto named = read_error(
      R"({"type":"","message":"no length","cause":"","layer_name":"dataset","traceback":""})");
  CHECK(named.text == "dataset: no length");
  CHECK(read_error("no").code == reason::kind::malformed);
  CHECK(read_error(R"({"type":1,"message":"","cause":""})").code == reason::kind::malformed);
  // Anything may be in the parts that are for the sentence's ends alone.
  CHECK(
      read_error(R"({"type":"E","message":"m","cause":"","layer":-1,"file":3,"line":"x"})").text ==
      "E: m");
}

TEST_CASE("an error's text is short and valid, whatever the worker sent") {
  const auto why = read_error(R"({"type":"E","cause":"","message":"\u0007)" +
                              std::string(100'000, 'x') + R"("})");
  CHECK(why.text.size() < 1200);
  CHECK(why.text.find('\a') == std::string::npos);
}

TEST_CASE("values beside a loss are names and pairs of numbers") {
  const auto read = read_values(R"({"values":[["hits",3.0,4.0],["x",null,1]]})");
  REQUIRE(read);
  REQUIRE(read->size() == 2);
  CHECK((*read)[0].name == "hits");
  CHECK((*read)[0].sum == 3);
  CHECK((*read)[0].weight == 4);
  CHECK(std::isnan((*read)[1].sum));
  CHECK(read_values("")->empty());
  for (const auto* bad : {R"({"values":[[1,2,3]]})", R"({"values":[["a",2]]})", R"({"values":3})",
                          R"({"values":[["a","b",1]]})", "{}"})
    CHECK_FALSE(read_values(bad));
}

TEST_CASE("norms are as many numbers as there are layers") {
  const double two[] = {1.5, 2.5};
  const std::string body(reinterpret_cast<const char*>(two), sizeof two);
  CHECK(*read_numbers(body, 2) == std::vector<double>{1.5, 2.5});
  CHECK(error_of(read_numbers(body, 3)) == "the worker sent 16 bytes of norms, expected 24");
}

TEST_CASE("a setup says which file, with which arguments, and which layers") {
  layer_file_setup p;
  p.file = "/a/gpt.py";
  p.arguments = R"({"layers":24})";
  worker_stage m;
  m.first_layer = 2;
  m.layers = 3;
  m.how = worker_stage::recompute::layers;
  CHECK(setup_body(p, {m}) ==
        R"({"file":"/a/gpt.py","sha256":"","arguments":{"layers":24},"device":"cpu","threads":1,)"
        R"("deterministic":true,"members":[{"first_layer":2,"layers":3,"stage":0,"stages":1,)"
        R"("pipeline":0,"pipelines":1,"rows":1,"microbatches":1,"seed":1,"recompute":"layers"}]})");
  CHECK(start_body(9) == R"({"lease":9})");
}

}  // namespace troupe::test
