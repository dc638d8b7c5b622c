#include "runtime/zeromq/keys.hpp"
#include "harness/facts.hpp"

#include <sys/stat.h>

#include <fstream>

#include "runtime/host/log.hpp"
#include "runtime/world.hpp"

using namespace troupe;
using namespace troupe::runtime;
using namespace troupe::runtime::test;

namespace {

/// The text logged during its lifetime.
class captured_log {
 public:
  captured_log() {
    set_log_sink([this](log_level, std::string_view line) {
      const std::lock_guard guard{mutex_};
      text_ += std::string{line} + "\n";
    });
  }
  ~captured_log() { set_log_sink({}); }
  bool has(const std::string& words) const {
    const std::lock_guard guard{mutex_};
    return text_.find(words) != std::string::npos;
  }
  std::size_t count(const std::string& words) const {
    const std::lock_guard guard{mutex_};
    std::size_t n = 0;
    for (auto at = text_.find(words); at != std::string::npos; at = text_.find(words, at + 1)) ++n;
    return n;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

zeromq_options options(const std::string& name, const std::string& keys) {
  zeromq_options o;
  o.name = name;
  o.cluster = two_datacenters();
  o.incarnation = 1;
  o.keys = keys;
  return o;
}

}  // namespace

TEST_CASE("keys are made once for every host, and only the owner can read a secret key") {
  scratch dir;
  const auto names = key_names(two_datacenters());
  REQUIRE(names == std::vector<std::string>{"controller", "client", "operator", "dc1/gateway",
                                            "dc2/gateway", "a-0", "a-1", "b-0"});
  REQUIRE(make_keys(dir.path(), names) == names.size());
  REQUIRE(has_keys(dir.path()));
  const auto before = load_keys(dir.path(), "dc1/gateway");
  REQUIRE(before);
  REQUIRE(before->key_of("dc1/gateway") == before->public_key);
  REQUIRE(before->name_of(before->public_key) == "dc1/gateway");
  REQUIRE(make_keys(dir.path(), names) == 0u);
  REQUIRE(load_keys(dir.path(), "dc1/gateway")->secret_key == before->secret_key);

  struct stat info {};
  REQUIRE(::stat((dir / "a-0.key").c_str(), &info) == 0);
  REQUIRE((info.st_mode & 0777) == 0600);
  REQUIRE(::chmod((dir / "a-0.key").c_str(), 0644) == 0);
  REQUIRE(load_keys(dir.path(), "a-0").error().text.find("can be read by others") !=
          std::string::npos);
}

TEST_CASE("bad names and bad key files are refused with the reason") {
  scratch dir;
  for (const auto* name : {"", "/etc/x", "../x", "a/../../x", "a b"})
    REQUIRE(make_keys(dir.path(), {name}).error().code == reason::kind::invalid);
  REQUIRE(make_keys(dir.path(), {"controller", "a-0"}));
  REQUIRE(load_keys(dir.path(), "a-1").error().code == reason::kind::unknown);
  std::ofstream{dir / "a-0.key"} << "nonsense";
  REQUIRE(load_keys(dir.path(), "a-0").error().code == reason::kind::malformed);
  std::ofstream{dir / "authorized", std::ios::app} << "a-7 tooshort\n";
  REQUIRE(load_keys(dir.path(), "controller").error().text.find("authorized:4") !=
          std::string::npos);
}

TEST_CASE("malformed lines of the key list and malformed key files are refused") {
  scratch dir;
  REQUIRE(make_keys(dir.path(), {"controller"}, {{"alice", key_role::client}}));
  CHECK(has_keys(dir.path()));
  CHECK_FALSE(has_keys(""));
  CHECK_FALSE(has_keys(scratch{}.path()));
  const auto ring = load_keys(dir.path(), "controller");
  REQUIRE(ring);
  const auto key = ring->public_key;
  std::string list;
  std::getline(std::ifstream{dir / "authorized"}, list, '\0');
  const auto code_with = [&](const std::string& line) {
    std::ofstream{dir / "authorized"} << list << line << '\n';
    const auto loaded = load_keys(dir.path(), "controller");
    return loaded ? std::optional<reason::kind>{} : loaded.error().code;
  };
  CHECK_FALSE(code_with(""));
  CHECK_FALSE(code_with("# a comment"));
  CHECK_FALSE(code_with("b-0 " + key));
  CHECK_FALSE(code_with("bob " + key + " operator"));
  CHECK(code_with("b-0") == reason::kind::malformed);
  CHECK(code_with("b-0 " + key.substr(1)) == reason::kind::malformed);
  CHECK(code_with("bob " + key + " king") == reason::kind::malformed);
  CHECK(code_with("bob " + key + " client now") == reason::kind::malformed);
  CHECK_FALSE(code_with(""));
  const auto code_of = [&](const std::string& text) {
    std::ofstream{dir / "controller.key"} << text;
    const auto loaded = load_keys(dir.path(), "controller");
    return loaded ? std::optional<reason::kind>{} : loaded.error().code;
  };
  const auto& secret = ring->secret_key;
  const auto other = load_keys(dir.path(), "alice");
  REQUIRE(other);
  CHECK_FALSE(code_of("public " + key + "\nsecret " + secret + "\n"));
  CHECK(code_of("pubic " + key + "\nsecret " + secret) == reason::kind::malformed);
  CHECK(code_of("public " + key + "\nsecrets " + secret) == reason::kind::malformed);
  CHECK(code_of("public " + key.substr(1) + "\nsecret " + secret) == reason::kind::malformed);
  CHECK(code_of("public " + key + "\nsecret " + secret.substr(1)) == reason::kind::malformed);
  CHECK(code_of("public " + other->public_key + "\nsecret " + secret) == reason::kind::malformed);
}

TEST_CASE("users' keys have the roles that the key list gives; a user cannot have a host's name") {
  scratch dir;
  const auto names = key_names(two_datacenters());
  REQUIRE(make_keys(dir.path(), names,
                    {{"alice", key_role::client}, {"root", key_role::operator_}}) == 10u);
  const auto ring = load_keys(dir.path(), "alice");
  REQUIRE(ring);
  CHECK(ring->role_of("alice") == key_role::client);
  CHECK(ring->role_of("root") == key_role::operator_);
  CHECK(ring->role_of("client") == key_role::client);
  CHECK(ring->role_of("operator") == key_role::operator_);
  CHECK(ring->role_of("a-0") == key_role::host);
  CHECK(ring->role_of("nobody") == key_role::host);
  // Run again without them they stay; a role can be changed.
  REQUIRE(make_keys(dir.path(), names, {{"alice", key_role::operator_}}) == 0u);
  CHECK(load_keys(dir.path(), "a-0")->role_of("alice") == key_role::operator_);
  CHECK(load_keys(dir.path(), "a-0")->role_of("root") == key_role::operator_);
  for (const auto* taken : {"a-0", "controller", "dc1/gateway", "local"})
    CHECK(make_keys(dir.path(), names, {{taken, key_role::client}}).error().code ==
          reason::kind::invalid);
  auto with_client = two_datacenters();
  with_client.nodes[0].name = "client";
  CHECK(make_keys(dir.path(), key_names(with_client)).error().text.find("cannot be called") !=
        std::string::npos);
}

TEST_CASE("a client's default key is `client`, or the only user's key in the directory") {
  scratch dir;
  REQUIRE(make_keys(dir.path(), key_names(two_datacenters()), {{"alice", key_role::client}}));
  CHECK(default_client_key(dir.path()) == "client");
  std::filesystem::remove(dir / "client.key");
  CHECK(default_client_key(dir.path()).empty());  // alice's or the operator's?
  std::filesystem::remove(dir / "operator.key");
  CHECK(default_client_key(dir.path()) == "alice");
}

TEST_CASE("hosts with listed keys communicate over an encrypted connection") {
  scratch dir;
  REQUIRE(make_keys(dir.path(), key_names(two_datacenters())));
  auto o = options("controller", dir.path());
  o.listen = "tcp://127.0.0.1:*";
  auto controller = must_open(o);
  mailbox at_controller{controller};
  auto g = options("dc1/gateway", dir.path());
  g.upstream = controller->endpoint();
  auto gateway = must_open(g);
  mailbox at_gateway{gateway};
  REQUIRE(gateway->wait_until_greeted(long_s));
  REQUIRE(gateway->send(0, numbered(gateway_address(0), 0, 4)));
  REQUIRE(at_controller.has(1));
  REQUIRE(controller->send(gateway_address(0), numbered(0, gateway_address(0), 5)));
  REQUIRE(at_gateway.has(1));
}

TEST_CASE("a peer whose key is not in the list is refused and logged with its address") {
  scratch ours, theirs;
  const auto names = key_names(two_datacenters());
  REQUIRE(make_keys(ours.path(), names));
  REQUIRE(make_keys(theirs.path(), names));
  // It knows the controller's public key, which is no secret, but its own is not listed.
  std::ofstream{theirs / "authorized"} << "controller "
                                       << load_keys(ours.path(), "controller")->public_key << "\n";
  const auto stranger_key = load_keys(theirs.path(), "dc1/gateway")->public_key;
  captured_log captured;
  auto o = options("controller", ours.path());
  o.listen = "tcp://127.0.0.1:*";
  auto controller = must_open(o);
  mailbox at_controller{controller};
  auto g = options("dc1/gateway", theirs.path());
  g.upstream = controller->endpoint();
  auto gateway = must_open(g);
  mailbox at_gateway{gateway};
  const auto greeted = gateway->wait_until_greeted(long_s);
  REQUIRE_FALSE(greeted);
  REQUIRE(greeted.error().code == reason::kind::refused);
  REQUIRE(eventually([&] {
    return captured.has("rejected a peer whose key is not in the list address=127.0.0.1");
  }));
  REQUIRE(eventually([&] {
    return captured.has("key=" + stranger_key) || captured.has("key=\"" + stranger_key);
  }));
  gateway->send(0, numbered(gateway_address(0), 0, 4));
  REQUIRE(at_controller.size() == 0);
}

TEST_CASE("a host with another host's key is refused with both names") {
  scratch dir;
  REQUIRE(make_keys(dir.path(), key_names(two_datacenters())));
  std::filesystem::copy_file(dir / "dc2/gateway.key", dir / "dc1/gateway.key",
                             std::filesystem::copy_options::overwrite_existing);
  captured_log captured;
  auto o = options("controller", dir.path());
  o.listen = "tcp://127.0.0.1:*";
  auto controller = must_open(o);
  mailbox at_controller{controller};
  auto g = options("dc1/gateway", dir.path());
  g.upstream = controller->endpoint();
  auto gateway = must_open(g);
  mailbox at_gateway{gateway};
  const auto greeted = gateway->wait_until_greeted(long_s);
  REQUIRE_FALSE(greeted);
  REQUIRE(troupe::test::has_facts(greeted.error().text, {"dc1/gateway", "dc2/gateway"}));
}

TEST_CASE("a peer without a key is refused, and a server with an unknown key is not trusted") {
  scratch ours, theirs;
  const auto names = key_names(two_datacenters());
  REQUIRE(make_keys(ours.path(), names));
  REQUIRE(make_keys(theirs.path(), names));
  captured_log captured;
  auto o = options("controller", ours.path());
  o.listen = "tcp://127.0.0.1:*";
  auto controller = must_open(o);
  mailbox at_controller{controller};

  auto plain = options("dc1/gateway", "");
  plain.upstream = controller->endpoint();
  auto without = must_open(plain);
  mailbox at_without{without};
  REQUIRE(eventually([&] { return captured.has("rejected a peer without a valid key"); }));

  auto deceived = options("dc2/gateway", theirs.path());
  deceived.upstream = controller->endpoint();
  auto other = must_open(deceived);
  mailbox at_other{other};
  REQUIRE_FALSE(other->wait_until_greeted(1));
  REQUIRE_FALSE(without->greeted());
  REQUIRE(controller->counts().received == 0);
}

TEST_CASE("peers without a key are logged once a minute, however many come") {
  scratch dir;
  REQUIRE(make_keys(dir.path(), key_names(two_datacenters())));
  captured_log captured;
  auto o = options("controller", dir.path());
  o.listen = "tcp://127.0.0.1:*";
  const auto controller = must_open(o);
  const mailbox at_controller{controller};
  for (int i = 0; i < 3; ++i) {
    auto without = options("client", "");
    without.client = true;
    without.upstream = controller->endpoint();
    const auto client = must_open(without);
    const mailbox at_client{client};
    REQUIRE_FALSE(client->wait_until_greeted(long_s));
  }
  REQUIRE(eventually([&] { return captured.has("rejected a peer without a valid key"); }));
  CHECK(captured.count("rejected a peer without a valid key") == 1);
}
