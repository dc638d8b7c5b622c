#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "cli/program.hpp"

using namespace troupe::test;

namespace {

bool readable_by_others(const std::string& file) {
  struct stat s {};
  REQUIRE(stat(file.c_str(), &s) == 0);
  return s.st_mode & (S_IRWXG | S_IRWXO);
}

}  // namespace

TEST_CASE("keys make gives every host of a cluster a key pair that only its owner can read") {
  const scratch dir;
  const auto r = troupe::test::troupe({"keys", "make", dir.path("keys"), "--cluster",
                                       shipped("clusters/frenzy-testbed.yaml"), "--json"});
  REQUIRE(r.status == 0);
  const auto d = r.document();
  CHECK(d["made"] == d["names"].size());
  CHECK(d["kept"] == 0);
  for (const auto& name : d["names"])
    CHECK_FALSE(readable_by_others(dir.path("keys/" + name.get<std::string>() + ".key")));
  CHECK(std::filesystem::exists(dir.path("keys/authorized")));
}

TEST_CASE("keys make keeps existing key pairs") {
  const scratch dir;
  const std::vector<std::string> command{
      "keys",  "make", dir.path("keys"), "--cluster", shipped("clusters/frenzy-testbed.yaml"),
      "--json"};
  const auto names = troupe::test::troupe(command).document()["names"];
  const auto again = troupe::test::troupe(command);
  CHECK(again.status == 0);
  CHECK(again.document()["made"] == 0);
  CHECK(again.document()["kept"] == names.size());
}

TEST_CASE("keys that cannot be written are refused with the directory's name") {
  const scratch dir;
  const auto file = dir.write("taken", "");
  const auto r = troupe::test::troupe(
      {"keys", "make", file, "--cluster", shipped("clusters/frenzy-testbed.yaml")});
  CHECK(r.status == 1);
  CHECK(r.err.find("taken") != std::string::npos);
  CHECK(troupe::test::troupe({"keys"}).status == 2);
  CHECK(troupe::test::troupe({"keys", "make", "--help"}).status == 0);
}

TEST_CASE("keys make creates keys for users, with their roles in `authorized`") {
  const scratch dir;
  const std::vector<std::string> base{
      "keys",  "make", dir.path("keys"), "--cluster", shipped("clusters/frenzy-testbed.yaml"),
      "--json"};
  const auto with = [&](std::vector<std::string> more) {
    auto all = base;
    all.insert(all.end(), more.begin(), more.end());
    return troupe::test::troupe(all);
  };
  REQUIRE(with({"--client", "alice", "--client", "bob", "--operator", "root"}).status == 0);
  std::ifstream in{dir.path("keys/authorized")};
  const std::string list{std::istreambuf_iterator<char>{in}, {}};
  const auto line_of = [&](const std::string& name) {
    const auto at = list.find("\n" + name + " ");
    REQUIRE(at != std::string::npos);
    return list.substr(at + 1, list.find('\n', at + 1) - at - 1);
  };
  for (const auto* name : {"alice", "bob", "client"}) CHECK(line_of(name).ends_with(" client"));
  for (const auto* name : {"root", "operator"}) CHECK(line_of(name).ends_with(" operator"));
  CHECK(std::filesystem::exists(dir.path("keys/alice.key")));
  CHECK(with({"--client", "alice", "--operator", "alice"}).status == 2);
  const auto taken = with({"--client", "controller"});
  CHECK(taken.status == 2);
  CHECK(taken.err.find("it is a host of the cluster") != std::string::npos);
}
