#include <catch2/catch.hpp>

#include "golden.hpp"
#include "harness/first_release.hpp"

using namespace troupe;
using namespace troupe::testing;

TEST_CASE("messages are encoded to the golden bytes") {
  for (const auto& g : golden_frames()) {
    INFO(g.name);
    const auto f = encode(g.from, g.to, g.what);
    CHECK(to_hex(f.header.bytes()) == g.hex);
    const auto back = decode(from_hex(g.hex));
    REQUIRE(back);
    CHECK(back->second == g.what);
    CHECK(back->first.from == g.from);
    CHECK(back->first.to == g.to);
  }
}

TEST_CASE("journal entries are encoded to the golden bytes") {
  for (const auto& g : golden_entries()) {
    INFO(g.name);
    CHECK(to_hex(encode(g.what)) == g.hex);
    const auto back = decode_entry(from_hex(g.hex));
    REQUIRE(back);
    CHECK(*back == g.what);
  }
}

TEST_CASE("integers and lengths may be encoded longer than necessary") {
  // query_jobs{4242, 0}: array 16, uint 8, uint 16, uint 64, int 32, array 32, int 16 and int 64.
  const auto longer =
      decode(from_hex("dc 0005  cc 05  cd 000e  cf 0000000080000001  d2 00000000  dd 00000002  d1 "
                      "1092  d3 0000000000000000"));
  REQUIRE(longer);
  CHECK(longer->second == message{query_jobs{4242, 0}});
  CHECK(longer->first.from == first_client_address + 1);
  // hello with its name as str 8, str 16 and str 32.
  for (const auto* name : {"d9 01 78", "da 0001 78", "db 00000001 78"}) {
    const auto m = decode(from_hex(std::string{"95 05 01 00 00 92 "} + name + " 00"));
    REQUIRE(m);
    CHECK(std::get<hello>(m->second).name == "x");
  }
}

TEST_CASE("a number has the same value in every format that has it exactly") {
  struct format {
    const char* hex;
    double value;
  };
  // A query_reply's now_s. 3600 as @msgpack/msgpack 3.1.2, msgpackr 1.11.5, notepack.io 3.0.1,
  // msgpack5 6.0.2 and msgpack-c 4.1.3 write it is cd 0e10; 3600.5 of msgpack5 is a float 32.
  for (const auto& f : std::initializer_list<format>{{"cb 40ac200000000000", 3600},
                                                     {"ca 45610000", 3600},
                                                     {"ca 45610800", 3600.5},
                                                     {"cd 0e10", 3600},
                                                     {"d1 0e10", 3600},
                                                     {"cf 0000000000000e10", 3600},
                                                     {"01", 1},
                                                     {"ff", -1},
                                                     {"d0 80", -128},
                                                     {"cf 0020000000000000", 0x1p53},
                                                     {"cf 0020000000000002", 0x1p53 + 2},
                                                     {"cf 8000000000000000", 0x1p63},
                                                     {"d3 8000000000000000", -0x1p63},
                                                     {"ca 3e000000", 0.125}}) {
    INFO(f.hex);
    const auto m = decode(from_hex(std::string{"95 05 0f 00 00 96 00 a0 "} + f.hex + " 90 90 90"));
    INFO((m ? std::string{} : m.error().text));
    REQUIRE(m);
    CHECK(std::get<query_reply>(m->second).now_s == f.value);
  }
  // A query_jobs' request: 2^33 + 5 as notepack.io and msgpack5 write it, and as msgpackr and
  // @msgpack/msgpack with useBigInt64 do; the largest such float; and 5 in 32 bits.
  for (const auto* hex : {"cf 0000000200000005", "cb 4200000000280000"}) {
    const auto m = decode(from_hex(std::string{"95 05 0e 00 00 92 "} + hex + " 00"));
    REQUIRE(m);
    CHECK(std::get<query_jobs>(m->second).request == (1ULL << 33) + 5);
  }
  const auto largest = decode(from_hex("95 05 0e 00 00 92 cb 433fffffffffffff 00"));
  REQUIRE(largest);
  CHECK(std::get<query_jobs>(largest->second).request == (1ULL << 53) - 1);
  const auto m = decode(from_hex("95 05 0e 00 00 92 ca 40a00000 00"));
  REQUIRE(m);
  CHECK(std::get<query_jobs>(m->second).request == 5);
}

TEST_CASE("a frame's envelope can be read without knowing the type of its message") {
  const auto e = peek(from_hex("95 05 cd 03e7 05 06 c1"));
  REQUIRE(e);
  CHECK(e->type == 999);
  CHECK(e->from == 5);
  CHECK(e->to == 6);
}

namespace {

struct refused_case {
  std::string what, hex;
  reason::kind code;
  std::string sentence;  // part of the reason
};

using enum reason::kind;

const refused_case refused_messages[] = {
    {"nothing at all", "", malformed, "end inside"},
    {"no array", "01", malformed, "byte 0: expected an array"},
    {"a header too short", "94 01 0e 00 00", malformed, "number of fields"},
    {"a header too long", "96 01 0e 00 00 92 00 00 00", malformed, "number of fields"},
    {"a later version", "95 06 0e 00 00 92 00 00", refused,
     "protocol version 6; this side speaks version 5"},
    {"a version of another size", "95 cd 0101 0e 00 00 92 00 00", refused, "version 257"},
    {"a version that is no number", "95 a1 31 0e 00 00 92 00 00", malformed, "expected an integer"},
    {"an unknown type", "95 05 63 00 00 92 00 00", unknown, "no message of type 99"},
    {"type 0", "95 05 00 00 00 92 00 00", unknown, "no message of type 0"},
    {"a type out of range", "95 05 ce 00010000 00 00 92 00 00", malformed,
     "out of the field's range"},
    {"an address out of range", "95 05 0e cf 0000000100000000 00 92 00 00", malformed, "range"},
    {"a negative address", "95 05 0e ff 00 92 00 00", malformed, "byte 3: integer out of"},
    {"a body cut off", "95 05 0e 00 00 92 00", malformed, "end inside"},
    {"no body", "95 05 0e 00 00", malformed, "end inside"},
    {"a number cut off", "95 05 0e 00 00 92 00 cf 00 00", malformed, "end inside"},
    {"bytes after the end", "95 05 0e 00 00 92 00 00 00", malformed,
     "byte 8: bytes follow the end"},
    {"a field too few", "95 05 0e 00 00 91 00", malformed, "fewer fields than"},
    {"a field too many", "95 05 0e 00 00 96 00 00 c3 c3 00 00", malformed, "more fields than"},
    {"a body that is a map", "95 05 0e 00 00 82 00 00 00 00", malformed, "expected an array"},
    {"a body that is nil", "95 05 0e 00 00 c0", malformed, "expected an array"},
    {"a string for a number", "95 05 0e 00 00 92 a1 37 00", malformed, "expected an integer"},
    {"a float with a fraction for an integer", "95 05 0e 00 00 92 cb 3ff8000000000000 00",
     malformed, "a float that is none exactly"},
    {"a float of 2^53 for an integer", "95 05 0e 00 00 92 cb 4340000000000000 00", malformed,
     "a float that is none exactly"},
    {"NaN for an integer", "95 05 0e 00 00 92 cb 7ff8000000000000 00", malformed,
     "a float that is none exactly"},
    {"infinity for an integer", "95 05 0e 00 00 92 ca ff800000 00", malformed,
     "a float that is none exactly"},
    {"a negative float for a number without a sign", "95 05 0e 00 00 92 ca bf800000 00", malformed,
     "out of the field's range"},
    {"a boolean for a number", "95 05 0e 00 00 92 c3 00", malformed, "expected an integer"},
    {"bytes for a string", "95 05 01 00 00 93 c4 01 78 00 00", malformed, "expected a string"},
    {"a number for a string", "95 05 01 00 00 93 07 00 00", malformed, "expected a string"},
    {"a string that lies by one", "95 05 01 00 00 93 a2 78", malformed, "length exceeds"},
    {"a string that lies by 4 GB", "95 05 01 00 00 93 db ffffffff 78 00 00", malformed,
     "length exceeds"},
    {"a list that lies by 4 G", "95 05 20 00 00 93 00 00 dd ffffffff 00", malformed,
     "length exceeds"},
    {"a list of records that lies", "95 05 1e 00 00 99 00 00 00 00 dc 0005 96 00 00 00 00 cb",
     malformed, "length exceeds"},
    {"a length that is cut off", "95 05 20 00 00 93 00 00 dd 00 00", malformed, "end inside"},
    {"an integer that no float 64 has", "95 05 0f 00 00 96 00 a0 cf 0020000000000001 90 90 90",
     malformed, "not exact as a float 64"},
    {"the largest integer for a float 64", "95 05 0f 00 00 96 00 a0 d3 7fffffffffffffff 90 90 90",
     malformed, "not exact as a float 64"},
    {"a string for a float 64", "95 05 0f 00 00 96 00 a0 a1 31 90 90 90", malformed,
     "expected a number"},
    {"a number for a boolean", "95 05 0d 00 00 93 00 01 92 00 a0", malformed, "expected a boolean"},
    {"nil for a boolean", "95 05 0d 00 00 93 00 c0 92 00 a0", malformed, "expected a boolean"},
    {"an enumerator too large", "95 05 03 00 00 91 92 0b a0", malformed, "unknown enumerator"},
    {"a negative enumerator", "95 05 03 00 00 91 92 ff a0", malformed, "out of the field's range"},
    {"a huge enumerator", "95 05 03 00 00 91 92 cf ffffffffffffffff a0", malformed,
     "unknown enumerator"},
    {"a byte that MessagePack never uses", "95 05 0e 00 00 92 c1 00", malformed,
     "expected an integer"},
    {"an extension", "95 05 0e 00 00 92 d4 01 00 00", malformed, "expected an integer"},
    {"a timestamp", "95 05 0e 00 00 92 d6 ff 00000000 00", malformed, "expected an integer"},
};

const refused_case refused_entries[] = {
    {"nothing at all", "", malformed, "end inside"},
    {"an entry without a body", "91 00", malformed, "number of fields"},
    {"an entry of an unknown kind", "92 10 90", malformed, "unknown alternative"},
    {"an entry of a kind beyond all", "92 cf ffffffffffffffff 90", malformed,
     "unknown alternative"},
    {"an entry of a negative kind", "92 ff 90", malformed, "out of the field's range"},
    {"an entry with bytes after it", "92 00 94 02 cb 8000000000000000 00 00 00", malformed,
     "follow the end"},
    {"an entry of a later version", "93 05 00 94 02 cb 8000000000000000 00 00", malformed,
     "of a version that this program does not know"},
    {"an entry of this version of an unknown kind", "93 04 10 90", malformed,
     "unknown alternative"},
    {"a state that no job has", "92 05 94 01 cb 0000000000000000 06 a0", malformed,
     "unknown enumerator"},
};

}  // namespace

TEST_CASE("entries of the first release are read, with defaults for later fields") {
  for (const auto& old : harness::first_release_journal()) {
    const auto e = decode_entry(from_hex(old.hex));
    INFO((e ? std::string{old.hex} : e.error().text));
    REQUIRE(e);
    CHECK(*e == old.entry);
    CHECK(decode_entry(encode(old.entry)) == old.entry);
  }
}

TEST_CASE("a record may end before fields that were added later, and nowhere else") {
  for (const auto& old : harness::first_release_journal()) {
    auto bytes = from_hex(old.hex);
    auto& fields = bytes[2];  // of the entry: a short array
    const auto required = fields;
    fields = static_cast<std::byte>(std::to_integer<int>(required) - 1);
    const auto cut = decode_entry(bytes);
    REQUIRE_FALSE(cut);
    CHECK_THAT(cut.error().text, Catch::Contains("fewer fields than required"));
    fields = std::byte{0x9f};
    const auto newer = decode_entry(bytes);
    REQUIRE_FALSE(newer);
    CHECK_THAT(newer.error().text, Catch::Contains("written by a newer one"));
  }
}

TEST_CASE("a malformed message is refused with a reason that names the place") {
  for (const auto& c : refused_messages) {
    INFO(c.what);
    const auto m = decode(from_hex(c.hex));
    REQUIRE(!m);
    CHECK(m.error().code == c.code);
    CHECK_THAT(m.error().text, Catch::Contains(c.sentence));
  }
}

TEST_CASE("a malformed journal entry is refused with a reason that names the place") {
  for (const auto& c : refused_entries) {
    INFO(c.what);
    const auto m = decode_entry(from_hex(c.hex));
    REQUIRE(!m);
    CHECK(m.error().code == c.code);
    CHECK_THAT(m.error().text, Catch::Contains(c.sentence));
  }
}

TEST_CASE("a map with a duplicate key is refused") {
  const auto job = encode(1, 2, golden_frames().at(5).what);
  std::string hex = to_hex(job.header.bytes());
  const std::string one = "81 a4 53 45 45 44 a1 31";
  const auto at = hex.find(one);
  REQUIRE(at != std::string::npos);
  hex.replace(at, one.size(), "82 a4 53 45 45 44 a1 31 a4 53 45 45 44 a1 31");
  const auto m = decode(from_hex(hex));
  REQUIRE(!m);
  CHECK_THAT(m.error().text, Catch::Contains("duplicate map key"));
}

TEST_CASE("every truncated frame is refused, and so is every frame with an extra byte") {
  for (const auto& g : golden_frames()) {
    auto whole = from_hex(g.hex);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      INFO(g.name << ", " << size << " bytes");
      CHECK(!decode(std::span{whole}.first(size)));
    }
    whole.push_back(std::byte{0});
    CHECK(!decode(whole));
  }
}
