// For libFuzzer: everything that a node reads from a worker. The first byte chooses the request
// that the rest is a reply to; the rest is read as tensors, too. TROUPE_FUZZ_SEEDS=DIRECTORY: the
// program only writes a few inputs to start from.

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include "gpu/worker/tensors.hpp"
#include "gpu/worker/worker_protocol.hpp"

using namespace troupe;
using namespace troupe::gpu::python;

namespace {

request_header request_of(std::uint8_t chosen) {
  request_header r;
  r.sequence = 1;
  r.kind = static_cast<message_kind>(chosen & 63);
  if ((chosen & 64) != 0) r.out = packed({1, 128, 4096});
  return r;
}

void read_bodies(std::string_view body) {
  (void)read_hello(body);
  worker_stage one;
  one.layers = 1;
  (void)read_ready(body, {one});
  (void)read_error(body);
  (void)read_values(body);
  (void)read_numbers(body, 2);
}

void read_reply(std::string_view datagram, const request_header& to) {
  const auto r = decode_reply(datagram);
  if (!r) return;
  if (check_reply(*r, to) && r->header.kind == message_kind::done && r->header.out != 0) {
    const auto found = unpacked(r->header.out), given = unpacked(to.out);
    const bool larger = (r->header.flags & reply_flag::larger) != 0;
    if (larger ? found.bytes <= given.bytes : found.bytes > given.bytes) std::abort();
  }
  read_bodies(r->body);
}

/// Every number that is said to be there is read.
void read_all(std::span<const std::byte> bytes) {
  const auto read = read_tensors(bytes);
  if (!read) return;
  volatile unsigned sum = 0;
  for (const auto& t : *read)
    for (const auto b : t.data) sum = sum + std::to_integer<unsigned>(b);
}

std::string tensor_seed() {
  std::string bytes(128, '\0');
  bytes[0] = 1;
  bytes[8] = static_cast<char>(128);
  bytes[17] = 1;
  bytes[18] = 2;
  bytes[24] = 2;
  bytes[32] = 3;
  bytes[40] = 3;
  bytes[48] = 1;
  return bytes;
}

void write_seeds(const std::filesystem::path& directory) {
  reply_header h;
  h.sequence = 1;
  h.out = packed({1, 128, 256});
  const std::string texts[] = {
      R"({"protocol":2,"token":"t","package":"","python":"","torch":"","cuda":"",)"
      R"("blas":"","pid":1})",
      R"({"members":[{"layers":[{"name":"L","parameter_bytes":4,"buffer_bytes":0}],)"
      R"("own_parameters":1,"tied_parameters":0,"optimizer_state_bytes":8,"needs_norm":true}]})",
      R"({"type":"E","message":"m","cause":"","layer":1,"layer_name":"L","file":"a/b","line":2})",
      R"({"values":[["hits",3.0,4.0],["x",null,1]]})"};
  int number = 0;
  const auto write = [&](const std::string& text) {
    std::ofstream{directory / std::to_string(number++), std::ios::binary} << text;
  };
  for (const auto& t : texts) write('\x60' + encode(h, t));
  write('\x60' + tensor_seed());
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  if (const char* directory = std::getenv("TROUPE_FUZZ_SEEDS")) {
    write_seeds(directory);
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest{reinterpret_cast<const char*>(data) + 1, size - 1};
  read_reply(rest, request_of(data[0]));
  read_all(std::as_bytes(std::span{rest.data(), rest.size()}));
  return 0;
}
