#include "runtime/zeromq/keys.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include <fmt/format.h>

#include "messages/base/refuse.hpp"
#include "messages/base/whole_file.hpp"
#include "messages/domain/address.hpp"
#include "runtime/host/private_files.hpp"
#include "runtime/host/transport.hpp"

namespace troupe::runtime {
namespace {

// Files of a directory of keys: NAME.key has a pair of CURVE keys (Z85, 40 characters each) and
// belongs on the host or with the user NAME alone; `authorized` lists the public keys of all with
// their roles and belongs on every host. A name is an identity: a host's key proves the host of
// that name in the cluster file, a user's key owns the jobs submitted with it.
namespace fs = std::filesystem;
using key_list = std::vector<listed_key>;

constexpr std::size_t key_length = 40;

std::string secret_path(const std::string& directory, const std::string& name) {
  return directory + "/" + name + ".key";
}

std::string list_path(const std::string& directory) {
  return directory + "/authorized";
}

bool is_key(const std::string& s) {
  if (s.size() != key_length) return false;
  std::uint8_t raw[32];
  return zmq_z85_decode(raw, s.c_str()) != nullptr;
}

// A name becomes a path: it must stay inside the directory.
bool is_usable_name(const std::string& name) {
  if (name.empty() || name.front() == '/') return false;
  std::stringstream parts{name};
  for (std::string part; std::getline(parts, part, '/');)
    if (part.empty() || part.front() == '.') return false;
  return std::ranges::none_of(name, [](unsigned char ch) { return ch <= ' ' || ch == 127; });
}

// "client" had no role in its line before roles were written.
key_role role_without_word(const std::string& name) {
  if (name == operator_key_name) return key_role::operator_;
  return name == client_key_name ? key_role::client : key_role::host;
}

const char* word_of(key_role r) {
  return r == key_role::client ? " client" : r == key_role::operator_ ? " operator" : "";
}

bool read_role(const std::string& word, key_role& role) {
  if (word != "client" && word != "operator") return false;
  role = word == "client" ? key_role::client : key_role::operator_;
  return true;
}

// Strict: a line that was misread could let a stranger in or keep a host out.
expected<key_list> read_list(const std::string& path) {
  std::ifstream in{path};
  if (!in) return refuse(reason::kind::unknown, "cannot read the list of public keys {}", path);
  key_list list;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    std::stringstream words{line};
    std::string name, key, role, more;
    if (!(words >> name) || name.front() == '#') continue;
    listed_key entry{name, "", role_without_word(name)};
    if (!(words >> key) || !is_key(key) || (words >> role && !read_role(role, entry.role)) ||
        words >> more)
      return refuse(reason::kind::malformed,
                    "{}:{}: expected a name and a public key of 40 characters, and for people "
                    "`client` or `operator`",
                    path, number);
    entry.public_key = key;
    list.push_back(std::move(entry));
  }
  return list;
}

// As ssh does, refuses a secret that others can read. Checks that the halves match: with halves of
// two pairs every handshake would fail without a reason.
expected<std::pair<std::string, std::string>> read_pair(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    return refuse(reason::kind::unknown, "cannot read the key {}: {}", path, std::strerror(errno));
  if ((info.st_mode & 077) != 0)
    return refuse(
        reason::kind::refused,
        "the key {} can be read by others; make it readable by its owner only (chmod 600)", path);
  std::ifstream in{path};
  std::string word_public, public_key, word_secret, secret_key;
  in >> word_public >> public_key >> word_secret >> secret_key;
  if (word_public != "public" || word_secret != "secret" || !is_key(public_key) ||
      !is_key(secret_key))
    return refuse(reason::kind::malformed, "{} is not a key file", path);
  char derived[key_length + 1];
  if (zmq_curve_public(derived, secret_key.c_str()) != 0 || public_key != derived)
    return refuse(reason::kind::malformed, "the two halves of the key {} do not match", path);
  return std::pair{public_key, secret_key};
}

/// Its name is not enough to see who may connect. What exists stays as it is.
expected<void> make_key_directory(const fs::path& directory) {
  std::error_code failed;
  if (const auto above = directory.parent_path(); !above.empty())
    fs::create_directories(above, failed);
  if (!failed && ::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    failed.assign(errno, std::generic_category());
  if (failed)
    return refuse(reason::kind::unavailable, "{}: cannot be created: {}", directory.string(),
                  failed.message());
  return {};
}

expected<std::string> make_pair(const std::string& path) {
  char public_key[key_length + 1], secret_key[key_length + 1];
  if (zmq_curve_keypair(public_key, secret_key) != 0)
    return refuse(reason::kind::unavailable, "this build of ZeroMQ has no CURVE encryption");
  if (auto ok = make_key_directory(fs::path{path}.parent_path()); !ok) return refuse(ok.error());
  auto written = write_whole_file(
      path, fmt::format("public {}\nsecret {}\n", public_key, secret_key), private_file_mode);
  if (!written) return refuse(written.error());
  return std::string{public_key};
}

}  // namespace

std::string key_ring::key_of(const std::string& host) const {
  for (const auto& k : authorized)
    if (k.name == host) return k.public_key;
  return {};
}

std::string key_ring::name_of(const std::string& key) const {
  for (const auto& k : authorized)
    if (k.public_key == key) return k.name;
  return {};
}

key_role key_ring::role_of(std::string_view who) const {
  for (const auto& k : authorized)
    if (k.name == who) return k.role;
  return key_role::host;
}

std::vector<std::string> key_names(const cluster& c) {
  std::vector<std::string> names{host_name(c, controller_address), client_key_name,
                                 operator_key_name};
  for (std::uint32_t d = 0; d < c.datacenters.size(); ++d)
    names.push_back(host_name(c, gateway_address(d)));
  for (const auto& n : c.nodes) names.push_back(n.name);
  for (const auto& f : c.fronts) names.push_back(f.name);
  return names;
}

namespace {

/// The public key of a name that has a pair here, or gets one now; empty: its secret is where it
/// belongs, with its owner.
expected<std::string> public_key_of(const std::string& directory, const std::string& name,
                                    bool listed, std::size_t& made) {
  const auto path = secret_path(directory, name);
  if (fs::exists(path)) {
    auto pair = read_pair(path);
    if (!pair) return refuse(pair.error());
    return pair->first;
  }
  if (listed) return std::string{};
  ++made;
  return make_pair(path);
}

}  // namespace

// Never replaces a pair: it may be in use. A host that is listed and has no secret here has it
// elsewhere.
expected<std::size_t> make_keys(const std::string& directory, const std::vector<std::string>& names,
                                const std::map<std::string, key_role>& people) {
  key_list list;
  if (fs::exists(list_path(directory))) {
    auto old = read_list(list_path(directory));
    if (!old) return refuse(old.error());
    list = std::move(*old);
  }
  std::vector<std::string> all = names;
  for (const auto* name : {client_key_name, operator_key_name})
    if (std::ranges::count(names, name) > 1)
      return refuse(reason::kind::invalid,
                    "a host cannot be called '{}': the name is reserved for user keys", name);
  for (const auto& [name, role] : people) {
    const bool is_host =
        std::ranges::find(names, name) != names.end() && role_without_word(name) == key_role::host;
    if (is_host || name == local_caller)
      return refuse(
          reason::kind::invalid, "'{}' cannot be a user's name: {}", name,
          is_host ? "it is a host of the cluster" : "it is reserved for users without keys");
    if (std::ranges::find(names, name) == names.end()) all.push_back(name);
  }
  if (auto ok = make_key_directory(directory); !ok) return refuse(ok.error());
  std::size_t made = 0;
  for (const auto& name : all) {
    if (!is_usable_name(name))
      return refuse(reason::kind::invalid, "'{}' is not a valid name for a key file", name);
    auto at = std::ranges::find_if(list, [&](const auto& k) { return k.name == name; });
    auto key = public_key_of(directory, name, at != list.end(), made);
    if (!key) return refuse(key.error());
    if (at == list.end()) at = list.insert(at, listed_key{name, "", role_without_word(name)});
    if (!key->empty()) at->public_key = *key;
    if (const auto role = people.find(name); role != people.end()) at->role = role->second;
  }
  std::string text =
      "# The hosts and users of this cluster and their public keys. Copy this file to every "
      "host.\n";
  for (const auto& k : list)
    text += fmt::format("{} {}{}\n", k.name, k.public_key, word_of(k.role));
  auto written = write_whole_file(list_path(directory), text, 0644);
  if (!written) return refuse(written.error());
  return made;
}

expected<key_ring> load_keys(const std::string& directory, const std::string& name) {
  if (!is_usable_name(name))
    return refuse(reason::kind::invalid, "'{}' is not a valid name for a key file", name);
  auto pair = read_pair(secret_path(directory, name));
  if (!pair) return refuse(pair.error());
  auto list = read_list(list_path(directory));
  if (!list) return refuse(list.error());
  return key_ring{name, pair->first, pair->second, std::move(*list)};
}

// The only user key of the directory, if there is exactly one: with several, choosing would choose
// an owner.
std::string default_client_key(const std::string& directory) {
  if (fs::exists(secret_path(directory, client_key_name))) return client_key_name;
  const auto list = read_list(list_path(directory));
  if (!list) return {};
  std::string found;
  for (const auto& k : *list) {
    if (k.role == key_role::host || !fs::exists(secret_path(directory, k.name))) continue;
    if (!found.empty()) return {};
    found = k.name;
  }
  return found;
}

bool has_keys(const std::string& directory) {
  std::error_code ignored;
  return !directory.empty() && fs::exists(list_path(directory), ignored);
}

}  // namespace troupe::runtime
